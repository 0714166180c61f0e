"""The bank against PEFT: forward, gradients, twenty training steps, and adapter folders in both directions."""

import copy

import pytest
import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict

from murmura.streams import Stream
from murmura.training.adapter import MAGNITUDE, load_peft, save_peft
from murmura.training.bank import Bank
from murmura.training.batch import collate
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.loop import batches, train
from tests.conftest import make_gpt2, make_llama
from tests.training.helpers import (
    EPS,
    assert_close,
    gradients,
    hf_batch,
    items,
    loss_and_gradients,
    peft_of,
    random_state,
)

TRAINING = LocalTraining(epochs=5, batch_size=4, tokens_per_pass=200, eps=EPS)
LR = 5e-3
CASES = {
    "llama": (make_llama, LoraSpec(rank=4, alpha=8)),
    "llama-rslora": (make_llama, LoraSpec(rank=4, alpha=8, rslora=True, targets=("q_proj", "o_proj", "down_proj"))),
    "gpt2": (make_gpt2, LoraSpec(rank=4, alpha=8, targets=("c_attn", "c_fc"))),
    "llama-dora": (make_llama, LoraSpec(rank=4, alpha=8, dora=True, targets=("q_proj", "o_proj", "down_proj"))),
    "gpt2-dora": (make_gpt2, LoraSpec(rank=4, alpha=8, dora=True, rslora=True, targets=("c_attn", "c_fc"))),
}


@pytest.fixture(params=CASES, ids=list(CASES))
def case(request, tokenizer):
    make, spec = CASES[request.param]
    return Bank(make(tokenizer), spec), peft_of(make(tokenizer), spec, transposed=make is make_gpt2), spec


def test_names_are_those_of_peft(case):
    bank, peft, _ = case
    assert {e.name: e.shape for e in bank.manifest} == {
        name: tuple(t.shape) for name, t in get_peft_model_state_dict(peft).items()
    }


def test_forward_and_gradients(case):
    bank, peft, _ = case
    state = random_state(bank, 1)
    set_peft_model_state_dict(peft, state)
    chosen = items(3)
    loss = peft(**hf_batch(chosen)).loss
    loss.backward()
    expected = gradients(peft)
    found, got = loss_and_gradients(bank, state, chosen)
    assert found == pytest.approx(loss.item(), abs=1e-5)
    assert_close(got, expected, atol=1e-6)


def peft_run(peft, state, shard, stream):
    """Twenty steps the way the Hugging Face Trainer does them."""
    model = copy.deepcopy(peft)
    set_peft_model_state_dict(model, state)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LR, eps=EPS, weight_decay=0.0)
    for chosen in batches(len(shard), TRAINING, stream):
        model(**hf_batch([shard[i] for i in chosen])).loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return get_peft_model_state_dict(model)


SIZES = [("llama", (16,)), *((name, (16, 5, 9, 1, 12)) for name in CASES)]


@pytest.mark.parametrize(("case", "sizes"), SIZES, indirect=["case"], ids=[f"{n}-K={len(k)}" for n, k in SIZES])
def test_training_equals_peft_site_by_site(case, sizes):
    bank, peft, _ = case
    shards = [items(size, seed=k) for k, size in enumerate(sizes)]
    starts = [random_state(bank, 10 + k) for k in range(len(sizes))]
    streams = [Stream(0) / f"site-{k}" for k in range(len(sizes))]
    results = train(bank, shards, starts, TRAINING, LR, streams)
    assert results[0].steps == 20
    for shard, start, stream, result in zip(shards, starts, streams, results, strict=True):
        expected = peft_run(peft, start, shard, stream)
        assert_close(result.state, expected, atol=2e-5)


def test_our_folder_loads_in_peft(case, tmp_path, tokenizer):
    bank, peft, spec = case
    state = random_state(bank, 3)
    save_peft(tmp_path, state, spec, "tiny", fan_in_fan_out=bank.fan_in_fan_out)
    base = peft.unload()
    ids = torch.tensor([[11, 12, 13, 14]])
    bare = base(input_ids=ids).logits
    expected = PeftModel.from_pretrained(base, tmp_path)(input_ids=ids).logits
    assert not torch.allclose(expected, bare, atol=1e-3)
    bank.load([state])
    bank.route(torch.zeros(1, dtype=torch.long))
    torch.testing.assert_close(bank.model(input_ids=ids).logits, expected, atol=1e-5, rtol=1e-4)


