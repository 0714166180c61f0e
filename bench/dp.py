"""A step of DP-SGD on a LoRA adapter four ways, each in a process of its own from start to exit.

(h) Opacus' GradSampleModule, which hooks every adapted layer, on a PEFT model,
(g) Opacus' ghost clipping, which makes norms without gradients and goes backward twice, on the same,
(m) Murmura's private step,
(n) Murmura's step without privacy.

    python bench/dp.py                                     the table of README (ways h g m n, three times in turn)
    python bench/dp.py --random tiny --length 16           any shape with random weights; nothing is downloaded
    python bench/dp.py --random 1b --device cuda --dtype bfloat16 --batch 32
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import ways
from work import Work

COMPARISON = ways.Comparison(
    {"h": "Opacus, hooks", "g": "Opacus, ghost clipping", "m": "Murmura", "n": "Murmura, not private"},
    timed="a step",
    pairs=[("m", "h"), ("m", "g"), ("m", "n")],
    alike={f"clipped steps of (m) and ({way})": (way, "m") for way in "hg"},
    bounds="n",
)
NORM, NOISE = 0.1, 1.0  # what examples are clipped to, and the noise in units of it; the first step has none


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if the steps without noise differ by more than they may, else 0."""
    options = parse(arguments)
    options.ways = ways.available(options.ways, "opacus", "hg", "Opacus", "pip install 'murmura[dev]'")
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder, tokens = Path(temporary), options.batch * options.length
        # One site that takes all its records in one step a round.
        work = ways.work_of(Work, options, folder, rounds=options.steps, steps=1, tokens_per_pass=tokens)
        words = (
            f"{ways.name_of(options)} in {work.dtype}, {work.rounds} steps of {work.batch} x {work.length} tokens "
            f"({work.labelled} labelled), adapters in {work.adapted} layers, {work.cores} cores, norm {NORM}, "
            f"noise {NOISE}"
        )

        def once(way: str) -> ways.Figures:
            program = "way_opacus.py" if way in "hg" else "way_private.py"
            return ways.run(program, work, folder / way, way, seconds=lambda steps: median(steps[1:]))

        return COMPARISON.run(work, words, options, folder, once)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ways.training_parser(__doc__, COMPARISON.names, steps=5, batch=8, length=128)
    options = ways.parse(parser, COMPARISON.names, arguments)
    if options.steps < 2:
        parser.error("--steps: at least 2, the first is not timed")
    return options


if __name__ == "__main__":
    sys.exit(main())
