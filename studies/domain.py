"""Training on public records beside a few private ones: none, random ones, direct retrieval, FedDCA.

    python studies/domain.py --data FOLDER --out runs/domain          # two CPU cores, about an hour
    python studies/domain.py --data FOLDER --out runs/domain --full   # for a GPU

FOLDER holds ``finance_phrasebank.jsonl`` (text and label) and ``code_codealpaca.jsonl``, ``math_gsm8k_train.jsonl``,
``medical_icliniq.jsonl`` and ``general_seed_tasks.jsonl`` (instruction, input, output). The sites' domain is finance:
each record asks for the sentiment of a piece of news, as in FedDCA's evaluation; the questions that are measured with
stand in the same template as what is trained on. Private records and those that are
measured on are drawn with the seed; the others are, with the other files, the pool.

First a pilot with a seed of its own chooses a rate for every arm by the loss on held-out records, and shows whether
public records of the right domain help at all: the arm ``domain`` is given random ones of finance alone, so that it has
nothing to find. Then every arm is run with each seed. Runs that are finished are kept, unfinished ones are resumed, so
the command may be stopped and given again. It ends with the tables.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import runs
from murmura.data.records import Labelled
from murmura.measure.benchmarks.config import SentimentConfig
from murmura.measure.benchmarks.sentiment import FPB
from murmura.runs import RunFolder, read
from murmura.units import DASH
from runs import levels, parser, pipes, read_rows, together, work, write_rows

PILOT_SEED = 100
FINANCE = "finance_phrasebank.jsonl"
OTHERS = {"code": "code_codealpaca.jsonl", "math": "math_gsm8k_train.jsonl", "medical": "medical_icliniq.jsonl"}
OTHERS |= {"general": "general_seed_tasks.jsonl"}
ARMS: dict[str, dict[str, Any] | None] = {
    "local": None,
    "random": {"strategy": "random"},
    "direct": {"strategy": "direct"},
    "feddca": {"strategy": "feddca"},
    "feddca-unfiltered": {"strategy": "feddca", "alpha": 0.0},
    "domain": {"strategy": "random"},
}
"""What each arm has in ``[augment]``."""


SMALL, FULL = runs.scales(
    sites=(10, 10),
    private=(5, 50),  # records of each site
    public=(100, 1000),  # records that each site is given
    heldout=(80, 1000),
    rounds=(2, 30),
    sites_per_round=(4, 2),
    steps=(4, 10),
    batch=(4, 32),
    rank=(8, 16),
    targets=(runs.above(runs.QUERY_AND_VALUE), runs.EVERY_LAYER),
    max_length=(112, 512),
    rates=((3e-3, 1e-2), (1e-4, 3e-4, 1e-3)),
)


@dataclass(frozen=True)
class Study:
    """Where everything is, and how large it is."""

    data: Path
    out: Path
    scale: runs.Scale
    model: str

    def folder(self, arm: str, seed: int, lr: float | None = None) -> Path:
        return self.out / (f"{arm}-seed{seed}" if lr is None else f"pilot-{arm}-{lr:g}-seed{seed}")

    def records(self, seed: int) -> Path:
        """The private and the public records of a seed, made if they are not there."""
        place = self.out / f"records-seed{seed}"
        if (place / "pool" / "pool.json").exists() and (place / "finance" / "pool.json").exists():
            return place
        place.mkdir(parents=True, exist_ok=True)
        news = read_rows(self.data / FINANCE)
        Random(seed).shuffle(news)
        heldout, rest = news[: self.scale.heldout], news[self.scale.heldout :]
        write_rows(place / "questions.jsonl", heldout)
        write_rows(place / "heldout.jsonl", map(instruction, heldout))
        write_rows(place / "private.jsonl", map(instruction, rest[: self.scale.sites * self.scale.private]))
        write_rows(place / "finance.jsonl", map(instruction, news))
        others = [f"{name}={self.data / file}" for name, file in OTHERS.items()]
        for pool, sources in {"pool": others, "finance": []}.items():
            build(place / pool, [f"finance={place / 'finance.jsonl'}", *sources], place)
        return place

    def experiment(self, folder: Path, arm: str, seed: int, lr: float) -> dict[str, Any]:
        """The experiment file of one run."""
        s, place = self.scale, self.records(seed).resolve()
        files = {"train": str(place / "private.jsonl"), "heldout": str(place / "heldout.jsonl")}
        sites = {"by": "partition", "count": s.sites}
        table: dict[str, Any] = runs.begun(folder, seed, self.model, s.rank, s.targets) | {
            "data": files | {"template": "alpaca", "max_length": s.max_length, "sites": sites},
            "training": {"batch_size": s.batch, "max_steps": s.steps, "lr": lr, "lr_min": lr / 10},
            "method": {"name": "fedit", "rounds": s.rounds, "sites_per_round": s.sites_per_round},
            "evaluation": {"every": s.rounds, "sample": 1, "attacks": False},
        }
        if seed != PILOT_SEED:  # which goes by the loss alone
            table["evaluation"]["benchmarks"] = {
                "fpb": {"file": str(place / "questions.jsonl"), "tokens": 4, "form": "template"}
            }
        if (options := ARMS[arm]) is not None:
            pool = str(place / ("finance" if arm == "domain" else "pool"))
            table["augment"] = {"pool": pool, "records": s.public, "domain": "finance", **options}
        return table

    def run(self, arm: str, seed: int, lr: float | None = None) -> None:
        """One run: of the pilot with this rate, or with the rate that the pilot chose."""
        folder = self.folder(arm, seed, lr)
        work(folder, self.experiment(folder, arm, seed, self.rate(arm) if lr is None else lr))

    def piloted(self, arm: str) -> dict[float, float]:
        """The loss on held-out records at the end of the pilot's runs, by rate."""
        folders = {lr: self.folder(arm, PILOT_SEED, lr) for lr in self.scale.rates}
        return runs.ends(folders, "heldout_loss")

    def rate(self, arm: str) -> float:
        """The rate with which an arm's loss was least."""
        return runs.least(self.piloted(arm))


