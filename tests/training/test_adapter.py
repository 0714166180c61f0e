"""Arithmetic of adapters, and how they are stored."""

import json

import pytest
import torch
from peft import LoraConfig, PeftModel

from murmura.errors import ModelError
from murmura.training.adapter import crop, fold, load_peft, mix, save_peft, subtract, zeros_like
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from tests.conftest import make_llama
from tests.training.helpers import assert_same, peft_of, random_residual, random_state


def pair(seed, rows=6, rank=3, columns=5):
    generator = torch.Generator().manual_seed(seed)
    return {
        "x.lora_A.weight": torch.randn(rank, columns, generator=generator),
        "x.lora_B.weight": torch.randn(rows, rank, generator=generator),
    }


def product(state):
    return state["x.lora_B.weight"] @ state["x.lora_A.weight"]


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.5, 1.0])
def test_the_product_of_a_mix(beta):
    """(βB_l + (1−β)B_s)(βA_l + (1−β)A_s) = βB_lA_l + (1−β)B_sA_s − β(1−β)(B_l−B_s)(A_l−A_s)."""
    local, synthetic = pair(0), pair(1)
    difference = subtract(local, synthetic)
    expected = beta * product(local) + (1 - beta) * product(synthetic) - beta * (1 - beta) * product(difference)
    torch.testing.assert_close(product(mix(beta, local, synthetic)), expected, atol=1e-5, rtol=1e-5)


def test_the_ends_of_a_mix_are_exact():
    first, second = pair(0), pair(1)
    assert_same(mix(1.0, first, second), first)
    assert_same(mix(0.0, first, second), second)
    assert_same(mix(0.3, first, first), first)


def test_adapters_that_do_not_match():
    with pytest.raises(ModelError, match=r"x.lora_B.weight is in one of them only"):
        mix(0.5, pair(0), {"x.lora_A.weight": pair(0)["x.lora_A.weight"]})
    with pytest.raises(ModelError, match=r"has shape \(3, 5\) in one adapter, \(3, 7\) in another"):
        subtract(pair(0), pair(0, columns=7))


def test_zeros():
    assert not any(tensor.any() for tensor in zeros_like(pair(0)).values())


@pytest.mark.parametrize("dora", [False, True])
def test_a_folder_comes_back_as_it_was_saved(llama, tmp_path, dora):
    spec = LoraSpec(rank=4, alpha=6.5, targets=("q_proj", "down_proj"), dropout=0.1, rslora=True, dora=dora)
    state = random_state(Bank(llama, spec), 0)
    save_peft(tmp_path / "deep" / "adapter", state, spec, "tiny")
    back, found = load_peft(tmp_path / "deep" / "adapter")
    assert_same(back, state)
    assert (found.rank, found.alpha, found.dropout, found.rslora, found.dora) == (4, 6.5, 0.1, True, dora)
    assert_same(fold(state, spec)[0], state)
    config = json.loads((tmp_path / "deep" / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "tiny"
    assert "model.layers.0.mlp.down_proj" in config["target_modules"]


def test_whoever_may_read_the_folder_may_read_the_weights(tmp_path):
    save_peft(tmp_path, pair(0), LoraSpec(rank=3), "tiny")
    modes = {(tmp_path / name).stat().st_mode for name in ("adapter_config.json", "adapter_model.safetensors")}
    assert len(modes) == 1


def test_folders_that_hold_no_plain_lora(tmp_path):
    with pytest.raises(ModelError, match=r"no adapter_config.json"):
        load_peft(tmp_path)
    LoraConfig(r=2, target_modules=["q_proj"]).save_pretrained(str(tmp_path))
    with pytest.raises(ModelError, match=r"no adapter_model.safetensors"):
        load_peft(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    in_parts = {"alora_invocation_tokens": [5, 6]}  # on what follows these tokens alone
    for option in {"layer_replication": [(0, 1)]}, {"bias": "all"}, {"rank_pattern": {"q_proj": 1}}, in_parts:
        LoraConfig(r=2, target_modules=["q_proj"], **option).save_pretrained(str(tmp_path))
        with pytest.raises(ModelError, match=f"the adapter uses {next(iter(option))}"):
            load_peft(tmp_path)


@pytest.mark.parametrize("begun", ["pissa", "pissa_niter_4", "OLoRA"])
def test_an_adapter_that_goes_with_other_weights_is_refused(llama, tmp_path, begun):
    """What such an adapter begins with is taken off the model's weights, which would be another model without it."""
    peft_of(llama, LoraSpec(rank=2), init_lora_weights=begun).save_pretrained(str(tmp_path))
    with pytest.raises(ModelError, match=f"began with init_lora_weights = '{begun}', which changes the weights"):
        load_peft(tmp_path)


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("rank", [2, 4])
def test_adapter_and_residual_fold_into_one_plain_adapter(llama, tokenizer, tmp_path, rank, rslora):
    spec = LoraSpec(rank=4, alpha=6, targets=("q_proj", "down_proj"), rslora=rslora)
    bank = Bank(llama, spec)
    state = crop(random_state(bank, 0), rank) | random_residual(bank, 1, rank=3)
    for name in [name for name in state if "residual" in name and "layers.1.mlp" in name]:
        del state[name]  # not every layer need have one
    save_peft(tmp_path, *fold(state, spec), "tiny")
    ids = torch.tensor([[11, 12, 13]])
    bank.load([state])
    bank.route(torch.tensor([0]))
    theirs = PeftModel.from_pretrained(make_llama(tokenizer), tmp_path)(input_ids=ids).logits
    torch.testing.assert_close(bank.model(input_ids=ids).logits, theirs, atol=1e-5, rtol=1e-5)


def test_nothing_to_fold():
    spec = LoraSpec(rank=3)
    state, same = fold(pair(0), spec)
    assert_same(state, pair(0))
    assert same == spec
