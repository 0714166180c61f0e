"""The arms of the study of PrE-Text, what each is run with, and what a pilot chooses for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import runs
from murmura import atomic
from murmura.methods.pretext.voting import distances
from murmura.models import load as load_model
from murmura.retrieval.encoder import Encoder
from runs import read_rows, together, work, write_rows

PILOT_SEED = 100
DELTA = 3e-6
FILES = {
    "finance": "finance_phrasebank.jsonl",
    "movies": "sentiment_movie_rt.jsonl",
    "medical": "medical_icliniq.jsonl",
    "code": "code_codealpaca.jsonl",
    "math": "math_gsm8k_train.jsonl",
    "general": "general_seed_tasks.jsonl",
}
FIELDS = ("text", "instruction", "input", "output")
ENCODER = "minilm"

ARMS: dict[str, dict[str, Any]] = {
    "public-only": {"seeds": "public", "samples": 0},
    "expand-only": {"seeds": "public"},
    "pretext-1.29": {"seeds": "voted", "epsilon": 1.29},
    "pretext-7.58": {"seeds": "voted", "epsilon": 7.58},
    "pretext-inf": {"seeds": "voted", "noise_multiplier": 0.0},
    "expand-private": {"seeds": "private"},
    "private-only": {"seeds": "private", "samples": 0},
    "dpfedavg-7.58": {"name": "dpfedavg", "epsilon": 7.58},
    "dpfedavg-1.29": {"name": "dpfedavg", "epsilon": 1.29},
}
"""What each arm has in ``[method]``, besides sizes. All but the first begin with the model that it leaves. DP-FedAvg
trains all its parameters (Hou et al. 2024, section 4.1), the others an adapter."""
START, UNNOISED = "public-only", "pretext-inf"
VOTED = tuple(arm for arm, method in ARMS.items() if method.get("seeds") == "voted")
PILOTS = {arm: "pretext-7.58" if arm in VOTED else arm for arm in ARMS}
"""By whose pilot an arm's setting is chosen: its own, but votes at every ε share one."""


SMALL, FULL = runs.scales(
    private=("finance", "movies"),  # the sites' domain, a key of FILES; the others are public
    words=((8, 24), (3, 64)),  # fewest and most of a text
    sites=(200, 1250),
    texts=(4, 8),  # of each site
    public=(250, 5000),  # texts of each other domain, at most
    drawn=(512, 20_000),  # public texts that public-only is trained on, and that Expand-only has for seeds
    heldout=(200, 500),
    voting=(
        {"rounds": 6, "population": 64, "text_tokens": 40, "lookahead": 0, "variation": "continue", "change": 1.0}
        | {"selection": "rank", "survivors": 12},
        {"rounds": 11, "population": 2048, "text_tokens": 64, "lookahead": 4, "variation": "mask-fill"}
        | {"variation_model": "FacebookAI/roberta-large"},
    ),
    samples=(512, 50_000),  # expanded texts; those of the pilot and its epochs make about as many steps
    sample_tokens=(40, 85),
    epochs=(1, 1),
    pilot_samples=(160, 5000),
    pilot_epochs=(3, 10),
    batch=(8, 64),
    rank=(4, 4),
    targets=(runs.above(runs.QUERY_AND_VALUE), runs.EVERY_LAYER),
    max_length=(64, 96),
    rates=((3e-4, 1e-3, 3e-3, 1e-2), (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)),  # that the pilot tries
    clips=((0.01, 0.1, 1.0), (0.03, 0.1, 0.3, 1.0, 3.0)),  # that it tries for DP-FedAvg, of all parameters
    dp_rounds=(2, 100),  # of DP-FedAvg, in each of which every site takes a step on all its texts
    writing=({"decode_rows": 64}, {"decode_rows": 512}),  # options of [run]
)


