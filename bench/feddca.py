"""What FedDCA's server does, against the plain way to do it, each way in a process of its own.

(s) for each site a product with the whole pool, and a full sort of it,
(m) Murmura's search for all sites,
(f) faiss' exact index (IndexFlatIP),
(b) the product of the pool with all sites' centres alone, which bounds how fast exact search can be,
(p) the matrix product of coverage alone,
(c) Murmura's coverage,
(l) sentence-transformers' own loop over texts,
(e) Murmura's encoder.

    python bench/feddca.py                                 the figures of README (ways s m f b p c l e, in turn)
    python bench/feddca.py --ways s,m --pool 2000000       any size
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import ways
from shapes import SHAPES, save_random, save_tokenizer, shape
from way_retrieval import RetrievalWork
from ways import Figures

WAYS = {
    "s": "a full sort for each site",
    "m": "Murmura, search",
    "f": "faiss IndexFlatIP",
    "b": "the search's product alone",
    "p": "one matrix product",
    "c": "Murmura, coverage",
    "l": "sentence-transformers",
    "e": "Murmura, encoding",
}
COMPARED = (("m", "s"), ("f", "s"), ("m", "f"), ("m", "b"), ("c", "p"), ("e", "l"))
BOUNDS = "bpl"  # against which more time is taken, and not less
ALIKE = {"m": "s", "c": "p", "e": "l"}
"""What finds the same; faiss' float32 products put near ties in another order."""
TOPICS = 50  # clusters of the pool's vectors
BLOCK = 50_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if two ways that do the same found different things, else 0."""
    options = parse(arguments)
    options.ways = ways.available(options.ways, "faiss", "f", "faiss", "pip install 'murmura[faiss]'")
    with tempfile.TemporaryDirectory(prefix="bench", dir=options.folder) as temporary:
        folder = Path(temporary)
        work = the_work(options, folder)
        on_disk = (folder / "pool.npy").stat().st_size
        words = (
            f"{options.sites} sites x {options.records:,} records from a pool of {options.pool:,} x {options.width} "
            f"({on_disk / 1e9:.2f} GB), {options.domain:,} rows covered by {options.sites * options.records:,}, "
            f"{options.texts:,} texts for {options.random or options.encoder}, {options.cores} cores"
        )
        medians = ways.take_turns(work, words, options, lambda way: once(work, folder, way), show)
        print_table(medians, options.repeats)
        if {"s", "f"} <= medians.keys():
            print(f"rows of (f) that are (s)'s: {shared(folder):.2%}")
        pairs = {
            f"what ({way}) and ({other}) found": (way, other)
            for way, other in ALIKE.items()
            if {way, other} <= medians.keys()
        }
        return ways.print_differences(folder, pairs, strict=ways.is_exact(work))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ways.plain_parser(
        __doc__, list(WAYS), pool=400_000, width=384, sites=10, clusters=10, records=5000, domain=20_000, texts=10_000,
        batch=64,
    )  # fmt: skip
    parser.add_argument("--encoder", default="minilm", help="an alias, a folder or a Hugging Face id")
    parser.add_argument("--random", choices=SHAPES, help="instead of --encoder, one with random weights")
    parser.add_argument("--folder", help="where the pool is made; on a disk that holds it")
    return ways.parse(parser, list(WAYS), arguments)


def the_work(options: argparse.Namespace, folder: Path) -> RetrievalWork:
    draw = np.random.default_rng(0)
    topics = draw.normal(size=(TOPICS, options.width)).astype(np.float32)
    save_pool(folder / "pool.npy", draw, topics, options.pool)
    near = topics[draw.integers(0, TOPICS, (options.sites, options.clusters))]
    points = near + 0.8 * draw.normal(size=near.shape)
    points /= 1.25 * np.linalg.norm(points, axis=2, keepdims=True)  # means of unit vectors are shorter
    sizes = draw.integers(1, 20, points.shape[:2])
    np.savez(folder / "centres.npz", points=points.astype(np.float32), sizes=sizes)
    return RetrievalWork(
        folder=str(folder), sites=options.sites, clusters=options.clusters, records=options.records,
        domain=options.domain, encoder=encoder(options, folder), texts=options.texts, batch=options.batch, repeats=1,
        cores=options.cores, device=options.device,
    )  # fmt: skip


def save_pool(path: Path, draw: np.random.Generator, topics: np.ndarray, rows: int) -> None:
    """Unit vectors around topics, written a block at a time."""
    vectors = np.lib.format.open_memmap(path, "w+", np.float32, (rows, topics.shape[1]))
    for first in range(0, rows, BLOCK):
        some = topics[draw.integers(0, len(topics), min(BLOCK, rows - first))]
        some = some + draw.normal(size=some.shape).astype(np.float32)
        vectors[first : first + BLOCK] = some / np.linalg.norm(some, axis=1, keepdims=True)
    vectors.flush()


def encoder(options: argparse.Namespace, folder: Path) -> str:
    """Its folder; a random one is made there."""
    if not {"l", "e"} & set(options.ways):
        return ""
    if options.random:
        save_random(folder / "encoder", shape(options.random), "float32")
        save_tokenizer(folder / "encoder")
        return str(folder / "encoder")
    from murmura.models import resolve

    return str(resolve(options.encoder))


def once(work: RetrievalWork, folder: Path, way: str) -> Figures:
    """Run one way; what is fast is done several times, and its seconds are the median of these."""
    several = replace(work, repeats=5 if way in "smfb" else 1)
    figures, seconds = ways.run("way_retrieval.py", several, folder / way, way)
    return replace(figures, seconds=median(seconds))


def show(figures: Figures) -> str:
    return f"{figures.seconds:9.3f} s {figures.memory / 1e9:9.2f} GB"


def shared(folder: Path) -> float:
    """The share of what faiss found that the sort found too."""
    from safetensors.torch import load_file

    theirs, right = (load_file(folder / way / "found.safetensors")["rows"].numpy() for way in "fs")
    return float(np.mean([np.isin(one, other).mean() for one, other in zip(theirs, right, strict=True)]))


def print_table(medians: Mapping[str, Figures], repeats: int) -> None:
    print(f"\n{f'medians of {repeats}':32}{'its work':>12}{'peak memory':>14}")
    for way, found in medians.items():
        print(f"{f'({way}) {WAYS[way]}':32}{found.seconds:10.3f} s{found.memory / 1e9:11.2f} GB")
    for one, other in COMPARED:
        if {one, other} <= medians.keys():
            times = medians[other].seconds / medians[one].seconds
            memory = medians[one].memory / medians[other].memory
            how = f"{1 / times:.2f}x the time" if other in BOUNDS else f"{times:.2f}x faster"
            print(f"({one}) against ({other}){how:>24}{memory:10.2f}x memory")


if __name__ == "__main__":
    sys.exit(main())
