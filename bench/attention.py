"""Training in bfloat16 on a processor, with attention of short texts (m) in float32, and (p) in bfloat16.

    python bench/attention.py                                          texts of 64 tokens
    python bench/attention.py --length 128 --adapted "last 8"          longer ones, adapters in the last layers only

What the two learn differs by rounding, and how far is printed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import ways
from work import Work

COMPARISON = ways.Comparison(
    {"m": "attention of short texts in float32", "p": "in bfloat16"},
    timed="last round",
    pairs=[("m", "p")],
    alike={"what (m) and (p) learnt": ("m", "p")},
)
PROGRAMS = {"m": "way_bank.py", "p": "way_plain_attention.py"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = ways.training_parser(__doc__, COMPARISON.names, rounds=3, steps=4, batch=8, length=64)
    parser.set_defaults(dtype="bfloat16")
    options = ways.parse(parser, COMPARISON.names, arguments)
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        work = ways.work_of(Work, options, folder)
        words = (
            f"{ways.name_of(options)} in {work.dtype}, {work.steps} steps of {work.batch} x {work.length} tokens "
            f"({work.labelled} labelled), adapters in {work.adapted} layers, {work.cores} cores"
        )

        def once(way: str) -> ways.Figures:
            return ways.run(PROGRAMS[way], work, folder / way, way, seconds=lambda rounds: rounds[-1])

        return COMPARISON.run(work, words, options, folder, once)


if __name__ == "__main__":
    sys.exit(main())