@dataclass(frozen=True)
class Study:
    """Where everything is, and how large it is."""

    data: Path
    out: Path
    scale: runs.Scale
    model: str
    encoder: str = ENCODER

    def folder(self, arm: str, seed: int, setting: float | None = None) -> Path:
        return self.out / (f"{arm}-seed{seed}" if setting is None else f"pilot-{arm}-{setting:g}-seed{seed}")

    def folders(self, seeds: Sequence[int]) -> dict[str, dict[int, Path]]:
        """Of every arm, the runs with these seeds, whether they are finished or not."""
        return {arm: {seed: self.folder(arm, seed) for seed in seeds} for arm in ARMS}

    def records(self, seed: int) -> Path:
        """The private, held-out and public texts of a seed, made if they are not there.

        Ends the study where the private domain has too few texts.
        """
        place, s = self.out / f"records-seed{seed}", self.scale
        if place.exists():
            return place
        texts = {name: self._texts(self.data / file) for name, file in FILES.items()}
        for name, own in texts.items():
            Random(f"{seed} {name}").shuffle(own)
        private, wanted = texts.pop(s.private), s.heldout + s.sites * s.texts
        if len(private) < wanted:
            raise SystemExit(f"{FILES[s.private]}: {len(private)} different texts are short enough, {wanted} are asked")
        public = [text for own in texts.values() for text in own[: s.public]]
        parts = {"heldout": private[: s.heldout], "private": private[s.heldout : wanted], "public": public}
        with atomic.replacing_folder(place) as folder:
            for name, own in parts.items():
                write_rows(folder / f"{name}.jsonl", ({"text": text} for text in own))
        return place

    def _texts(self, path: Path) -> list[str]:
        """The different texts of a file that are neither too short nor too long, each in one line."""
        low, high = self.scale.words
        fields = (str(row[field]) for row in read_rows(path) for field in FIELDS if row.get(field))
        return list(dict.fromkeys(" ".join(words) for text in fields if low <= len(words := text.split()) <= high))

    def experiment(self, folder: Path, arm: str, seed: int, setting: float) -> dict[str, Any]:
        """The experiment file of one run.

        Args:
            setting: the learning rate; of DP-FedAvg the clipping norm.
        """
        s, place = self.scale, self.records(seed).resolve()
        data = {"kind": "document", "train": str(place / "private.jsonl"), "heldout": str(place / "heldout.jsonl")}
        data |= {"max_length": s.max_length, "opening": "always", "sites": {"by": "partition", "count": s.sites}}
        table = runs.begun(folder, seed, self.model, s.rank, s.targets)
        table |= {"run": table["run"] | s.writing, "data": data, "training": {}, "evaluation": {"attacks": False}}
        if averages(arm):
            return joined(table, self._averaging(ARMS[arm], setting, self.merged(seed)))
        if arm != START:
            table["model"]["adapter"] = str(self.start(seed) / "adapter")
        return joined(table, self._on_texts(ARMS[arm], place, setting))

    def _on_texts(self, method: dict[str, Any], place: Path, lr: float) -> dict[str, dict[str, Any]]:
        """Sections of PrE-Text and of what is trained on other texts."""
        s = self.scale
        asked: dict[str, Any] = {"name": "pretext", "public": str(place / "public.jsonl"), "population": s.drawn}
        asked |= {"public_words": s.words[0] - 1, "samples": s.samples, "sample_tokens": s.sample_tokens}
        # A pilot trains on what is written as if it were private, and so ended.
        asked |= {"generator": self.model, "unfinished": "sentences"}
        if method["seeds"] == "voted":
            asked |= {"delta": DELTA} if "epsilon" in method else {}
            asked |= {"variation_model": self.model, "encoder": self.encoder, "texts_per_site": s.texts, **s.voting}
        return {"training": {"batch_size": s.batch, "epochs": s.epochs, "lr": lr}, "method": asked | method}

    def _averaging(self, method: dict[str, Any], clip: float, start: Path) -> dict[str, dict[str, Any]]:
        """Sections of DP-FedAvg. A site's step is longer than any clipping norm, so that this alone is its length."""
        s, step = self.scale, {"batch_size": self.scale.texts, "max_steps": 1}
        return {
            "model": {"name": str(start.resolve()), "trainable": "all"},
            "training": {"optimizer": "sgd", "lr": 10.0, "schedule": "constant", "clip": 0.0} | step,
            "method": {"rounds": s.dp_rounds, "clip_norm": clip, "delta": DELTA, **method},
            "evaluation": {"every": s.dp_rounds},
        }

    def start(self, seed: int) -> Path:
        """The run whose model other arms begin with."""
        return self.folder(START, seed, self.setting(START) if seed == PILOT_SEED else None)

    def merged(self, seed: int) -> Path:
        """Where that model lies as one, for an arm that trains it whole."""
        return self.out / f"{START}-merged-seed{seed}"

    def merge(self, seed: int) -> None:
        """Make it, of the model and what ``START`` has trained, if it is not there."""
        if self.merged(seed).exists():
            return
        from peft import PeftModel

        loaded = load_model(self.model, "causal", device="cpu")
        whole = PeftModel.from_pretrained(loaded.model, self.start(seed) / "adapter").merge_and_unload()
        with atomic.replacing_folder(self.merged(seed)) as folder:
            whole.save_pretrained(folder)
            loaded.tokenizer.save_pretrained(folder)

    def run(self, arm: str, seed: int) -> None:
        """One run, with the setting that the pilot chose."""
        folder = self.folder(arm, seed)
        work(folder, self.experiment(folder, arm, seed, self.setting(arm)))

    # ---- the pilot ---------------------------------------------------------------------------------------------------

    def settings(self, arm: str) -> tuple[float, ...]:
        """What the pilot tries for an arm."""
        return self.scale.clips if averages(arm) else self.scale.rates

    def pilot(self, arms: Sequence[str], at_once: int) -> None:
        """Run what is missing of the pilots of these arms; first those that others begin with, then what is written."""
        piloted = dict.fromkeys(PILOTS[arm] for arm in arms)
        together([partial(self._try, START, one) for one in self.settings(START)], at_once)
        if any(averages(arm) for arm in piloted):
            self.merge(PILOT_SEED)
        together([partial(self._write, arm) for arm in piloted if expands(arm)], at_once)
        together([partial(self._try, arm, one) for arm in piloted for one in self.settings(arm)], at_once)

    def _write(self, arm: str) -> None:
        """Have an arm write the texts of its pilot, once for all rates, and take no more than a step on them."""
        folder, s = self.folder(arm, PILOT_SEED), self.scale
        table = self.experiment(folder, arm, PILOT_SEED, s.rates[0])
        work(folder, joined(table, {"training": {"max_steps": 1}, "method": {"samples": s.pilot_samples}}))

    def _try(self, arm: str, setting: float) -> None:
        """One run of the pilot. An arm that expands texts is trained on what it has written, as if it were private."""
        folder, s = self.folder(arm, PILOT_SEED, setting), self.scale
        if not expands(arm):
            return work(folder, self.experiment(folder, arm, PILOT_SEED, setting))
        written = self.folder(arm, PILOT_SEED) / "outcomes" / "dataset" / "train.jsonl"
        changed: dict[str, dict[str, Any]] = {
            "data": {"train": str(written.resolve()), "sites": {"by": "partition", "count": 1}},
            "training": {"epochs": s.pilot_epochs},
        }
        work(folder, joined(self.experiment(folder, "private-only", PILOT_SEED, setting), changed))

    def piloted(self, arm: str) -> dict[float, float]:
        """The loss on held-out texts at the end of the pilot's runs, by setting."""
        folders = {one: self.folder(PILOTS[arm], PILOT_SEED, one) for one in self.settings(arm)}
        return runs.ends(folders, "heldout_loss")

    def setting(self, arm: str) -> float:
        """The one with which the loss was least."""
        return runs.least(self.piloted(arm))

    # ---- the runs ----------------------------------------------------------------------------------------------------

    def complete(self, arms: Sequence[str], seed: int, at_once: int) -> None:
        """Run what is missing with a seed."""
        self.run(START, seed)
        if any(averages(arm) for arm in arms):
            self.merge(seed)
        together([partial(self.run, arm, seed) for arm in arms if arm != START], at_once)

    # ---- the same votes by a secure sum ------------------------------------------------------------------------------

    def secured(self, seed: int) -> Path:
        """The folder of the run without noise whose votes are summed securely."""
        return self.folder(f"{UNNOISED}-secure", seed)

    def run_secured(self, seed: int) -> None:
        """Have the votes of the arm without noise summed securely; its texts are not expanded."""
        folder = self.secured(seed)
        table = self.experiment(folder, UNNOISED, seed, self.setting(UNNOISED))
        changed: dict[str, dict[str, Any]] = {
            "method": {"samples": 0},
            "aggregation": {"secure": True},
            "evaluation": {"uploads": 0},
        }
        work(folder, joined(table, changed))

    def summed_alike(self, seed: int) -> list[bool]:
        """Of each round, whether a secure sum gave the same candidates the same votes, to the last bit."""
        runs = [outcome(folder, "evolution.json") for folder in (self.folder(UNNOISED, seed), self.secured(seed))]
        return [one == other for one, other in zip(*runs, strict=True)]

    # ---- how far private texts are from those of a run -------------------------------------------------------------

    def told(self, arm: str, seed: int) -> dict[str, Any]:
        """How far private texts are from the nearest of a run's texts, in the mean: ``rounds``, of each round's
        candidates, and ``texts``, those that it is trained on. Kept beside the run's folder.

        No run with an ε tells this, and nothing of it goes back into one: here all texts are at hand.
        """
        folder = self.folder(arm, seed)
        kept = folder.parent / f"{folder.name}.distances.json"
        if not kept.exists():
            texts = [row["text"] for row in read_rows(folder / "outcomes" / "dataset" / "train.jsonl")]
            found = {"rounds": list(self._by_round(seed, folder)), "texts": self._distance(seed, texts)}
            with atomic.replacing(kept) as file:
                file.write(json.dumps(found).encode())
        told: dict[str, Any] = json.loads(kept.read_text())
        return told

    def _by_round(self, seed: int, folder: Path) -> Iterator[float]:
        for one in outcome(folder, "evolution.json"):
            yield self._distance(seed, one["candidates"])

    def _distance(self, seed: int, texts: Sequence[str]) -> float:
        private = self._private(seed)
        return float(distances(private, self._encoder.embed(list(dict.fromkeys(texts)))).mean())

    def _private(self, seed: int) -> np.ndarray:
        if seed not in self._vectors:
            texts = [row["text"] for row in read_rows(self.records(seed) / "private.jsonl")]
            self._vectors[seed] = self._encoder.embed(texts)
        return self._vectors[seed]

    @cached_property
    def _vectors(self) -> dict[int, np.ndarray]:
        return {}

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.encoder)


