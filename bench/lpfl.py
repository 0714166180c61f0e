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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import ways
from ways import Figures
from work import ClozeWork

WAYS = {
    "a": "Murmura, annotation",
    "p": "plain passes with PEFT",
    "s": "Murmura, step in patterns",
    "l": "Murmura, larger batch",
}
PAIRS = (("a", "p"), ("s", "l"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if soft labels of (a) and (p) differ by more than they may, else 0."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        work = the_work(options, folder)
        medians = ways.take_turns(work, in_words(work, options), options, partial(once, work, folder), show)
        print_table(medians, options.repeats)
        pairs = {"soft labels of (a) and (p)": ("a", "p")} if {"a", "p"} <= medians.keys() else {}
        return ways.print_differences(folder, pairs, strict=ways.is_exact(work))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ways.parser(__doc__, list(WAYS), texts=100, length=128, steps=5, batch=8)
    parser.add_argument(
        "--tokens-per-pass", type=int, help="Murmura's training.tokens_per_pass; annotation takes twice"
    )
    options = ways.parse(parser, list(WAYS), arguments)
    if options.steps < 2:
        parser.error("--steps: at least 2, the first is not timed")
    return options


def the_work(options: argparse.Namespace, folder: Path) -> ClozeWork:
    return ClozeWork(
        **ways.base_model(options, folder, tokenizer=True), sites=1, rounds=options.steps, steps=1,
        batch=options.batch, length=options.length, labelled=1, order=[],
        tokens_per_pass=ways.tokens_per_pass(options), actors=1, texts=options.texts,
    )  # fmt: skip


def once(work: ClozeWork, folder: Path, way: str) -> Figures:
    """Run one way; its seconds are those of all texts, or of a step; soft labels stay in ``folder/WAY``."""
    figures, parts = ways.run("way_cloze_passes.py" if way == "p" else "way_cloze.py", work, folder / way, way)
    return replace(figures, seconds=median(parts[1:]))


def in_words(work: ClozeWork, options: argparse.Namespace) -> str:
    return (
        f"{ways.name_of(options)} in {work.dtype}, {work.texts} texts x {len(work.patterns)} patterns of at most "
        f"{work.length} tokens; {work.rounds} steps of {work.batch} x {len(work.patterns)}; {work.cores} cores, "
        f"{work.tokens_per_pass} tokens a pass, {2 * work.tokens_per_pass} to annotate"
    )


def show(figures: Figures) -> str:
    return f"{figures.seconds:7.3f} s {figures.memory / 1e9:9.2f} GB"


def print_table(medians: Mapping[str, Figures], repeats: int) -> None:
    print(f"\n{f'medians of {repeats}':30}{'seconds':>10}{'peak memory':>14}")
    for way, found in medians.items():
        print(f"{f'({way}) {WAYS[way]}':30}{found.seconds:8.3f} s{found.memory / 1e9:11.2f} GB")
    for way, other in PAIRS:
        if way in medians and other in medians:
            time = medians[way].seconds / medians[other].seconds
            memory = medians[way].memory / medians[other].memory
            print(f"{f'({way}) against ({other})':30}{time:7.2f}x the time{memory:5.2f}x memory")


if __name__ == "__main__":
    sys.exit(main())
