"""A resident model that is loaded late is the one that would have been loaded at once."""

from __future__ import annotations

import pytest

from murmura import models
from murmura.errors import ModelError
from murmura.experiment.resident import announced, loaded
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


def test_a_model_that_is_nowhere_is_told_at_once(tmp_path, llama_folder):
    with pytest.raises(ModelError, match="there is no model"):
        announced(experiment(tmp_path, llama_folder, model={"name": str(tmp_path / "nothing")}))
