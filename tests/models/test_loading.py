import importlib.util
import json
import shutil

import pytest
import torch
from transformers import XLMConfig, XLMWithLMHeadModel

from murmura import models
from murmura.errors import ModelError
from murmura.experiment.skeleton import config_and_tokenizer, skeleton_of
from tests.conftest import make_bert, make_llama


def test_the_model_is_frozen_and_in_evaluation_mode(llama_folder):
    loaded = models.load(str(llama_folder), "causal", device="cpu")
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}
    assert loaded.model.config._attn_implementation == "sdpa"
    assert loaded.model.lm_head.weight is loaded.model.model.embed_tokens.weight
    assert loaded.source == f"folder {llama_folder.resolve()}"


def test_the_weights_are_the_folders(llama_folder, tokenizer):
    loaded = models.load(str(llama_folder), "causal", device="cpu")
    ids = loaded.tokenizer("please call the clinic", return_tensors="pt").input_ids
    with torch.no_grad():
        assert torch.equal(loaded.model(ids).logits, make_llama(tokenizer, layers=1)(ids).logits)


def test_a_dtype_that_is_asked_for_is_used(llama_folder):
    assert models.load(str(llama_folder), "causal", "bfloat16", device="cpu").model.dtype == torch.bfloat16


def test_a_masked_model(bert, tokenizer, tmp_path):
    save(tmp_path, bert, tokenizer)
    assert type(models.load(str(tmp_path), "masked", device="cpu").model).__name__ == "BertForMaskedLM"


def test_a_masked_model_is_no_causal_one(tokenizer, tmp_path):
    save(tmp_path, make_bert(tokenizer), tokenizer)
    with pytest.raises(ModelError, match=r"causal language model: it is a masked one \(BertForMaskedLM\)"):
        models.load(str(tmp_path), "causal", device="cpu")


@pytest.mark.parametrize("named", [None, ["BertForPreTraining"], ["BertLMHeadModel"]])
def test_a_model_that_looks_to_both_sides_is_a_masked_one_whatever_its_config_names(tokenizer, tmp_path, named):
    """As some are published. Loaded as a causal one it would read the answer along with the question."""
    save(tmp_path, make_bert(tokenizer), tokenizer)
    config = json.loads((tmp_path / "config.json").read_text()) | {"architectures": named}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert type(models.load(str(tmp_path), "either", device="cpu").model).__name__ == "BertForMaskedLM"
    declared = named[0] if named else "bert"
    with pytest.raises(ModelError, match=rf"causal language model: it is a masked one \({declared}\)"):
        models.load(str(tmp_path), "causal", device="cpu")
    with pytest.raises(ModelError, match=rf"is a masked language model \({declared}\), not a causal one"):
        skeleton_of("it", config_and_tokenizer(str(tmp_path))[0], "causal")


def test_a_model_for_blanks_of_another_kind_is_no_masked_one(tokenizer, tmp_path):
    """XLM is one to transformers; here it would be read as a causal model is."""
    config = XLMConfig(vocab_size=len(tokenizer), emb_dim=32, n_layers=1, n_heads=4)
    save(tmp_path, XLMWithLMHeadModel(config), tokenizer)
    with pytest.raises(ModelError, match="masked language model: it is a XLMWithLMHeadModel"):
        models.load(str(tmp_path), "masked", device="cpu")


def test_a_causal_model_is_no_masked_one(llama_folder):
    with pytest.raises(ModelError, match="cannot be loaded as a masked language model"):
        models.load(str(llama_folder), "masked", device="cpu")


def test_weights_that_would_be_made_up_are_an_error(bert, tokenizer, tmp_path):
    save(tmp_path, bert.bert, tokenizer)
    with pytest.raises(ModelError, match="checkpoint lacks cls"):
        models.load(str(tmp_path), "masked", device="cpu")


def test_a_broken_file_is_an_error_of_ours(llama_folder, tmp_path):
    shutil.copytree(llama_folder, tmp_path / "model")
    with (tmp_path / "model" / "model.safetensors").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ModelError, match="cannot be loaded"):
        models.load(str(tmp_path / "model"), "causal", device="cpu")


