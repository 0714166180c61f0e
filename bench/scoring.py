"""Losses of records under several sites' adapters, as in attacks on what sites send, two ways.

(p) PEFT, adapter by adapter, batches of records of one length, plain forward passes,
(m) Murmura, all adapters and records in shared passes.

    python bench/scoring.py                            both ways, three times in turn
    python bench/scoring.py --adapted "last 8"         with adapters in the last layers only
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import ways
from work import Work

COMPARISON = ways.Comparison(
    {"p": "PEFT, adapter by adapter", "m": "Murmura"},
    timed="last round",
    pairs=[("m", "p")],
    alike={"losses of (m) and (p)": ("m", "p")},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if losses differ by more than they may, else 0."""
    parser = ways.training_parser(__doc__, COMPARISON.names, sites=4, rounds=3, batch=8, length=128)
    parser.add_argument("--tokens-per-pass", type=int, help="Murmura's training.tokens_per_pass; scoring takes twice")
    options = ways.parse(parser, COMPARISON.names, arguments)
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        work = ways.work_of(Work, options, folder)  # in each round every site's ``batch`` records are scored
        words = (
            f"{ways.name_of(options)} in {work.dtype}, {work.sites} adapters x {work.batch} x {work.length} tokens "
            f"({work.labelled} labelled), adapters in {work.adapted} layers, {work.cores} cores"
        )

        def once(way: str) -> ways.Figures:
            return ways.run("way_score.py", work, folder / way, way, seconds=lambda rounds: rounds[-1])

        return COMPARISON.run(work, words, options, folder, once)


if __name__ == "__main__":
    sys.exit(main())
