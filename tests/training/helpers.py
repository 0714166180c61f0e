"""Random records, adapters and batches for tests of training."""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

from murmura.privacy.entropy import Entropy
from murmura.training.adapter import MAGNITUDE
from murmura.training.batch import collate

CPU = torch.device("cpu")

ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")]
"""Of tests that `make gpu` runs."""

# AdamW's ε for comparisons. With the usual 1e-8 a first step is the sign of its gradient, also of a gradient of next to
# nothing whose sign is only rounding, and so another one wherever sums are made in another order.
EPS = 1e-3


@dataclass(frozen=True)
class Item:
    ids: list[int]
    labels: list[int]


class Told(Entropy):
    """Draws the noise that it is told to, and nothing else."""

    def __init__(self, *noise):
        self.noise = list(noise)

    def bytes(self, count):
        raise AssertionError("nothing was to be drawn")

    def normal(self, count):
        noise = self.noise.pop(0)
        assert len(noise) == count
        return noise.clone()


def items(count, *, seed=0, vocabulary=250, longest=24):
    """Records of different lengths whose second half is to be predicted."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        ids = [rng.randrange(10, vocabulary) for _ in range(rng.randint(6, longest))]
        half = len(ids) // 2
        made.append(Item(ids, [-100] * half + ids[half:]))
    return made


def cloze_items(count, tokenizer, *, seed=0):
    """Records for a masked model: a few tokens are masked, and to be predicted where they stood."""
    rng = random.Random(seed)
    made = []
    for item in items(count, seed=seed):
        labels = [-100] * len(item.ids)
        ids = list(item.ids)
        for place in rng.sample(range(len(ids)), 3):
            ids[place], labels[place] = tokenizer.mask_token_id, ids[place]
        made.append(Item(ids, labels))
    return made


def items_of(cloze, text):
    """What a cloze makes of one text."""
    return cloze.tokenise_all([text])[0]


def random_state(bank, seed, scale=0.1):
    """An adapter whose B is not zero, so that both factors matter; magnitudes are not far from the weights' own."""
    generator = torch.Generator().manual_seed(seed)
    made = {e.name: torch.randn(e.shape, generator=generator) * scale for e in bank.manifest}
    own = {name: bank.untrained[name] for name in made if name.endswith(MAGNITUDE)}
    return made | {name: magnitudes * (1 + made[name]) for name, magnitudes in own.items()}


def random_residual(bank, seed, rank=3, scale=0.1):
    """A residual for every adapted module of a bank."""
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for entry in (entry for entry in bank.manifest if not entry.name.endswith(MAGNITUDE)):
        shape = (rank, entry.shape[1]) if ".lora_A." in entry.name else (entry.shape[0], rank)
        made[entry.name.replace(".lora_", ".residual_")] = torch.randn(shape, generator=generator) * scale
    return made


def peft_of(model, spec, state=None, *, transposed=False, **more):
    """A model with PEFT's adapter of a spec, which holds a state.

    Args:
        transposed: the model's layers store [in, out], as GPT-2's do.
        more: options of PEFT's that a spec has not.
    """
    lora = {"r": spec.rank, "lora_alpha": spec.alpha, "target_modules": list(spec.targets), "use_rslora": spec.rslora}
    lora |= {"use_dora": spec.dora, "lora_dropout": spec.dropout}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of c_proj being of two kinds
        peft = get_peft_model(model, LoraConfig(**lora, fan_in_fan_out=transposed, **more))
    if state is not None:
        assert not set_peft_model_state_dict(peft, state).unexpected_keys
    return peft


def loss_and_gradients(bank, state, chosen):
    """Of a bank's one slot: the mean loss of the records' tokens, and its gradients by name."""
    bank.load([state])
    bank.route(torch.zeros(len(chosen), dtype=torch.long))
    with bank.trainable():
        nll, _ = bank.head.token_nll(*collate(chosen, bank.device))
        nll.mean().backward()
    return nll.mean().item(), bank.unpack(bank.grad[0])


def gradients(peft):
    """Of PEFT's adapter, by the names that its files have."""
    found = {n: p.grad for n, p in peft.named_parameters() if p.requires_grad}
    return {n.replace("vector.default.weight", "vector").replace(".default", ""): g for n, g in found.items()}


def hf_batch(chosen):
    """What transformers' models take."""
    ids, labels = collate(chosen, CPU)
    return {"input_ids": ids, "attention_mask": (labels != -1).long(), "labels": labels.masked_fill(labels == -1, -100)}


def assert_close(ours, theirs, *, atol=1e-5, rtol=1e-4):
    """Two states are equal up to float rounding."""
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        told = "{}: {}".format  # which tensor it is
        torch.testing.assert_close(ours[name], tensor, atol=atol, rtol=rtol, msg=partial(told, name))


def assert_same(ours, theirs):
    """Two states are equal bit for bit."""
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


def logp(model, item):
    """Of an answer, from all logits, one row at a time."""
    logs = model(input_ids=torch.tensor([item.ids])).logits[0].log_softmax(-1)
    return sum(logs[place - 1, label] for place, label in enumerate(item.labels) if label >= 0)


def margin(model, pair):
    return logp(model, pair.chosen) - logp(model, pair.rejected)
