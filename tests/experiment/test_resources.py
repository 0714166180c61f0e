"""What a run declares is found, or said to be missing, side by side; tests/integration has a run with it."""

import json
from dataclasses import asdict

import pytest

from murmura.errors import ModelError
from murmura.experiment.resources import foreseen, supplies
from murmura.resources import Resource
from tests.conftest import make_encoder


@pytest.fixture
def encoder(tokenizer, tmp_path):
    make_encoder(tokenizer).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


def test_a_side_finds_what_it_needs_and_no_more(encoder, tokenizer):
    needed = {"own": Resource("encoder", str(encoder), "site"), "other": Resource("causal", "nobody/none", "server")}
    [found] = supplies(needed, ["site"])
    assert found.option == "own" and found.source == f"folder {encoder}"
    assert found.parameters == sum(p.numel() for p in make_encoder(tokenizer).parameters())
    json.dumps(asdict(found.told()))
    with pytest.raises(ModelError, match=r"^method\.other: "):
        supplies(needed, ["server"])


def test_a_plan_goes_on_without_what_is_out_of_reach(encoder):
    needed = {"own": Resource("encoder", str(encoder), "site"), "other": Resource("causal", "nobody/none", "server")}
    unknown = []
    own, other = foreseen(needed, unknown)
    assert own.parameters and other.parameters is None
    assert len(unknown) == 1 and unknown[0].startswith("method.other: ")


def test_a_folder_without_weights_is_told(encoder):
    for file in encoder.glob("*.safetensors"):
        file.unlink()
    with pytest.raises(ModelError, match=r"^method\.own: .* holds no weights"):
        supplies({"own": Resource("encoder", str(encoder), "both")})


@pytest.mark.parametrize("kind", ["masked", "causal"])
def test_a_language_model_is_of_the_kind_that_is_declared(kind, bert, gpt2, tokenizer, tmp_path):
    other = {"masked": gpt2, "causal": bert}[kind]
    other.save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    needed = {"own": Resource(kind, str(tmp_path / "other"), "both")}
    for find in (supplies, lambda needed: foreseen(needed, [])):
        with pytest.raises(ModelError, match=r"^method\.own: "):
            find(needed)
