"""Pools of a few invented records, with vectors that are nobody's."""

import numpy as np

from murmura.data.records import Instruction
from murmura.data.texts import text_hash
from murmura.retrieval import coverage, search
from murmura.retrieval import pool as pools
from murmura.retrieval.pool import File, Made, Manifest, Pool, Source, write_record


def unit(rows, width, seed=0):
    """Random unit vectors, float32 [rows, width]."""
    return normed(np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32))


def normed(rows):
    """These at unit length, float32."""
    rows = np.asarray(rows, dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def record(domain, number):
    return Instruction(f"explain {domain} number {number}", f"letter {number}" if number % 2 else "", "take a dose")


def devices_asked(monkeypatch):
    """On which devices vectors are compared from now on, as they are asked for."""
    asked, tensor = set(), search.tensor
    for module in (search, coverage):
        monkeypatch.setattr(module, "tensor", lambda array, device: (asked.add(device), tensor(array, device))[1])
    return asked


def make_pool(folder, vectors=None, domains=("code", "math"), fingerprint="f" * 64, records=None):
    """A pool in ``folder``; record i is of domain i modulo the number of domains.

    Args:
        vectors: float32 [n, d]; six random ones if not given.
        records: as many; invented ones if not given.
    """
    vectors = unit(6, 8) if vectors is None else np.asarray(vectors, np.float32)
    of = np.arange(len(vectors)) % len(domains)
    records = records or [record(domains[one], number) for number, one in enumerate(of)]
    lines = [write_record(one) for one in records]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / pools.RECORDS).write_bytes(b"".join(lines))
    hashes = np.frombuffer(b"".join(text_hash(one.question) for one in records), np.uint8).reshape(-1, 32)
    np.save(folder / pools.VECTORS, vectors)
    np.save(folder / pools.HASHES, hashes)
    np.save(folder / pools.DOMAIN, of.astype(np.uint16))
    np.save(folder / pools.STARTS, np.cumsum([0, *map(len, lines)], dtype=np.int64))
    names = (pools.VECTORS, pools.HASHES, pools.DOMAIN, pools.STARTS, pools.RECORDS)
    none = dict.fromkeys(("repeated", "exclusions", "bad"), 0)
    sources = tuple(
        Source(source=f"{name}.jsonl", domain=name, sha256=None, records=int((of == number).sum()), **none)
        for number, name in enumerate(domains)
    )
    manifest = Manifest(
        version=pools.VERSION,
        encoder=Made(name="tiny", fingerprint=fingerprint),
        dimension=vectors.shape[1],
        records=len(vectors),
        domains=domains,
        sources=sources,
        files={one: File.of(folder / one) for one in names},
    )
    (folder / pools.MANIFEST).write_text(manifest.model_dump_json())
    return Pool.open(folder)


class Counting:
    """As much of an encoder as the cache uses, which notes what it was given, in batches of two."""

    def __init__(self, fingerprint="f" * 64, dimension=3, stops_after=None):
        self.fingerprint, self.dimension = fingerprint, dimension
        self.given, self._stops_after = [], stops_after

    def batches(self, texts):
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        for first in range(0, len(order), 2):
            if len(self.given) == self._stops_after:
                raise KeyboardInterrupt
            batch = order[first : first + 2]
            self.given += [texts[index] for index in batch]
            yield batch, np.stack([self.vector(texts[index]) for index in batch])

    def vector(self, text):
        numbers = np.frombuffer(self.fingerprint.encode() + text.encode(), np.uint8)
        found = np.array([numbers.sum(), numbers[-1], len(numbers)][: self.dimension], np.float32)
        return found / np.linalg.norm(found)

    def vectors(self, texts):
        return np.stack([self.vector(text) for text in texts])
