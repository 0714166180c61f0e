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
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import median

import numpy as np
import ways
from shapes import SHAPES, save_random, save_tokenizer, shape
from way_retrieval import RetrievalWork

COMPARISON = ways.Comparison(
    {
        "s": "a full sort for each site",
        "m": "Murmura, search",
        "f": "faiss IndexFlatIP",
        "b": "the search's product alone",
        "p": "one matrix product",
        "c": "Murmura, coverage",
        "l": "sentence-transformers",
        "e": "Murmura, encoding",
    },
    timed="its work",
    pairs=[("m", "s"), ("f", "s"), ("m", "f"), ("m", "b"), ("c", "p"), ("e", "l")],
    # Not faiss, whose float32 products put near ties in another order.
    alike={f"what ({one}) and ({other}) found": (one, other) for one, other in ("ms", "cp", "el")},
    bounds="bpl",
)
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

        def once(way: str) -> ways.Figures:
            several = replace(work, repeats=5 if way in "smfb" else 1)  # what is fast is done several times
            return ways.run("way_retrieval.py", several, folder / way, way, seconds=median)

        status = COMPARISON.run(work, words, options, folder, once)
        if {"s", "f"} <= {*options.ways}:
            print(f"rows of (f) that are (s)'s: {shared(folder):.2%}")
        return status


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    sizes = {"pool": 400_000, "width": 384, "sites": 10, "clusters": 10, "records": 5000, "domain": 20_000}
    parser = ways.plain_parser(__doc__, COMPARISON.names, **sizes, texts=10_000, batch=64)
    parser.add_argument("--encoder", default="minilm", help="an alias, a folder or a Hugging Face id")
    parser.add_argument("--random", choices=SHAPES, help="instead of --encoder, one with random weights")
    parser.add_argument("--folder", help="where the pool is made; on a disk that holds it")
    return ways.parse(parser, COMPARISON.names, arguments)


def the_work(options: argparse.Namespace, folder: Path) -> RetrievalWork:
    draw = np.random.default_rng(0)
    topics = draw.normal(size=(TOPICS, options.width)).astype(np.float32)
    save_pool(folder / "pool.npy", draw, topics, options.pool)
    near = topics[draw.integers(0, TOPICS, (options.sites, options.clusters))]
    points = near + 0.8 * draw.normal(size=near.shape)
    points /= 1.25 * np.linalg.norm(points, axis=2, keepdims=True)  # means of unit vectors are shorter
    sizes = draw.integers(1, 20, points.shape[:2])
    np.savez(folder / "centres.npz", points=points.astype(np.float32), sizes=sizes)
    told = {one.name: getattr(options, one.name, None) for one in fields(RetrievalWork)}
    return RetrievalWork(**told | {"folder": str(folder), "encoder": encoder(options, folder), "dtype": "float32"})


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


def shared(folder: Path) -> float:
    """The share of what faiss found that the sort found too."""
    from safetensors.torch import load_file

    theirs, right = (load_file(folder / way / "found.safetensors")["rows"].numpy() for way in "fs")
    return float(np.mean([np.isin(one, other).mean() for one, other in zip(theirs, right, strict=True)]))


if __name__ == "__main__":
    sys.exit(main())