def expands(arm: str) -> bool:
    """Whether an arm has a model write texts, to train on them."""
    return "seeds" in ARMS[arm] and ARMS[arm].get("samples") != 0


def averages(arm: str) -> bool:
    """Whether an arm is DP-FedAvg."""
    return ARMS[arm].get("name") == "dpfedavg"


def joined(table: dict[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """An experiment with some options of some sections changed."""
    return table | {name: table.get(name, {}) | options for name, options in sections.items()}


def outcome(folder: Path, name: str) -> list[Any]:
    """A list that a run has left, empty if it leaves none of that name."""
    file = folder / "outcomes" / name
    found: list[Any] = json.loads(file.read_text()) if file.exists() else []
    return found


# ---- what it takes ---------------------------------------------------------------------------------------------------

TOKENS = 1.4  # of a word
SPEED = {"write": 130.0, "read": 400.0, "train": 300.0}
"""Roughly, tokens a second of SmolLM2-135M on two cores that do nothing else."""


def tokens(scale: runs.Scale, arm: str) -> dict[str, float]:
    """About how many tokens an arm writes, reads (prompts, held-out texts) and trains on."""
    s, method = scale, ARMS[arm]
    text = TOKENS * sum(s.words) / 2
    found = {"write": 0.0, "read": 2 * s.heldout * text, "train": 0.0}
    if averages(arm):
        return found | {"train": s.dp_rounds * s.sites * s.texts * text}
    if method["seeds"] == "voted":
        v = s.voting
        varied = v["population"] * ((v["lookahead"] + 1) * v["rounds"] - 1)
        found["write"] += varied * text * v.get("change", 0.5) / 2
        found["read"] += varied * text / 2
    if not expands(arm):
        count = s.sites * s.texts if method["seeds"] == "private" else s.drawn
        return found | {"train": s.epochs * count * text}
    found["write"] += s.samples * min(text, s.sample_tokens)
    found["read"] += s.samples * 3 * (text + 8)
    return found | {"train": s.epochs * s.samples * text}


def pilot_tokens(scale: runs.Scale, arm: str) -> dict[str, float]:
    """The same of an arm's pilot, with all settings."""
    s = scale
    tries = len(s.clips if averages(arm) else s.rates)
    if not expands(arm):
        return {what: tries * count for what, count in tokens(s, arm).items()}
    written = tokens(s.but(samples=s.pilot_samples), arm)
    text, measured = TOKENS * sum(s.words) / 2, 2 * s.heldout * TOKENS * sum(s.words) / 2
    read, trained = written["read"] + tries * measured, tries * s.pilot_epochs * s.pilot_samples * text
    return {"write": written["write"], "read": read, "train": trained}


def minutes(asked: dict[str, float]) -> float:
    """What that takes two cores."""
    return sum(count / SPEED[what] for what, count in asked.items()) / 60
