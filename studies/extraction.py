"""What models give away of their sites' instructions, by how many public records the sites train on beside their own.

    python studies/extraction.py --private FILE --public DOMAIN=FILE... --out runs/extraction          # two CPU cores
    python studies/extraction.py --private FILE --public DOMAIN=FILE... --out runs/extraction --full   # for a GPU

All are JSONL files of instruction, input and output, ``--private`` of the sites' domain. What is not drawn from it with
the seed, as the sites' own records or to be held out, is public too, with the other files. FedDCA chooses of that for
each site; 0 public records is a run without it. Then an attacker has each site's last upload, and the global model,
write behind what the template has before every instruction, and sees how close each text comes to the nearest of the
site's own instructions (template extraction, FedDCA, Wang et al. 2024, arXiv 2409.20135), beside as many held-out ones.
``--full`` has the paper's numbers of sites, records, rounds and texts.

Runs and audits that are finished are kept, so the command may be stopped and given again. It ends with the table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from coverage_tables import estimate

import runs
from murmura.runs import RunFolder, read
from murmura.runs.audit import TARGETS, Written
from murmura.units import DASH, signed
from runs import build_pool, pipes, read_rows, work, write_rows

TEMPLATE = "template"


SMALL, FULL = runs.scales(
    sites=(4, 10),
    private=(8, 100),  # records of each site
    public=((0, 32, 128), (0, 1000, 2000, 3000, 4000, 5000)),  # records that each site is given, run by run
    heldout=(32, 1000),
    rounds=(3, 10),
    steps=(6, 10),
    batch=(8, 32),
    lr=(3e-3, 3e-4),
    rank=(8, 16),
    targets=(runs.above(runs.QUERY_AND_VALUE), runs.EVERY_LAYER),
    max_length=(128, 1024),
    texts=(32, 100),
)


@dataclass(frozen=True)
class Study:
    """Where everything is, and how large it is."""

    private: Path
    public: tuple[str, ...]
    out: Path
    scale: runs.Scale
    model: str

    def folder(self, public: int, seed: int) -> Path:
        return self.out / f"public{public}-seed{seed}"

    def records(self, seed: int) -> Path:
        """The private and the public records of a seed, made if they are not there."""
        place = self.out / f"records-seed{seed}"
        if (place / "pool" / "pool.json").exists():
            return place
        place.mkdir(parents=True, exist_ok=True)
        rows = read_rows(self.private)
        Random(seed).shuffle(rows)
        heldout, own = rows[: self.scale.heldout], rows[self.scale.heldout :][: self.scale.sites * self.scale.private]
        for name, some in {"heldout": heldout, "private": own, "own": rows}.items():
            write_rows(place / f"{name}.jsonl", some)
        without = ["--without-private", str(place / "private.jsonl"), "--without", str(place / "heldout.jsonl")]
        sources = [f"own={place / 'own.jsonl'}", *self.public]
        build_pool(place / "pool", sources, *without, "--skip-bad")
        return place

    def experiment(self, public: int, seed: int) -> dict[str, Any]:
        """The experiment file of one run."""
        s, place, folder = self.scale, self.records(seed).resolve(), self.folder(public, seed)
        data = {"train": str(place / "private.jsonl"), "heldout": str(place / "heldout.jsonl"), "template": "alpaca"}
        data |= {"max_length": s.max_length, "sites": {"by": "partition", "count": s.sites}, "skip_bad": True}
        table: dict[str, Any] = runs.begun(folder, seed, self.model, s.rank, s.targets) | {
            "data": data,
            "training": {"batch_size": s.batch, "max_steps": s.steps, "lr": s.lr, "lr_min": s.lr / 10},
            "method": {"name": "fedit", "rounds": s.rounds},
            "evaluation": {"every": s.rounds, "sample": 1, "attacks": False},
            "audit": {"keep": True},
        }
        if public:
            table["augment"] = {"pool": str(place / "pool"), "records": public, "domain": "own"}
        return table

    def run(self, public: int, seed: int) -> None:
        """One run, and its audit."""
        folder = self.folder(public, seed)
        if not RunFolder(folder).is_finished:
            work(folder, self.experiment(public, seed))
        if read(folder).audit is None:
            command = [sys.executable, "-m", "murmura", "audit", str(folder), "--texts", str(self.scale.texts)]
            subprocess.run(command, check=True)

    def written(self, target: str, public: int, seeds: Sequence[int]) -> list[Written]:
        """What an audit's template extraction has found of a target, by seed."""
        folders = [self.folder(public, seed) for seed in seeds]
        audits = [read(one).audit for one in folders if RunFolder(one).is_finished]
        every = [one for audit in audits if audit is not None for one in audit.written]
        return [one for one in every if (one.target, one.prompt) == (target, TEMPLATE)]


def table(study: Study, seeds: Sequence[int]) -> str:
    """ROUGE-L of what is written with the nearest instruction: means over the seeds and their standard errors."""
    lines = [["attacked, public records", "runs", "the site's own", "held-out", "difference"]]
    lines.append(["---", *["--:"] * 4])
    for target in ("uploads", "model"):
        for public in study.scale.public:
            found = study.written(target, public, seeds)
            cells = [estimate([getattr(one, name) for one in found]) for name in ("rouge", "others_rouge")]
            cells.append(estimate([one.difference for one in found], lambda value: signed(value, 4)))
            lines.append([f"{TARGETS[target]}, {public:,}", str(len(found)) if found else DASH, *cells])
    return pipes(lines)


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--private", type=Path, required=True, help="records of the sites' domain, a JSONL file")
    parser.add_argument("--public", nargs="+", default=[], metavar="DOMAIN=FILE", help="public records of others")
    parser.add_argument("--out", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--full", action="store_true", help="the full study, for a GPU")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--show", action="store_true", help="run nothing, print the table of what is there")
    parser.add_argument("--model", default="smollm2-135m")
    options = parser.parse_args()
    scale = FULL if options.full else SMALL
    study = Study(options.private, tuple(options.public), options.out, scale, options.model)
    if not options.show:
        for seed in options.seeds:
            for public in scale.public:
                study.run(public, seed)
    print(table(study, options.seeds))


if __name__ == "__main__":
    main()
