"""One round of voting in PrE-Text, and the memory of one with many sites; each way in a process of its own.

(l) a matrix product site by site, with PyTorch,
(p) the product of all texts with all candidates alone,
(v) Murmura's voting,
(m) Murmura's voting as a run asks for it: server, fleet, engine, sites, every reply checked and added up.

    python bench/pretext.py                          all of it (ways l p v m, in turn; then memory)
    python bench/pretext.py --ways l,m --many 0      time alone
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import ways
from way_votes import VotingWork

COMPARISON = ways.Comparison(
    {"l": "a product for each site", "p": "one matrix product", "v": "Murmura, voting", "m": "Murmura, as a run asks"},
    timed="one round",
    pairs=[(way, "l") for way in "pvm"],
    alike={f"votes of ({way}) and (l)": (way, "l") for way in "vm"},
    exact=True,
)
TOPICS = 50  # that texts and candidates are about
REPEATS = 5  # within one process; their median counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if ways counted different votes, else 0."""
    parser = ways.plain_parser(__doc__, COMPARISON.names, sites=1250, texts=8, candidates=2048, width=384)
    parser.add_argument("--many", type=int, default=100_000, help="sites whose memory is compared; 0 for none")
    options = ways.parse(parser, COMPARISON.names, arguments)
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        save_vectors(options, folder)
        work = VotingWork(str(folder), options.sites, REPEATS, options.cores, options.device)
        words = (
            f"{options.sites:,} sites x {options.texts} texts vote for {options.candidates:,} candidates of "
            f"{options.width} numbers, {options.cores} cores"
        )

        def once(way: str) -> ways.Figures:
            return ways.run("way_votes.py", work, folder / way, way, seconds=median)

        status = COMPARISON.run(work, words, options, folder, once)
        if options.many:
            print_memory(work, options, folder)
        return status


def save_vectors(options: argparse.Namespace, folder: Path) -> None:
    """Texts as unit vectors around topics; candidates where the mean of several such vectors is."""
    draw = np.random.default_rng(0)
    topics = draw.normal(size=(TOPICS, options.width)).astype(np.float32)
    shapes = {"texts": (options.sites, options.texts), "candidates": (options.candidates,)}
    for name, shape in shapes.items():
        vectors = topics[draw.integers(0, TOPICS, shape)] + draw.normal(size=(*shape, options.width)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
        np.save(folder / f"{name}.npy", vectors * np.float32(1 if name == "texts" else 0.8))


def print_memory(work: VotingWork, options: argparse.Namespace, folder: Path) -> None:
    """The peak of one round with many sites, and with as many as above. Sites beyond these share their vectors, since
    those of all would be data: what is compared is what voting takes besides."""
    print()
    peaks = {}
    for sites in (options.sites, options.many):
        several = replace(work, sites=sites, repeats=0)
        found = ways.run("way_votes.py", several, folder / f"sites-{sites}", "m")
        peaks[sites] = found.memory
        print(f"{sites:8,} sites: {found.memory / 1e9:5.2f} GB at the peak, one round {found.seconds:6.1f} s")
    votes = options.many * options.candidates * 4
    vectors = options.many * options.texts * options.width * 4
    each = (peaks[options.many] - peaks[options.sites]) / (options.many - options.sites)
    ratio = peaks[options.many] / peaks[options.sites]
    print(
        f"peak memory of {options.many:,} sites / {options.sites:,} sites: {ratio:.2f}, {each / 1e3:.1f} kB a site more"
    )
    print(f"votes of {options.many:,} sites at once would take {votes / 1e9:.2f} GB")
    print(f"the vectors of their texts, which a run keeps, take {vectors / 1e9:.2f} GB")


if __name__ == "__main__":
    sys.exit(main())
