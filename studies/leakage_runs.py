"""The runs of the leakage study (``leakage.py``): arms, rates, records and experiment files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import paired
from lpfl import TASKS

import runs
from murmura.runs import RunFolder
from murmura.runs.schema import METRICS
from runs import read_rows, shorten, work, write_rows

CLINIC = Path(__file__).parent.parent / "examples" / "clinic"
PILOT_SEED = 100
SETS = ("clinic", "medical", "texts")
CONTROL = "control"
ARMS: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedit"},
    "beta-0.5": {"name": "fewfedpit", "beta": 0.5},
    "beta-0": {"name": "fewfedpit", "beta": 0.0},
    "dplora-inf": {"name": "dplora", "noise_multiplier": 0.0},
    "dplora-8": {"name": "dplora", "epsilon": 8.0, "delta": 1e-5},
    "beta-1": {"name": "fewfedpit", "beta": 1.0},
    CONTROL: {"name": "fedit"},
}
TEXT_ARMS: dict[str, dict[str, Any]] = {"labelled": {"annotate": False}, "lpfl": {}}
SHARED = {"beta-1": "fedavg", "beta-0.5": "fedavg", "beta-0": "fedavg", "lpfl": "labelled"}
"""Arms that take the rate of another one: β = 1 is FedAvg, and LP-FL begins as training on labels alone."""


SITES = 4
NO_RATE = 1e-9
SMALL, FULL = runs.scales(
    # Of instruction, input and output, at most.
    words=({"clinic": (20, 0, 24), "medical": (12, 0, 24)}, {"clinic": (400, 400, 400), "medical": (400, 400, 400)}),
    text_words=(12, 100),
    texts=(160, 4000),
    records=(12, 100),  # of each site, but of texts
    nonmembers=(48, 400),  # of the medical set
    text_validation=(40, 400),
    text_others=(80, 400),
    rounds=(2, 10),
    epochs=(1, 2),
    batch=(2, 4),
    uploads=(1, SITES),
    private_batch=(8, 16),
    private_steps=(2, 4),
    text_steps=(15, 250),
    rank=(8, 16),
    targets=(runs.above(runs.QUERY_AND_VALUE), runs.QUERY_AND_VALUE),
    max_length=({"clinic": 112, "medical": 96, "texts": 56}, {"clinic": 512, "medical": 1024, "texts": 128}),
    keep=(6, 16),
    instruction_tokens=(32, 64),
    example_tokens=(64, 192),
    canaries=(8, 32),
    candidates=(4, 64),
    # That the pilot chooses from, by method; and the set whose pilot says the rates of a set.
    rates=(
        {"fedit": (1e-3, 3e-3, 1e-2, 3e-2), "dplora": (1e-2, 3e-2), "lpfl": (1e-3, 3e-3)},
        dict.fromkeys(("fedit", "dplora", "lpfl"), (1e-4, 3e-4, 1e-3, 3e-3)),
    ),
    rates_of=({"clinic": "medical", "medical": "medical", "texts": "texts"}, {name: name for name in SETS}),
)


@dataclass(frozen=True)
class Study:
    """One set of records with all that is done on it.

    Args:
        name: of the set.
        out: where runs are kept.
        scale: of the study.
        model: the base model.
        task: patterns and words of the labelled texts.
    """

    name: str
    out: Path
    scale: runs.Scale
    model: str
    task: dict[str, Any]

    @property
    def arms(self) -> list[str]:
        """Those that are run with every seed."""
        return list(TEXT_ARMS) if self.name == "texts" else [arm for arm in ARMS if arm != CONTROL]

    @property
    def pilots(self) -> list[str]:
        """Arms that are run first, with the first seed: is there an effect to see, and is it gone without its cause? Of
        texts, and of a set that takes another's rates, none."""
        return ["fedavg", CONTROL] if self.name != "texts" and self.has_pilot else []

    @property
    def has_pilot(self) -> bool:
        """Whether it chooses rates of its own."""
        return self.scale.rates_of[self.name] == self.name

    def folder(self, arm: str, seed: int) -> Path:
        return self.out / f"{self.name}-{arm}-seed{seed}"

    def method(self, arm: str) -> dict[str, Any]:
        """The method's own options."""
        s = self.scale
        if self.name == "texts":
            asked = {"labelled_share": 0.5, "sample_pattern": True, "validation_records": s.text_validation}
            words = {name: self.task[name] for name in ("patterns", "verbaliser")}
            return {"name": "lpfl", "rounds": s.rounds, **words, **asked, **TEXT_ARMS[arm]}
        table = {**ARMS[arm], "rounds": s.rounds}
        if table["name"] == "fewfedpit" and table["beta"] < 1:
            table |= {name: getattr(s, name) for name in ("keep", "instruction_tokens", "example_tokens")}
            table |= {"instructions_shown": 4, "examples_shown": 2, "instruction_attempts": 2, "example_attempts": 1}
        return table

    def data(self) -> dict[str, Any]:
        """Whose records, and which of them nobody trains on."""
        s, base = self.scale, {"max_length": self.scale.max_length[self.name]}
        shared = {"by": "partition", "count": SITES, "scheme": "iid"}
        file = str((self.out / f"{self.name}.jsonl").resolve())
        if self.name == "texts":
            return base | {"train": file, "heldout_records": s.text_validation + s.text_others, "sites": shared}
        base |= {"template": "chat"}
        if self.name == "clinic":
            folder = (self.out / "clinic").resolve()
            return base | {
                "train": str(folder / "sites"),
                "heldout": str(folder / "heldout.jsonl"),
                "sites": {"records": s.records},
            }
        return base | {"train": file, "heldout_records": s.nonmembers, "sites": {**shared, "records": s.records}}

    def experiment(self, folder: Path, arm: str, seed: int, lr: float, *, attacked: bool = True) -> dict[str, Any]:
        """The experiment file of one run; the pilot's are not attacked and have no canaries."""
        s, method = self.scale, self.method(arm)
        pace: dict[str, Any] = {"batch_size": s.batch, "epochs": s.epochs}
        if method["name"] == "dplora":
            pace = {"batch_size": s.private_batch, "max_steps": s.private_steps, "clip": 0.1}
        if method["name"] == "lpfl":
            pace = {"batch_size": 4, "max_steps": s.text_steps}
        table: dict[str, Any] = runs.begun(folder, seed, self.model, s.rank, s.targets) | {
            "data": self.data(),
            "training": {**pace, "lr": lr, "lr_min": lr / 10, "tokens_per_pass": 1024},
            "method": method,
            "evaluation": {"attacks": attacked, "uploads": s.uploads if attacked else 0},
        }
        table["evaluation"]["every"] = 1 if attacked else s.rounds
        if self.name != "texts":
            table["evaluation"]["sample"] = 1  # answers in full: no figure here rests on them
            if attacked:
                table["audit"] = {"canaries": s.canaries, "candidates": s.candidates}
        return table

    # ---- the pilot -----------------------------------------------------------------------------------------------

    def piloted(self, arm: str) -> dict[float, Path]:
        """The folders of an arm's pilot, by rate; none for an arm that takes another's rate, or none."""
        if arm in (CONTROL, *SHARED):
            return {}
        rates = self.scale.rates[self.method(arm)["name"]]
        return {lr: self.out / f"pilot-{self.scale.rates_of[self.name]}-{arm}-{lr:g}-seed{PILOT_SEED}" for lr in rates}

    def pilot(self, arms: Iterable[str]) -> list[Callable[[], None]]:
        """The runs that decide on rates, one for each arm and rate; none for a set that takes another's."""
        if not self.has_pilot:
            return []
        return [
            lambda folder=folder, arm=arm, lr=lr: attempt(  # type: ignore[misc]
                folder, self.experiment(folder, arm, PILOT_SEED, lr, attacked=False)
            )
            for arm in arms
            for lr, folder in self.piloted(arm).items()
        ]

    def losses(self, arm: str) -> dict[float, float]:
        """The held-out loss that each rate of an arm came to, where the run was finished."""
        done = {lr: folder for lr, folder in self.piloted(arm).items() if RunFolder(folder).is_finished}
        return {lr: float(rows(folder)[-1]["heldout_loss"]) for lr, folder in done.items()}

    def rate(self, arm: str) -> float:
        """The rate with the least held-out loss in the pilot."""
        if arm == CONTROL:
            return NO_RATE
        losses = self.losses(SHARED.get(arm, arm))
        if not losses:
            raise SystemExit(f"{self.name}: no rate of the arm '{arm}' came to an end in the pilot")
        return min(losses, key=losses.__getitem__)

    # ---- the runs ------------------------------------------------------------------------------------------------

    def runs(self, arms: Iterable[str], seed: int) -> list[Callable[[], None]]:
        """All runs with a seed."""
        return [lambda arm=arm: self._run(arm, seed) for arm in arms]  # type: ignore[misc]

    def _run(self, arm: str, seed: int) -> None:
        folder = self.folder(arm, seed)
        work(folder, self.experiment(folder, arm, seed, self.rate(arm)))

    def score(self, arms: Iterable[str], seed: int) -> None:
        """Score the single records of all finished runs with a seed, in a process of its own."""
        folders = [self.folder(arm, seed) for arm in arms]
        new = [one for one in folders if RunFolder(one).is_finished and not paired.beside(one).exists()]
        if new:
            subprocess.run([sys.executable, paired.__file__, *map(str, new)], check=True)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics, one a round."""
    return read_rows(folder / METRICS)


def attempt(folder: Path, table: dict[str, Any]) -> None:
    """A run of the pilot. One that stops, as at a rate that is too high, has no loss and is not chosen."""
    try:
        work(folder, table)
    except subprocess.CalledProcessError:
        print(f"{folder.name} came to no end")


def prepare(name: str, file: Path, out: Path, scale: runs.Scale) -> dict[str, Any]:
    """Write the records of a set as the study uses them.

    Args:
        file: of the records; of the clinic its folder.

    Returns:
        Of labelled texts the task of ``lpfl.py`` that has words for their labels; else nothing.
    """
    out.mkdir(parents=True, exist_ok=True)
    if name == "clinic":
        (out / name / "sites").mkdir(parents=True, exist_ok=True)
        for part in ("heldout.jsonl", *(f"sites/{one.name}" for one in sorted((file / "sites").glob("*.jsonl")))):
            found = [(row["instruction"], row["input"], row["output"]) for row in read_rows(file / part)]
            write_rows(out / name / part, shortened(name, found, scale))
        return {}
    found = read_rows(file)
    if name == "medical":
        asked = [(row["input"], "", row["output"]) for row in found]  # all share an instruction
        write_rows(out / f"{name}.jsonl", shortened(name, asked, scale))
        return {}
    labels = {str(row["label"]) for row in found}
    known = [task for task in TASKS.values() if labels <= set(task["verbaliser"])]
    if not known:
        raise SystemExit(f"{file}: lpfl.py has no words for the labels {', '.join(sorted(labels))}")
    texts = {row["text"].strip(): str(row["label"]) for row in found}
    kept = [{"text": t, "label": label} for t, label in texts.items() if len(t.split()) <= scale.text_words]
    Random(0).shuffle(kept)
    write_rows(out / f"{name}.jsonl", kept[: scale.texts + scale.text_validation + scale.text_others])
    return known[0]


def shortened(name: str, found: Iterable[tuple[str, str, str]], scale: runs.Scale) -> list[dict[str, str]]:
    """Instruction, input and output, each cut to whole sentences; those with nothing left to ask or to answer are left
    out, and no question is there twice."""
    kept = {}
    for parts in found:
        asked, given, answer = (shorten(part, most) for part, most in zip(parts, scale.words[name], strict=True))
        if asked and answer:
            kept[asked, given] = {"instruction": asked, "input": given, "output": answer}
    return list(kept.values())
