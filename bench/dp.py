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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import ways
from ways import Figures
from work import Work

WAYS = {
    "h": (("way_opacus.py", "hooks"), "Opacus, hooks"),
    "g": (("way_opacus.py", "ghost"), "Opacus, ghost clipping"),
    "m": (("way_private.py", "private"), "Murmura"),
    "n": (("way_private.py", "plain"), "Murmura, not private"),
}
NORM, NOISE = 0.1, 1.0  # what examples are clipped to, and the noise in units of it; the first step has none


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if the steps without noise differ by more than they may, else 0."""
    options = parse(arguments)
    options.ways = ways.available(options.ways, "opacus", "hg", "Opacus", "pip install 'murmura[dev]'")
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        work = the_work(options, folder)
        medians = ways.take_turns(work, in_words(work, options), options, partial(once, work, folder), show)
        print_table(medians, options.repeats)
        pairs = {
            f"clipped steps of (m) and ({way})": (way, "m") for way in options.ways if way in "hg" and "m" in medians
        }
        return ways.print_differences(folder, pairs, strict=ways.is_exact(work))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ways.training_parser(__doc__, list(WAYS), steps=5, batch=8, length=128)
    options = ways.parse(parser, list(WAYS), arguments)
    if options.steps < 2:
        parser.error("--steps: at least 2, the first is not timed")
    return options


def the_work(options: argparse.Namespace, folder: Path) -> Work:
    """One site that takes all its records in one step a round."""
    return Work(
        **ways.base_model(options, folder), sites=1, rounds=options.steps, steps=1, batch=options.batch,
        length=options.length, labelled=options.length // 2 if options.labelled_half else options.length, order=[],
        tokens_per_pass=options.batch * options.length, actors=1, layers=options.adapted,
    )  # fmt: skip


def once(work: Work, folder: Path, way: str) -> Figures:
    """Run one way; its seconds are those of a step, what the first changed stays in ``folder/WAY``."""
    program, kind = WAYS[way][0]
    figures, steps = ways.run(program, work, folder / way, kind)
    return replace(figures, seconds=median(steps[1:]))


def in_words(work: Work, options: argparse.Namespace) -> str:
    return (
        f"{ways.name_of(options)} in {work.dtype}, {work.rounds} steps of {work.batch} x {work.length} tokens "
        f"({work.labelled} labelled), adapters in {work.layers} layers, {work.cores} cores, norm {NORM}, noise {NOISE}"
    )


def show(figures: Figures) -> str:
    return f"{figures.seconds:7.3f} s {figures.memory / 1e9:9.2f} GB"


def print_table(medians: Mapping[str, Figures], repeats: int) -> None:
    print(f"\n{f'medians of {repeats}':28}{'a step':>10}{'peak memory':>14}")
    for way, found in medians.items():
        print(f"{f'({way}) {WAYS[way][1]}':28}{found.seconds:8.3f} s{found.memory / 1e9:11.2f} GB")
    if "m" not in medians:
        return
    ours = medians["m"]
    for way in (way for way in ("h", "g") if way in medians):
        speed, memory = medians[way].seconds / ours.seconds, ours.memory / medians[way].memory
        print(f"{f'(m) against ({way})':28}{speed:7.2f}x faster{memory:7.2f}x memory")
    if "n" in medians:
        time, memory = ours.seconds / medians["n"].seconds, ours.memory / medians["n"].memory
        print(f"{'(m) against (n)':28}{time:7.2f}x the time{memory:5.2f}x memory")


if __name__ == "__main__":
    sys.exit(main())
