"""What a run leaves of a model can be used by somebody who has the folder, and no network."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from murmura import models
from murmura.data.records import Instruction
from murmura.data.templates import template
from murmura.experiment.card import made_by
from murmura.experiment.run import run
from murmura.methods import build
from murmura.models.wheel import place_of
from tests.experiment.small import write_lines

QUIET = {"evaluation": {"attacks": False, "sample": 1}, "training": {"max_steps": 1}}


@pytest.fixture
def cached(llama_folder, tmp_path, monkeypatch, no_page):
    """A model that Murmura's cache has under a short name, and no hub."""
    monkeypatch.setenv("MURMURA_CACHE", str(tmp_path / "cache"))
    place = place_of("smollm2-135m", models.ALIASES["smollm2-135m"].wheel)
    shutil.copytree(llama_folder, place)
    return {"name": "smollm2-135m"}


def python(text):
    """The Python in a page of Markdown."""
    return "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


def card(folder):
    return (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["alpaca", "chat"])
def test_the_snippet_of_the_card_asks_the_trained_model_as_it_was_trained(make, cached, name, monkeypatch):
    result = run(make({"rounds": 1}, model=cached, data={"template": name}, training={"max_steps": 1, "lr": 0.5}))
    monkeypatch.chdir(result.folder / "adapter")
    found: dict = {}
    exec(python(card(Path())), found)
    asked = found["asked"][0]["content"]
    prompt = found["tokenizer"].decode(found["prompt"]["input_ids"][0])
    assert prompt == template(name, found["tokenizer"]).prompt(Instruction(asked))
    with torch.no_grad(), found["model"].disable_adapter():
        plain = found["model"](**found["prompt"]).logits
    assert not torch.allclose(plain, found["model"](**found["prompt"]).logits)


def test_documents_are_continued_and_not_asked(make, cached, monkeypatch, tmp_path):
    for name, text in (("notes.jsonl", "take the dose daily"), ("others.jsonl", "please call the clinic")):
        write_lines(tmp_path / name, [{"text": text}])
    sites = {"by": "partition", "count": 1}
    data = {"kind": "document", "train": "notes.jsonl", "heldout": "others.jsonl", "sites": sites}
    quiet = {"training": {"max_steps": 1}, "evaluation": {"attacks": False, "sample": 16}}
    monkeypatch.chdir(run(make({"rounds": 1}, model=cached, data=data, **quiet)).folder / "adapter")
    found: dict = {}
    exec(python(card(Path())), found)
    assert found["tokenizer"].chat_template is None and "asked" not in found


def test_a_model_that_was_trained_whole_stands_alone_too(make, cached, monkeypatch):
    monkeypatch.chdir(run(make({"rounds": 1}, model=cached | {"trainable": "all"}, **QUIET)).folder / "model")
    found: dict = {}
    exec(python(card(Path())), found)
    assert "resolve" not in found
    assert found["prompt"]["input_ids"].shape[1] > 20 and "### Instruction:" in found["tokenizer"].chat_template


def test_a_site_finds_all_of_it_beside_its_own_adapter(make, cached):
    folder = run(make({"name": "local", "rounds": 1}, model=cached, **QUIET)).folder / "sites" / "heart"
    assert AutoTokenizer.from_pretrained(folder).chat_template
    assert "Nothing. This adapter is one site's own" in card(folder)
    base = AutoModelForCausalLM.from_pretrained(models.resolve("smollm2-135m"))
    assert base.config.vocab_size == len(AutoTokenizer.from_pretrained(folder))


def test_the_card_says_what_is_guaranteed_and_of_what(make):
    experiment = make({"name": "dplora", "noise_multiplier": 1.0})
    method = build(experiment.method, experiment.aggregation)
    told = {"epsilon": 3.99991, "delta": 1e-5, "unit": "record", "adjacency": "zero-out", "caveat": "But."}
    words = made_by(experiment, method, [{"round": 2, "privacy": told}])
    assert "for each record: ε = 4.000 at δ = 1e-05 (zero-out adjacency)" in words and words.endswith("holds. But.")
    refused = made_by(experiment, method, [{"round": 1, "privacy": {"epsilon": None, "refused": "a batch was larger"}}])
    assert "1 round," in refused and "Nothing: a batch was larger. What the model tells" in refused
    assert "Nothing. What the model tells" in made_by(experiment, method, [{"round": 1}])
    quantised = make(model={"quantization": "int8", "adapter": "another"})
    words = made_by(quantised, method, [{"round": 1}])
    assert "quantised (int8)" in words and "began with another adapter" in words
