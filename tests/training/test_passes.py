"""How many tokens go through a model at once follows from device and model."""

from types import SimpleNamespace

import pytest
import torch

from murmura.streams import Stream
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.loop import train
from murmura.training.passes import tokens_per_pass
from tests.training.helpers import items, random_state


def config(layers, width, inner):
    text = SimpleNamespace(num_hidden_layers=layers, hidden_size=width, intermediate_size=inner)
    return SimpleNamespace(get_text_config=lambda: text)


SMALL, LARGE = config(30, 576, 1536), config(32, 4096, 14336)


def test_what_is_asked_for_is_done():
    assert tokens_per_pass(77, None, "cpu") == 77


def test_a_processor_takes_the_same_whatever_the_model():
    assert tokens_per_pass("auto", SMALL, "cpu") == tokens_per_pass("auto", LARGE, torch.device("cpu")) == 256
    assert [tokens_per_pass("auto", SMALL, "cpu", below) for below in (14, 15, 22)] == [256, 384, 384]


@pytest.mark.parametrize(
    ("model", "memory", "tokens"),
    [
        (SMALL, 2**37, 16_384),
        (LARGE, 2**37, 2**34 // (2 * 32 * (8 * 4096 + 3 * 14336))),
        (config(32, 4096, [14336, 7168] * 16), 2**37, 2**34 // (2 * 32 * (8 * 4096 + 3 * 14336))),  # as Gemma 3n
        (LARGE, 2**30, 256),
    ],
)
def test_on_a_gpu_an_eighth_of_its_memory_is_for_a_pass(monkeypatch, model, memory, tokens):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda place: SimpleNamespace(total_memory=memory))
    assert tokens_per_pass("auto", model, "cuda:1") == tokens


def test_passes_are_as_large_as_said(llama):
    bank, shard, sizes = Bank(llama, LoraSpec()), items(40, longest=40), []
    llama.get_input_embeddings().register_forward_hook(lambda module, given, out: sizes.append(given[0].numel()))
    training = LocalTraining(batch_size=40)
    train(bank, [shard], [random_state(bank, 0)], training, 1e-3, [Stream(0)])
    assert len(sizes) > 1
    assert max(sizes) <= 256
    assert sum(sizes) >= sum(len(item.ids) for item in shard)
