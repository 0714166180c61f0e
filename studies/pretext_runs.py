"""The arms of the study of PrE-Text, what each is run with, and what a pilot chooses for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from murmura import atomic
from murmura.methods.pretext.voting import distances
from murmura.models import load as load_model
from murmura.retrieval.encoder import Encoder
from murmura.runs import RunFolder, read
from runs import read_rows, together, work, write_rows

PILOT_SEED = 100
DELTA = 3e-6
FILES = {
    "finance": "finance_phrasebank.jsonl", "movies": "sentiment_movie_rt.jsonl", "medical": "medical_icliniq.jsonl",
    "code": "code_codealpaca.jsonl", "math": "math_gsm8k_train.jsonl", "general": "general_seed_tasks.jsonl",
}  # fmt: skip
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


@dataclass(frozen=True)
class Scale:
    """What differs between the small study and the full one.

    Attributes:
        private: the sites' domain, a key of ``FILES``; the others are public.
        words: fewest and most words of a text.
        texts: of each site.
        public: texts of each other domain, at most.
        drawn: public texts that public-only is trained on, and that Expand-only has for seeds.
        voting: options of voting.
        samples: expanded texts; ``pilot_samples`` and ``pilot_epochs`` make about as many steps.
        rates: learning rates that the pilot tries.
        clips: clipping norms that it tries for DP-FedAvg, of all parameters.
        dp_rounds: rounds of DP-FedAvg, in each of which every site takes a step on all its texts.
        writing: options of ``[run]``.
    """

    private: str
    words: tuple[int, int]
    sites: int
    texts: int
    public: int
    drawn: int
    heldout: int
    voting: dict[str, Any]
    samples: int
    sample_tokens: int
    epochs: int
    pilot_samples: int
    pilot_epochs: int
    batch: int
    rank: int
    targets: tuple[str, ...]
    max_length: int
    rates: tuple[float, ...]
    clips: tuple[float, ...]
    dp_rounds: int
    writing: dict[str, Any]


SMALL = Scale(
    private="finance", words=(8, 24), sites=200, texts=4, public=250, drawn=512, heldout=200,
    voting={
        "rounds": 6, "population": 64, "text_tokens": 40, "lookahead": 0, "variation": "continue", "change": 1.0,
        "selection": "rank", "survivors": 12,
    },
    samples=512, sample_tokens=40, epochs=1, pilot_samples=160, pilot_epochs=3, batch=8, rank=4,
    targets=tuple(f"{layer}.self_attn.{name}" for layer in range(22, 30) for name in ("q_proj", "v_proj")),
    max_length=64, rates=(3e-4, 1e-3, 3e-3, 1e-2), clips=(0.01, 0.1, 1.0), dp_rounds=2, writing={"decode_rows": 64},
)  # fmt: skip
FULL = Scale(
    private="movies", words=(3, 64), sites=1250, texts=8, public=5000, drawn=20_000, heldout=500,
    voting={
        "rounds": 11, "population": 2048, "text_tokens": 64, "lookahead": 4, "variation": "mask-fill",
        "variation_model": "FacebookAI/roberta-large",
    },
    samples=50_000, sample_tokens=85, epochs=1, pilot_samples=5000, pilot_epochs=10, batch=64, rank=4,
    targets=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), max_length=96,
    rates=(1e-4, 3e-4, 1e-3, 3e-3, 1e-2), clips=(0.03, 0.1, 0.3, 1.0, 3.0), dp_rounds=100,
    writing={"decode_rows": 512},
)  # fmt: skip


@dataclass(frozen=True)
class Study:
    """Where everything is, and how large it is."""

    data: Path
    out: Path
    scale: Scale
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
        parts = {
            "heldout": private[: s.heldout], "private": private[s.heldout : wanted],
            "public": [text for own in texts.values() for text in own[: s.public]],
        }  # fmt: skip
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
        table: dict[str, Any] = {
            "run": {"name": folder.name, "folder": str(folder), "seed": seed, **s.writing},
            "model": {"name": self.model},
            "lora": {"rank": s.rank, "alpha": 2.0 * s.rank, "targets": list(s.targets)},
            "data": {
                "kind": "document", "train": str(place / "private.jsonl"), "heldout": str(place / "heldout.jsonl"),
                "max_length": s.max_length, "opening": "always", "sites": {"by": "partition", "count": s.sites},
            },
            "training": {},
            "evaluation": {"attacks": False},
        }  # fmt: skip
        if averages(arm):
            return joined(table, self._averaging(ARMS[arm], setting, self.merged(seed)))
        if arm != START:
            table["model"]["adapter"] = str(self.start(seed) / "adapter")
        return joined(table, self._on_texts(ARMS[arm], place, setting))

    def _on_texts(self, method: dict[str, Any], place: Path, lr: float) -> dict[str, dict[str, Any]]:
        """Sections of PrE-Text and of what is trained on other texts."""
        s = self.scale
        asked: dict[str, Any] = {
            "name": "pretext", "public": str(place / "public.jsonl"), "public_words": s.words[0] - 1,
            "population": s.drawn, "samples": s.samples, "generator": self.model, "sample_tokens": s.sample_tokens,
            "unfinished": "sentences",  # a pilot trains on these texts as if they were private, and so ended
        }  # fmt: skip
        if method["seeds"] == "voted":
            asked |= {"delta": DELTA} if "epsilon" in method else {}
            asked |= {"variation_model": self.model, "encoder": self.encoder, "texts_per_site": s.texts, **s.voting}
        return {"training": {"batch_size": s.batch, "epochs": s.epochs, "lr": lr}, "method": asked | method}

    def _averaging(self, method: dict[str, Any], clip: float, start: Path) -> dict[str, dict[str, Any]]:
        """Sections of DP-FedAvg. A site's step is longer than any clipping norm, so that this alone is its length."""
        s = self.scale
        return {
            "model": {"name": str(start.resolve()), "trainable": "all"},
            "training": {
                "optimizer": "sgd", "lr": 10.0, "schedule": "constant", "clip": 0.0, "batch_size": s.texts,
                "max_steps": 1,
            },
            "method": {"rounds": s.dp_rounds, "clip_norm": clip, "delta": DELTA, **method},
            "evaluation": {"every": s.dp_rounds},
        }  # fmt: skip

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
        }  # fmt: skip
        work(folder, joined(self.experiment(folder, "private-only", PILOT_SEED, setting), changed))

    def piloted(self, arm: str) -> dict[float, float]:
        """The loss on held-out texts at the end of the pilot's runs, by setting."""
        folders = {one: self.folder(PILOTS[arm], PILOT_SEED, one) for one in self.settings(arm)}
        done = {one: folder for one, folder in folders.items() if RunFolder(folder).is_finished}
        return {one: read(folder).last.values["heldout_loss"] for one, folder in done.items()}

    def setting(self, arm: str) -> float:
        """The one with which the loss was least."""
        losses = self.piloted(arm)
        return min(losses, key=lambda one: losses[one])

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


def tokens(scale: Scale, arm: str) -> dict[str, float]:
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


def pilot_tokens(scale: Scale, arm: str) -> dict[str, float]:
    """The same of an arm's pilot, with all settings."""
    s = scale
    tries = len(s.clips if averages(arm) else s.rates)
    if not expands(arm):
        return {what: tries * count for what, count in tokens(s, arm).items()}
    written = tokens(replace(s, samples=s.pilot_samples), arm)
    text, measured = TOKENS * sum(s.words) / 2, 2 * s.heldout * TOKENS * sum(s.words) / 2
    return {
        "write": written["write"], "read": written["read"] + tries * measured,
        "train": tries * s.pilot_epochs * s.pilot_samples * text,
    }  # fmt: skip


def minutes(asked: dict[str, float]) -> float:
    """What that takes two cores."""
    return sum(count / SPEED[what] for what, count in asked.items()) / 60
