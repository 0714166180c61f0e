"""Tiny models and the data of small runs."""

import pytest

from tests.conftest import make_bert, make_encoder
from tests.methods.pretext import world


@pytest.fixture(scope="session")
def models(tokenizer, tmp_path_factory):
    """A folder with an encoder and a masked model."""
    root = tmp_path_factory.mktemp("models")
    for name, model in {"encoder": make_encoder(tokenizer), "masked": make_bert(tokenizer)}.items():
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    return root


@pytest.fixture
def make(tmp_path, llama_folder, models):
    world.write(tmp_path)

    def build(method=None, **sections):
        return world.made(tmp_path, llama_folder, models, method, **sections)

    return build
