"""What a finished run leaves: the texts as a data set, with a card that says how they were made."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmura.methods.pretext.config import PretextConfig
from murmura.methods.pretext.evolution import CANDIDATES, DRAWN, VOTES
from murmura.methods.pretext.expand_and_train import CURVE, SEEDS
from murmura.methods.pretext.popri import PAIRS
from murmura.runs import names
from murmura.runs.card import CARD, TAG
from murmura.runs.names import EXPANDED
from murmura.synthesis.answers import Texts
from murmura.units import bound

if TYPE_CHECKING:
    from murmura.federation.server.rounds import Server

_MEASURED = ("heldout_loss", "heldout_accuracy")


def outcomes(config: PretextConfig, label: str, server: Server, against: str) -> dict[str, Any]:
    """By name in ``outcomes``: ``dataset``, a folder that Hugging Face's ``datasets`` loads; ``evolution.json``, the
    candidates of each round with their noisy votes and how often each was drawn; ``curve.json``, how good the model is
    by the number of texts.

    Args:
        against: whom a guarantee holds against, in words.
    """
    store, last = server.store, server.rows[-1]
    final = {"texts": last.get("trained_texts"), **{key: last[key] for key in _MEASURED if key in last}}

    def dataset(folder: Path) -> None:
        if config.samples:
            texts = Texts(server.file(EXPANDED), config.samples)
            ends = zip(texts, texts.finished.tolist(), strict=True)
            _write(folder / "train.jsonl", ({"text": text, "finished": finished} for text, finished in ends))
            times: Counter[str] = Counter(store[SEEDS])
            _write(folder / "seeds.jsonl", ({"text": text, "times": count} for text, count in times.items()))
        else:
            _write(folder / "train.jsonl", ({"text": text} for text in store[SEEDS]))
        told = card(config, label, last.get("privacy") or {}, len(server.rows) - 2, against)
        (folder / CARD).write_text(told, encoding="utf-8")

    found: dict[str, Any] = {names.DATASET: dataset, names.CURVE: [*store[CURVE], final]}
    if config.seeds == "voted":
        found[names.EVOLUTION] = list(_pairs(store) if config.tunes else _rounds(store))
    return found


def _rounds(store: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for candidates, votes, drawn in zip(store[CANDIDATES], store[VOTES], store[DRAWN], strict=True):
        times = [0] * len(candidates)
        for place in drawn:
            times[place] += 1
        yield {"candidates": candidates, "votes": votes, "drawn": times}


def _pairs(store: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Of each round the preferred texts, each with the one that it was preferred to behind it."""
    for pairs in store[PAIRS]:
        texts = [text for chosen, rejected, _, _ in pairs for text in (chosen, rejected)]
        votes = [votes for _, _, *both in pairs for votes in both]
        yield {"candidates": texts, "votes": votes, "drawn": [1, 0] * len(pairs), "pairs": True}


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def card(config: PretextConfig, label: str, privacy: Mapping[str, Any], rounds: int, against: str) -> str:
    """README.md of the data set: YAML for ``datasets``, and in words what is guaranteed and how it was made.

    Args:
        privacy: of the run's last row.
        rounds: of voting that were run.
        against: whom a guarantee holds against, in words.
    """
    files = {"default": "train.jsonl", **({"seeds": "seeds.jsonl"} if config.samples else {})}
    parts = [
        f"- config_name: {name}\n  data_files:\n  - split: train\n    path: {file}\n" for name, file in files.items()
    ]
    return (
        f"---\ntags:\n- synthetic\n{TAG}\nconfigs:\n{''.join(parts)}---\n\n# Texts made by {label}\n\n"
        f"{_made(config, rounds)}\n\n## What is guaranteed\n\n{_guaranteed(config, privacy, against)}\n"
    )


def _made(config: PretextConfig, rounds: int) -> str:
    """How the texts were made."""
    voted = f"{config.variation}, {config.varying}" if config.seeds == "voted" else ""
    first = {
        "voted": f"In {rounds} rounds sites voted for public texts that are near their private ones (PrE-Text, Hou et "
        f"al. 2024), and the server varied those with the most votes ({voted}). The survivors of all rounds are the "
        "seeds.",
        "public": "The seeds were drawn from public texts; no private text had a part in them.",
        "private": "The seeds are the sites' private texts, in clear.",
        "paraphrased": f"The seeds are paraphrases that {config.paraphraser} made of private texts, at the sites and "
        "under local differential privacy (DP-Prompt, Utpala et al. 2023).",
    }[config.seeds]
    if config.tunes:
        first = (
            f"In {rounds} rounds {config.generator} wrote texts for prompts that show public ones, sites voted for "
            "those that are near their private texts (POPri, Hou et al. 2025), and the server tuned it on which texts "
            "were preferred to which (DPO). The seeds are public texts; no private text was shown to it."
        )
    if not config.samples:
        return f"{first} These texts are the seeds themselves."
    how = f"temperature {config.temperature:g}" + (f", top-p {config.top_p:g}" if config.top_p < 1 else "")
    writer = f"{config.generator}, so tuned," if config.tunes else config.generator
    return (
        f"{first} {writer} wrote the texts, each after three different seeds ({how}). In `seeds.jsonl` "
        "`times` is how often a seed counts. A text that is not `finished` was cut off: no end-of-sequence token "
        "belongs behind it."
    )


def _guaranteed(config: PretextConfig, privacy: Mapping[str, Any], against: str) -> str:
    """What anybody may count on, or that nobody may."""
    if config.seeds == "public":
        return "Nothing needs to be: no private text was read to make these texts."
    if config.seeds == "private":
        return "Nothing. The seeds are private texts as they are. Do not publish this data set."
    if privacy.get("epsilon") is None:
        why = privacy.get("refused") or "the votes were counted without noise"
        return f"Nothing: {why}. What these texts tell of the private ones is not bounded."
    return (
        f"Differential privacy for each {privacy['unit']} with all its texts: ε = {bound(privacy['epsilon'])} at "
        f"δ = {privacy['delta']:g} ({privacy['adjacency']} adjacency, by {privacy['accountant']}). The plan that was "
        f"followed: {privacy['plan']}. It holds for whatever is made from these texts. It does not cover other "
        f"releases of the same sites, and holds against {against}."
        + (f" {privacy['caveat']}" if privacy.get("caveat") else "")
    )
