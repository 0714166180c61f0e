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
from collections.abc import Sequence
from pathlib import Path

import ways
from work import Work

PROGRAMS = {"a": "way_flower.py", "b": "way_peft.py", "c": "way_bank.py"}
COMPARISON = ways.Comparison(
    {"a": "Flower simulation", "b": "PEFT, site by site", "c": "Murmura"},
    timed="last round",
    pairs=[("c", "a"), ("c", "b")],
    alike={f"what ({way}) and (b) learnt": (way, "b") for way in "ac"},
    wall=True,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if ways learnt what differs by more than it may, else 0."""
    options = parse(arguments)
    options.ways = ways.available(options.ways, "flwr", "a", "Flower", "pip install 'murmura[flower-bench]'")
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        work = ways.work_of(Work, options, folder, order=orders(options))
        words = (
            f"{ways.name_of(options)} in {work.dtype}, {work.sites} sites x {work.rounds} rounds x {work.steps} steps "
            f"of {work.batch} x {work.length} tokens ({work.labelled} labelled), adapters in {work.adapted} layers, "
            f"{work.cores} cores, {work.tokens_per_pass} tokens a pass in (c)"
        )

        def once(way: str) -> ways.Figures:
            threads = work.cores // options.actors if way == "a" else work.cores
            return ways.run(PROGRAMS[way], work, folder / way, way, lambda rounds: rounds[-1], threads)

        return COMPARISON.run(work, words, options, folder, once)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ways.training_parser(__doc__, COMPARISON.names, sites=4, rounds=2, steps=2, batch=4, length=64)
    parser.add_argument("--layers", type=int, help="with --random: so many layers")
    parser.add_argument("--hidden", type=int, help="with --random: so wide")
    parser.add_argument("--tokens-per-pass", type=int, help="Murmura's training.tokens_per_pass")
    parser.add_argument("--actors", type=int, default=1, help="processes that Flower simulates sites in")
    options = ways.parse(parser, COMPARISON.names, arguments)
    if (options.layers or options.hidden) and not options.random:
        parser.error("--layers and --hidden shape a model of --random")
    if not 1 <= options.actors <= options.cores:
        parser.error("--actors: at least 1, at most --cores")
    return options


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


if __name__ == "__main__":
    sys.exit(main())