def test_peft_folder_loads_in_ours(case, tmp_path):
    bank, peft, spec = case
    set_peft_model_state_dict(peft, random_state(bank, 4))
    peft.save_pretrained(tmp_path)
    state, read = load_peft(tmp_path)
    assert (read.rank, read.scale, read.dora) == (spec.rank, spec.scale, spec.dora)
    ids = torch.tensor([[11, 12, 13, 14]])
    bank.load([state])
    bank.route(torch.zeros(1, dtype=torch.long))
    torch.testing.assert_close(bank.model(input_ids=ids).logits, peft(input_ids=ids).logits, atol=1e-5, rtol=1e-4)


class Drop(torch.nn.Module):
    """Dropout by masks that are drawn as the bank draws them: row by row, from each row's own generator."""

    def __init__(self, rate, lengths):
        super().__init__()
        self.rate, self.lengths = rate, lengths
        self.generators = [torch.Generator().manual_seed(seed) for seed in range(len(lengths))]

    def forward(self, x):
        mask = torch.zeros_like(x)
        for row, (length, generator) in enumerate(zip(self.lengths, self.generators, strict=True)):
            mask[row, :length] = (torch.rand(length, x.shape[-1], generator=generator) < 1 - self.rate).float()
        return x * mask / (1 - self.rate)


@pytest.mark.parametrize("make", [make_llama, make_gpt2])
def test_dropout_with_dora(make, tokenizer):
    spec = LoraSpec(rank=4, alpha=8, dora=True, dropout=0.3, targets=("down_proj" if make is make_llama else "c_fc",))
    bank = Bank(make(tokenizer), spec)
    state, chosen = random_state(bank, 1), items(3)
    peft = peft_of(make(tokenizer), spec, state, transposed=make is make_gpt2)
    drop = Drop(spec.dropout, lengths := [len(item.ids) for item in chosen])
    for module in peft.modules():
        if hasattr(module, "lora_dropout"):
            module.train().lora_dropout["default"] = drop
    loss = peft(**hf_batch(chosen)).loss
    loss.backward()
    expected = gradients(peft)
    bank.load([state])
    bank.route(torch.zeros(3, dtype=torch.long))
    with bank.trainable():
        bank.routing.lengths, bank.routing.generators = lengths, [torch.Generator().manual_seed(k) for k in range(3)]
        nll, _ = bank.head.token_nll(*collate(chosen, bank.device))
        nll.mean().backward()
    assert nll.mean().item() == pytest.approx(loss.item(), abs=1e-5)
    assert_close(bank.unpack(bank.grad[0]), expected, atol=1e-6)


def test_a_bfloat16_base_with_dora(tokenizer):
    """PEFT rounds the first magnitudes to the base's type; here they are float32, so that nothing changes at first."""
    spec = LoraSpec(rank=4, alpha=8, dora=True, targets=("q_proj", "down_proj"))
    bank, exact = (Bank(make_llama(tokenizer).bfloat16().to(kind), spec) for kind in (torch.bfloat16, torch.float32))
    state, ids = random_state(bank, 1, scale=0.3), torch.tensor([[11, 12, 13, 14]])
    peft = peft_of(make_llama(tokenizer).bfloat16(), spec)
    begun = {n: tensor for n, tensor in get_peft_model_state_dict(peft).items() if n.endswith(MAGNITUDE)}
    assert_close({name: bank.untrained[name] for name in begun}, begun, atol=0, rtol=2**-7)
    set_peft_model_state_dict(peft, state)
    for each in (bank, exact):
        each.load([state])
        each.route(torch.zeros(1, dtype=torch.long))
    ours, theirs, whole = (model(input_ids=ids).logits.float() for model in (bank.model, peft, exact.model))
    assert (ours - whole).abs().mean() < 1.2 * (theirs - whole).abs().mean() < 0.01
