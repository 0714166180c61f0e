"""Frozen weights of 8 and of 4 bits by bitsandbytes: gradients against PEFT's, training, and writing.

`make quantised` runs these, with bitsandbytes for them alone: PEFT imports it wherever it is, which takes seconds.
"""

import numpy as np
import pytest
from peft import set_peft_model_state_dict

from murmura import models
from murmura.errors import ModelError
from murmura.generation.scoring import SUMS, score
from murmura.generation.writer import complete
from murmura.streams import Stream
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.loop import train
from tests.training.helpers import ON_GPU, gradients, hf_batch, items, loss_and_gradients, peft_of, random_state

pytest.importorskip("bitsandbytes")

WIDE = ("q_proj", "v_proj", "down_proj")
SHARDS = [items(size, seed=size) for size in (7, 2, 5)]


@pytest.fixture(params=["int8", "4bit"])
def quantization(request):
    return request.param


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=ON_GPU)])
def quantised(request, quantization, wide_folder):
    """Loads a model anew, quantised."""
    return lambda: models.load(str(wide_folder), "causal", device=request.param, quantization=quantization)


@pytest.mark.parametrize("dora", [False, True])
def test_gradients_of_a_quantised_model_are_those_of_peft(quantised, dora):
    spec, chosen = LoraSpec(rank=4, alpha=8, targets=WIDE, dora=dora), items(3)
    bank = Bank(quantised().model, spec)
    state = random_state(bank, 1)
    peft = peft_of(quantised().model, spec)
    assert not set_peft_model_state_dict(peft, state).unexpected_keys
    loss = peft(**{name: tensor.to(bank.device) for name, tensor in hf_batch(chosen).items()}).loss
    loss.backward()
    theirs = gradients(peft)
    found, ours = loss_and_gradients(bank, state, chosen)
    assert found == pytest.approx(loss.item(), rel=0.02)
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        apart = (ours[name].cpu() - gradient.cpu()).norm() / gradient.cpu().norm()
        assert apart < (0.1 if bank.device.type == "cuda" else 0.02), (name, float(apart))  # there in bfloat16


def test_a_quantised_model_learns_and_writes(quantised):
    loaded = quantised()
    bank = Bank(loaded.model, LoraSpec(rank=4, alpha=8, targets=WIDE))
    starts = [bank.initial(Stream(k)) for k in range(3)]
    streams = [Stream(0) / f"site-{k}" for k in range(3)]
    found = train(bank, SHARDS, starts, LocalTraining(epochs=20, batch_size=3), 0.01, streams)
    bank.load([result.state for result in found])
    after = [score(SUMS, bank, shard, [k] * len(shard), tokens_per_pass=200) for k, shard in enumerate(SHARDS)]
    bank.load(starts)
    before = [score(SUMS, bank, shard, [k] * len(shard), tokens_per_pass=200) for k, shard in enumerate(SHARDS)]
    for one, other in zip(before, after, strict=True):
        assert np.mean([record.mean for record in other]) < 0.7 * np.mean([record.mean for record in one])
    written = complete(bank, loaded.tokenizer, [[11, 12], [13], [14]], [0, 1, 2], [16] * 3, nonempty=True)
    assert all(text.ids for text in written)


def test_weights_of_four_bits_lie_as_gradients_need_them(quantised, quantization):
    arranged = [getattr(module, "support_avx512bf16_for_cpu", False) for module in quantised().model.modules()]
    assert quantization == "int8" or not any(arranged)


def test_all_parameters_of_a_quantised_model_do_not_train(quantised):
    with pytest.raises(ModelError, match="quantization"):
        Bank(quantised().model, None)