def instruction(row: dict[str, Any]) -> dict[str, str]:
    """News and their sentiment as FedDCA's evaluation asks for it."""
    asked = FPB(SentimentConfig(file="")).instruction(Labelled(row["text"], row["label"]))
    return {"instruction": asked.instruction, "input": asked.input, "output": row["label"]}


def build(pool: Path, sources: Sequence[str], place: Path) -> None:
    """A pool without what is private or measured on, so that no site is given another's records."""
    without = ["--without-private", str(place / "private.jsonl"), "--without", str(place / "heldout.jsonl")]
    command = [sys.executable, "-m", "murmura", "pool", "build", *sources, "--out", str(pool), *without]
    subprocess.run([*command, "--skip-bad", "--overwrite"], check=True)


def rates_table(study: Study) -> str:
    """What the pilot found: the loss by rate, the chosen one marked."""
    lines = [["Pilot: held-out loss by rate", *(f"{lr:g}" for lr in study.scale.rates)]]
    lines.append(["---", *["--:"] * len(study.scale.rates)])
    for arm in ARMS:
        if losses := study.piloted(arm):
            marked = {lr: f"{loss:.3f}" + (" *" if lr == study.rate(arm) else "") for lr, loss in losses.items()}
            lines.append([arm, *(marked.get(lr, DASH) for lr in study.scale.rates)])
    return pipes(lines)


def fetched_table(study: Study, seeds: Iterable[int]) -> str:
    """What sites were given, by domain, and how similar it is to what it was asked for by."""
    lines = [["Fetched", "Seed", "Rows", "By domain", "Mean score"], ["---", "--:", "--:", "---", "--:"]]
    for arm, seed in product(ARMS, seeds):
        folder = study.folder(arm, seed)
        for one in read(folder).augment[:1] if RunFolder(folder).is_finished else ():
            domains = ", ".join(f"{name} {count}" for name, count in one.by_domain.items())
            mean = one.mean_similarity
            lines.append([arm, str(seed), str(one.rows), domains, DASH if mean is None else f"{mean:.3f}"])
    return pipes(lines)


def main() -> None:
    """Run what is missing, then print the tables."""
    options = parser(__doc__, ARMS).parse_args()
    study = Study(options.data, options.out, FULL if options.full else SMALL, options.model)
    if not options.show:
        for seed in [PILOT_SEED, *options.seeds]:
            study.records(seed)
        rates = [(arm, lr) for arm in options.arms for lr in study.scale.rates]
        together([partial(study.run, arm, PILOT_SEED, lr) for arm, lr in rates], options.at_once)
        print(rates_table(study))
        for seed in options.seeds:
            together([partial(study.run, arm, seed) for arm in options.arms], options.at_once)
    folders = {arm: {seed: study.folder(arm, seed) for seed in options.seeds} for arm in ARMS}
    found = [levels(folders, options.seeds, key, "local") for key in ("fpb", "fpb_parsed", "heldout_loss")]
    text = "\n".join([*found, rates_table(study), fetched_table(study, options.seeds)])
    print(text)
    if options.table is not None:
        options.table.write_text(text)


if __name__ == "__main__":
    main()
