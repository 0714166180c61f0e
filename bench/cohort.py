"""The same federated fine-tuning three ways, each in a process of its own from start to exit.

(a) a minimal application on Flower's simulation engine, which loads the base model for each site in each round,
(b) one resident model with a PEFT adapter, site after site,
(c) Murmura's bank, all sites at once.

    python bench/cohort.py                                 the table of README (ways a b c, three times in turn)
    python bench/cohort.py --labelled-half                 as in instruction tuning: only the second half is learnt
    python bench/cohort.py --random 1b --device cuda --dtype bfloat16 --sites 10 --batch 8 --length 128
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

WAYS = {
    "a": ("way_flower.py", "Flower simulation"),
    "b": ("way_peft.py", "PEFT, site by site"),
    "c": ("way_bank.py", "Murmura"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if ways learnt what differs by more than it may, else 0."""
    options = parse(arguments)
    options.ways = ways.available(options.ways, "flwr", "a", "Flower", "pip install 'murmura[flower-bench]'")
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        work = the_work(options, folder)
        medians = ways.take_turns(work, in_words(work, options), options, partial(once, work, folder), show)
        print_table(medians, options.repeats)
        pairs = {
            f"what ({way}) and (b) learnt": (way, "b") for way in options.ways if way != "b" and "b" in options.ways
        }
        return ways.print_differences(folder, pairs, strict=ways.is_exact(work))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ways.training_parser(__doc__, list(WAYS), sites=4, rounds=2, steps=2, batch=4, length=64)
    parser.add_argument("--layers", type=int, help="with --random: so many layers")
    parser.add_argument("--hidden", type=int, help="with --random: so wide")
    parser.add_argument("--tokens-per-pass", type=int, help="Murmura's training.tokens_per_pass")
    parser.add_argument("--actors", type=int, default=1, help="processes that Flower simulates sites in")
    options = ways.parse(parser, list(WAYS), arguments)
    if (options.layers or options.hidden) and not options.random:
        parser.error("--layers and --hidden shape a model of --random")
    if not 1 <= options.actors <= options.cores:
        parser.error("--actors: at least 1, at most --cores")
    return options


def the_work(options: argparse.Namespace, folder: Path) -> Work:
    return Work(
        **ways.base_model(options, folder), sites=options.sites, rounds=options.rounds, steps=options.steps,
        batch=options.batch, length=options.length,
        labelled=options.length // 2 if options.labelled_half else options.length, order=orders(options),
        tokens_per_pass=ways.tokens_per_pass(options), actors=options.actors, layers=options.adapted,
    )  # fmt: skip


def orders(options: argparse.Namespace) -> list[list[list[list[int]]]]:
    """The order in which Murmura will take each site's records."""
    from way_bank import stream

    from murmura.training.config import LocalTraining
    from murmura.training.loop import batches

    training = LocalTraining(batch_size=options.batch)
    count = options.steps * options.batch
    return [
        [list(batches(count, training, stream(site, round))) for site in range(options.sites)]
        for round in range(options.rounds)
    ]


def once(work: Work, folder: Path, way: str) -> Figures:
    """Run one way; its seconds are those of the last round, what it learnt stays in ``folder/WAY``."""
    threads = work.cores // work.actors if way == "a" else work.cores
    figures, rounds = ways.run(WAYS[way][0], work, folder / way, threads=threads)
    return replace(figures, seconds=rounds[-1])


def in_words(work: Work, options: argparse.Namespace) -> str:
    return (
        f"{ways.name_of(options)} in {work.dtype}, {work.sites} sites x {work.rounds} rounds x {work.steps} steps of "
        f"{work.batch} x {work.length} tokens ({work.labelled} labelled), adapters in {work.layers} layers, "
        f"{work.cores} cores, "
        f"{work.tokens_per_pass} tokens a pass in (c)"
    )


def show(figures: Figures) -> str:
    return f"{figures.wall:7.2f} s {figures.seconds:9.2f} s {figures.memory / 1e9:9.2f} GB"


def print_table(medians: Mapping[str, Figures], repeats: int) -> None:
    print(f"\n{f'medians of {repeats}':24}{'start to exit':>14}{'last round':>12}{'peak memory':>14}")
    for way, found in medians.items():
        print(f"{f'({way}) {WAYS[way][1]}':24}{found.wall:12.2f} s{found.seconds:10.2f} s{found.memory / 1e9:11.2f} GB")
    for way in (way for way in ("a", "b") if way in medians and "c" in medians):
        other, ours = medians[way], medians["c"]
        ratios = other.wall / ours.wall, other.seconds / ours.seconds, ours.memory / other.memory
        print(f"{f'(c) against ({way})':24}{ratios[0]:7.2f}x faster{ratios[1]:5.2f}x faster{ratios[2]:7.2f}x memory")


if __name__ == "__main__":
    sys.exit(main())