def test_whatever_transformers_fails_with_is_an_error_of_ours(llama_folder, tmp_path):
    """A library that is not here, a pointer in the place of a file, a tokenizer of another version."""
    quantised, pointer, odd = (shutil.copytree(llama_folder, tmp_path / name) for name in ("gptq", "lfs", "odd"))
    config = json.loads((quantised / "config.json").read_text())
    (quantised / "config.json").write_text(
        json.dumps(config | {"quantization_config": {"quant_method": "gptq", "bits": 4}})
    )
    (pointer / "model.safetensors").unlink()
    (pointer / "pytorch_model.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    core = json.loads((odd / "tokenizer.json").read_text())
    (odd / "tokenizer.json").write_text(json.dumps(core | {"model": {"type": "of tomorrow"}}))
    for folder in (quantised, pointer, odd):
        with pytest.raises(ModelError, match=r"cannot be loaded as a causal language model: ."):
            models.load(str(folder), "causal", device="cpu")
    with pytest.raises(ModelError, match="config and tokenizer of"):
        config_and_tokenizer(str(odd))


def test_a_missing_pad_token_becomes_the_end_token_and_the_side_stays(llama, tokenizer, tmp_path):
    llama.generation_config.pad_token_id = None
    save(tmp_path, llama, with_tokens(tokenizer, eos_token="<|im_end|>", padding_side="left"))
    loaded = models.load(str(tmp_path), "causal", device="cpu")
    assert loaded.tokenizer.pad_token == loaded.tokenizer.eos_token == "<|im_end|>"
    assert loaded.model.generation_config.pad_token_id is None
    assert loaded.tokenizer.padding_side == "left"


def test_a_model_whose_settings_for_writing_contradict_one_another_is_saved_as_it_came(llama_folder, tmp_path):
    """As some are published: how to sample, and not that they do. Once one is changed, transformers refuses them."""
    told = {"eos_token_id": 2, "temperature": 0.7, "top_p": 0.6}
    (shutil.copytree(llama_folder, tmp_path / "model") / "generation_config.json").write_text(json.dumps(told))
    models.load(str(tmp_path / "model"), "causal", device="cpu").model.save_pretrained(tmp_path / "again")
    assert told.items() <= json.loads((tmp_path / "again" / "generation_config.json").read_text()).items()


def test_a_pad_token_of_its_own_is_kept(llama_folder):
    assert models.load(str(llama_folder), "causal", device="cpu").tokenizer.pad_token == "<|pad|>"


def test_a_tokenizer_that_can_pad_with_nothing_is_an_error(llama, tokenizer, tmp_path):
    save(tmp_path, llama, with_tokens(tokenizer))
    with pytest.raises(ModelError, match="neither a pad nor an end-of-sequence token"):
        models.load(str(tmp_path), "causal", device="cpu")


@pytest.mark.parametrize("device", ["gpu", "meta", "xpu", "cpu:x", ""])
def test_an_unknown_device_is_an_error(llama_folder, device):
    with pytest.raises(ModelError, match=f"'{device}' is no device that models run on. Valid: auto, cpu, cuda"):
        models.load(str(llama_folder), "causal", device=device)


def test_a_missing_device_is_an_error_and_auto_is_then_the_cpu(llama_folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match="sees no CUDA device"):
        models.load(str(llama_folder), "causal", device="cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ModelError, match="sees no MPS device"):
        models.load(str(llama_folder), "causal", device="mps")
    loaded = models.load(str(llama_folder), "causal")
    assert (loaded.model.device.type, loaded.model.dtype) == ("cpu", torch.float32)


def test_a_device_beyond_the_last_is_an_error(llama_folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ModelError, match="sees no CUDA device number 2"):
        models.load(str(llama_folder), "causal", device="cuda:2")


def test_quantization_without_its_library_names_the_extra(llama_folder, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"murmura\[quantization\]"):
        models.load(str(llama_folder), "causal", device="cpu", quantization="int8")


@pytest.mark.parametrize(("kind", "wanted"), [("int8", "load_in_8bit"), ("4bit", "load_in_4bit")])
def test_quantization_is_asked_of_transformers(llama_folder, monkeypatch, kind, wanted):
    from transformers import AutoModelForCausalLM

    def stop(folder, **options):
        raise ValueError([name for name in ("load_in_8bit", "load_in_4bit") if getattr(options[key], name)])

    key = "quantization_config"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", stop)
    with pytest.raises(ModelError, match=wanted):
        models.load(str(llama_folder), "causal", device="cpu", quantization=kind)


def test_it_is_quiet_and_leaves_the_libraries_as_they_were(llama_folder, capfd):
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    models.load(str(llama_folder), "causal", device="cpu")
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def save(folder, model, tokenizer):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def with_tokens(tokenizer, **options):
    """The test tokenizer with these special tokens and no others."""
    return type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, **options)
