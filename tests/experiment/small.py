"""Small experiments: a tiny model, two sites of unequal size, a few short records."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path

import torch

from murmura import methods
from murmura.data.records import Labelled
from murmura.experiment import Experiment
from murmura.experiment.context import process_context
from murmura.experiment.validate import method_of

WORDS = {"bad": ("tired", "blood", "rash"), "good": ("clinic", "help", "please")}
VERBALISER = {"bad": ("bad", "ill"), "good": ("good", "well")}
SIZES = {"heart": 6, "skin": 3}
HELDOUT = 4
WRITING = {"keep": 1, "instruction_attempts": 1, "example_attempts": 1, "instruction_tokens": 8, "example_tokens": 8}
BASELINES = {"fedavg": "vanilla-fl", "tfedavg": "tfedavg", "cmfl": "cmfl"}
METHODS = {
    "fedavg": {},
    "local": {"name": "local"},
    "fewfedpit": {"name": "fewfedpit", **WRITING},
    "fewfedweight": {"name": "fewfedweight", "answer_tokens": 8, "error_records": 2},
    **{f"dplora {one}": {"name": name} for one, name in BASELINES.items()},
    "dplora": {"name": "dplora", "noise_multiplier": 0.0},
    "dpfedavg": {"name": "dpfedavg", "noise_multiplier": 0.0},
    "dpftrl": {"name": "dpftrl", "noise_multiplier": 0.0},
    "lpfl": {
        "name": "lpfl",
        "several_tokens": "average",
        "labelled_share": 0.5,
        "patterns": ["{text} it was {blank}"],
        "verbaliser": {label: list(words) for label, words in VERBALISER.items()},
    },
}
URGENT = [{"text": f"the patient asks about letter {k}", "label": k % 2} for k in range(6)]
COMMON = {
    "file": "urgent.jsonl",
    "instruction": "is this urgent",
    "options": ["no", "yes"],
    "fields": {"input": "text", "answer": "label"},
}
SUMS = [{"question": f"how many tablets in {k} days", "answer": f"one a day\n#### {k}"} for k in range(1, 6)]
GSM8K = {"file": "sums.jsonl", "fields": {"instruction": "question", "output": "answer"}, "tokens": 4}


ATTACKED, BY_DEFAULT = {"attacks": True}, {"attacks": None}


def record(site, number):
    """A record of about forty tokens, one in two with input; no two are alike."""
    return {
        "instruction": f"explain the {site} result {number}",
        "input": f"the patient asks about letter {number}" if number % 2 else "",
        "output": f"take the {site} dose with letter {number}",
    }


def heldout(number):
    """A record that no site has, with few tokens to its answer: in every round one is written, token by token."""
    return record("kidney", number) | {"output": f"letter {number}"}


ALGORITHMS = {
    "fedavg": {},
    **{name: {"aggregation": {"local": name}} for name in ("fedprox", "scaffold")},
    **{name: {"aggregation": {"server": name}} for name in ("fedavgm", "fedadam", "fedyogi", "fedadagrad")},
    **{name: {"method": {"name": name}} for name in ("centralised", "local")},
}
"""Sections of an experiment, by what papers call it."""


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_data(folder, sizes=SIZES):
    """One file a site in ``folder/sites``, and ``folder/heldout.jsonl``."""
    for site, size in sizes.items():
        write_lines(folder / "sites" / f"{site}.jsonl", [record(site, number) for number in range(size)])
    write_lines(folder / "heldout.jsonl", map(heldout, range(HELDOUT)))


def texts(count, seed):
    """Records whose words tell their label."""
    rng = random.Random(seed)
    rows = []
    for k in range(count):
        label = ("bad", "good")[k % 2]
        rows.append(Labelled(f"case {seed} {k} " + " ".join(rng.choices(WORDS[label], k=4)), label))
    return rows


def write_both(folder):
    """Instructions of three sites, and labelled texts of three more in ``folder/labelled``."""
    write_data(folder, {"heart": 4, "skin": 3, "lung": 2})
    for k in range(3):
        write_lines(folder / "labelled" / f"ward {k}.jsonl", map(asdict, texts(6, k + 1)))
    write_lines(folder / "public.jsonl", map(asdict, texts(6, 9)))


def experiment(folder: Path, llama: Path, /, method=None, **sections) -> Experiment:
    """An experiment on the data in ``folder``, whose run is kept in ``folder/run``; sections are merged.

    Records are not attacked, which takes a quarter of a run, unless a test asks for it: ``evaluation=ATTACKED``, or
    ``BY_DEFAULT`` for what a run does that says nothing of it. Nor are held-out questions answered, for another tenth:
    ``evaluation={"sample": 1}``.
    """
    table = {
        "run": {"name": "small", "folder": str(folder / "run")},
        "model": {"name": str(llama)},
        "lora": {"rank": 2},
        "data": {"train": "sites", "heldout": "heldout.jsonl", "max_length": 128},
        "training": {"lr": 5e-3, "batch_size": 2},
        "evaluation": {"sample": 0, "uploads": 1, "attacks": False},
    }
    for name, options in sections.items():
        table[name] = table.get(name, {}) | options
    return Experiment.of(table | {"method": {"name": "fedit", "rounds": 2} | (method or {})}, base=folder)


def measured_by_default(make):
    """Like ``make`` for experiments, but that they say nothing of attacks."""

    def build(*method, **sections):
        return make(*method, **sections | {"evaluation": BY_DEFAULT | sections.get("evaluation", {})})

    return build


def method_with(method, **aggregation):
    """A method with options of ``[aggregation]``, held to the rules on methods."""
    table = {"data": {"train": "sites", "heldout_records": 1}, "method": method, "aggregation": aggregation}
    return method_of(Experiment.of(table))


def context(asked):
    """Model and reading of an experiment, as in every process of its run."""
    return process_context(asked, methods.build(asked.method, asked.aggregation))


def assert_alike(local, workers):
    """Adapters of two runs, by file: the same but for the order of sums, and something was learnt."""
    assert local and local.keys() == workers.keys()
    for name in local:
        torch.testing.assert_close(workers[name], local[name], rtol=1e-4, atol=1e-6)
    assert any(tensor.abs().max() > 0 for state in local.values() for key, tensor in state.items() if "lora_B" in key)
