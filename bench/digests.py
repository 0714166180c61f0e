"""Digests of what tiny runs leave: every method with each engine and each way to aggregate, to the bit.

For a change that must change no number: take the digests before it, compare them after it, on the same machine. What
the operating system would draw follows from a seed here, so that methods whose noise protects are covered too; nothing
that these runs leave is private. digests.toml has the runs.

    python bench/digests.py > before.txt
    python bench/digests.py --compare before.txt --only "dplora/*"
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import socket
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from fnmatch import fnmatch
from functools import partial
from io import StringIO
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}

import numpy as np
from safetensors.numpy import load_file
from shapes import SHAPES, save_random, save_tokenizer

from murmura import Experiment, run  # first: it settles what libraries do, before torch is imported
from murmura.errors import ConfigError
from murmura.experiment import worker
from murmura.federation.engines import process, processes
from murmura.methods import METHODS
from murmura.privacy.entropy import OSEntropy
from murmura.retrieval.build import Origin, build
from murmura.retrieval.encoder import Encoder

RUNS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
RECORDS = {"sites/heart": 5, "sites/kidney": 4, "sites/skin": 3, "heldout": 4, "public": 12}
COST = ("seconds", "at_sites", "wall", "peak_memory")  # of a round; not repeatable


def write(folder: Path) -> None:
    """Models, records of every kind at once, and a pool."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertModel

    save_random(folder / "causal", SHAPES["tiny"], "float32")
    shape = {"vocab_size": SHAPES["tiny"].vocabulary, "hidden_size": 32, "intermediate_size": 64}
    for name, kind in (("encoder", BertModel), ("small", BertModel), ("masked", BertForMaskedLM)):
        torch.manual_seed(0)
        kind(BertConfig(**shape, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(folder / name)
    for name, count in RECORDS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(record(name, k))}\n" for k in range(count)))
    for name in ("causal", "encoder", "small", "masked"):
        save_tokenizer(folder / name, (folder / "public.jsonl").read_text())
    public, encoder = Origin(str(folder / "public.jsonl"), "letters"), Encoder(str(folder / "encoder"), device="cpu")
    build([public], folder / "pool", encoder, cache=folder / "cache")


def record(name: str, k: int) -> dict[str, str]:
    told, label = f"A letter about {name} {k}: it is well.", ("bad", "good")[k % 2]
    return {"instruction": f"Write of {name} {k}.", "output": told, "text": told, "label": label}


def seed(name: str) -> None:
    """Let what the operating system would draw follow from a name, from here on."""
    draws = np.random.default_rng(list(name.encode()))
    OSEntropy.bytes = lambda self, count: draws.bytes(count)


class Forked(process.WorkerProcess):
    """A worker process that is a fork of this one: it starts at once, and what it draws follows from its name."""

    def __init__(self, name: str, threads: int, program: Sequence[str]) -> None:
        self.name, self._status = name, None
        self._pipe, theirs = socket.socketpair()
        self._child = os.fork()
        if not self._child:
            seed(name)
            worker.main(theirs.detach())
            os._exit(0)
        theirs.close()
        self.connection = Connection(os.dup(self._pipe.fileno()))

    @property
    def pid(self) -> int:
        return self._child

    def end(self) -> str:
        self.release()
        if self._status is None:
            self._status = os.waitpid(self._child, 0)[1]
        return f"ended with status {self._status}"


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of tables, of which later ones win option by option."""
    return {name: {k: v for one in tables for k, v in one.get(name, {}).items()} for one in tables for name in one}


def case(name: str) -> dict[str, Any]:
    table = dict(RUNS["case"][name])
    return merged(case(other), table) if (other := table.pop("like", None)) else table


def digests(folder: Path, name: str, only: str, device: str) -> list[str]:
    """The lines of all runs of a case: of what each leaves, and of what it measured."""
    lines, table, place = [], case(name), folder / f"run of {os.getpid()}"
    for engine, aggregation in product(RUNS["engine"], RUNS["aggregation"]):
        label = f"{name} | {engine} | {aggregation}"
        forks = device != "cpu" and engine != "local"  # which a GPU's context survives in no child
        if forks or not fnmatch(label, only) or ("augment" in table and aggregation != "mean"):
            continue
        seed(label)
        try:
            parts = RUNS["every"], RUNS["engine"][engine], RUNS["aggregation"][aggregation], table
            own = {"run": {"folder": str(place)}, "model": {"device": device}}
            with redirect_stderr(StringIO()):  # what a run tells of its rounds
                run(Experiment.of(merged(*parts, own), base=folder))
            lines += [f"{outcome(place)}  {label}", f"{measured(place)}  {label} | metrics"]
        except ConfigError as error:
            lines.append(f"{'refused':64}  {label}")
            print(f"{label}: refused: {error}", file=sys.stderr)
        except Exception:  # an exception that cannot be pickled would stop the pool
            lines.append(f"{'failed':64}  {label}")
            print(f"{label}: {traceback.format_exc()}", file=sys.stderr)
        shutil.rmtree(place, ignore_errors=True)
    return lines


def outcome(folder: Path) -> str:
    """Digest of all tensors and texts that a run leaves."""
    found = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        where = file.relative_to(folder)
        if where.parts[0] not in ("adapter", "model", "sites", "outcomes"):
            continue
        if file.suffix == ".safetensors":
            for key, tensor in sorted(load_file(file).items()):
                found.update(f"{where} {key} {tensor.shape}".encode() + tensor.tobytes())
        elif file.suffix in (".jsonl", ".parquet"):
            found.update(f"{where}".encode() + file.read_bytes())
    return found.hexdigest()


def measured(folder: Path) -> str:
    """Digest of the figures of all rounds."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    figures = [{key: value for key, value in row.items() if key not in COST} for row in rows]
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()


def prepare() -> None:
    """Make a process fit for many runs: it waits for no disk, draws no report, and forks its workers."""
    os.fsync = os.fstat
    sys.modules[run.__module__].build_report = lambda folders, page: None
    processes.WorkerProcess = Forked


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", metavar="PATTERN", help='runs, such as "dplora/* | local | *"')
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier output; fails where this one differs")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    parser.add_argument("--device", default="cpu", help="of models; on another than cpu with engine local alone")
    options = parser.parse_args(arguments)
    if missing := METHODS.keys() - {case(name)["method"]["name"] for name in RUNS["case"]}:
        parser.error(f"digests.toml has no case of {', '.join(sorted(missing))}")
    lines = []
    with tempfile.TemporaryDirectory(prefix="digests") as temporary:
        write(Path(temporary))
        each = partial(digests, Path(temporary), only=options.only, device=options.device)
        start = "fork" if options.device == "cpu" else "spawn"  # a GPU's context survives no fork
        with multiprocessing.get_context(start).Pool(options.processes, prepare) as pool:
            for found in pool.imap(each, RUNS["case"]):
                lines += found
                for line in found:
                    print(line, flush=True)
    if not options.compare:
        return 0
    before = options.compare.read_text().splitlines()
    before = [line for line in before if fnmatch(line[66:].removesuffix(" | metrics"), options.only)]
    different = sorted({line[66:] for line in {*before} ^ {*lines}})
    print(f"{len(lines)} lines, {len(different)} differ", *different, sep="\n", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
