"""Losses of records under several sites' adapters, as in attacks on what sites send, two ways.

(p) PEFT, adapter by adapter, batches of records of one length, plain forward passes,
(m) Murmura, all adapters and records in shared passes.

    python bench/scoring.py                            both ways, three times in turn
    python bench/scoring.py --adapted "last 8"         with adapters in the last layers only
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import ways
from ways import Figures
from work import Work

WAYS = {"p": ("peft", "PEFT, adapter by adapter"), "m": ("bank", "Murmura")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if losses differ by more than they may, else 0."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        work = the_work(options, folder)
        medians = ways.take_turns(work, in_words(work, options), options, partial(once, work, folder), show)
        print_table(medians, options.repeats)
        pairs = {"losses of (m) and (p)": ("m", "p")} if len(medians) == 2 else {}
        return ways.print_differences(folder, pairs, strict=ways.is_exact(work))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ways.training_parser(__doc__, list(WAYS), sites=4, rounds=3, batch=8, length=128)
    parser.add_argument("--tokens-per-pass", type=int, help="Murmura's training.tokens_per_pass; scoring takes twice")
    return ways.parse(parser, list(WAYS), arguments)


def the_work(options: argparse.Namespace, folder: Path) -> Work:
    """In each round every site's records are scored under its adapter; of ``batch`` records."""
    return Work(
        **ways.base_model(options, folder), sites=options.sites, rounds=options.rounds, steps=1, batch=options.batch,
        length=options.length, labelled=options.length // 2 if options.labelled_half else options.length, order=[],
        tokens_per_pass=ways.tokens_per_pass(options), actors=1, layers=options.adapted,
    )  # fmt: skip


def once(work: Work, folder: Path, way: str) -> Figures:
    """Run one way; its seconds are those of the last round, the losses stay in ``folder/WAY``."""
    figures, rounds = ways.run("way_score.py", work, folder / way, WAYS[way][0])
    return replace(figures, seconds=rounds[-1])


def in_words(work: Work, options: argparse.Namespace) -> str:
    return (
        f"{ways.name_of(options)} in {work.dtype}, {work.sites} adapters x {work.batch} x {work.length} tokens "
        f"({work.labelled} labelled), adapters in {work.layers} layers, {work.cores} cores"
    )


def show(figures: Figures) -> str:
    return f"{figures.seconds:7.3f} s {figures.memory / 1e9:9.2f} GB"


def print_table(medians: Mapping[str, Figures], repeats: int) -> None:
    print(f"\n{f'medians of {repeats}':28}{'last round':>12}{'peak memory':>14}")
    for way, found in medians.items():
        print(f"{f'({way}) {WAYS[way][1]}':28}{found.seconds:10.3f} s{found.memory / 1e9:11.2f} GB")
    if len(medians) == 2:
        theirs, ours = medians["p"], medians["m"]
        speed, memory = theirs.seconds / ours.seconds, ours.memory / theirs.memory
        print(f"{'(m) against (p)':28}{speed:9.2f}x faster{memory:7.2f}x memory")


if __name__ == "__main__":
    sys.exit(main())
