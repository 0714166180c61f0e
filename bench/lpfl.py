"""LP-FL's two costs against what they need at least, each way in a process of its own from start to exit.

(a) Murmura's annotation: from texts to soft labels, through all patterns,
(p) the plain passes that takes: the same tokens, made before, through a PEFT model and its head at the blank only,
(s) Murmura's training step of a batch in all patterns,
(l) Murmura's step of a batch that has as many records as (s) has texts times patterns.

    python bench/lpfl.py                                   the table of README (ways a p s l, three times in turn)
    python bench/lpfl.py --random tiny --length 64         any shape with random weights; nothing is downloaded
    python bench/lpfl.py --device cuda --dtype bfloat16 --texts 10000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import ways
from work import ClozeWork

COMPARISON = ways.Comparison(
    {
        "a": "Murmura, annotation",
        "p": "plain passes with PEFT",
        "s": "Murmura, step in patterns",
        "l": "Murmura, larger batch",
    },
    timed="all or a step",
    pairs=[("a", "p"), ("s", "l")],
    alike={"soft labels of (a) and (p)": ("a", "p")},
    bounds="pl",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if soft labels of (a) and (p) differ by more than they may, else 0."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        work = ways.work_of(ClozeWork, options, folder, rounds=options.steps, steps=1)
        words = (
            f"{ways.name_of(options)} in {work.dtype}, {work.texts} texts x {len(work.patterns)} patterns of at most "
            f"{work.length} tokens; {work.rounds} steps of {work.batch} x {len(work.patterns)}; {work.cores} cores, "
            f"{work.tokens_per_pass} tokens a pass, {2 * work.tokens_per_pass} to annotate"
        )

        def once(way: str) -> ways.Figures:
            program = "way_cloze_passes.py" if way == "p" else "way_cloze.py"
            return ways.run(program, work, folder / way, way, seconds=lambda parts: median(parts[1:]))

        return COMPARISON.run(work, words, options, folder, once)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ways.parser(__doc__, COMPARISON.names, texts=100, length=128, steps=5, batch=8)
    parser.add_argument("--tokens-per-pass", type=int, help="training.tokens_per_pass; annotation takes twice")
    options = ways.parse(parser, COMPARISON.names, arguments)
    if options.steps < 2:
        parser.error("--steps: at least 2, the first is not timed")
    return options


if __name__ == "__main__":
    sys.exit(main())
