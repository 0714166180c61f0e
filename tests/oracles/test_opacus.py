"""Gradients of single examples against Opacus, and against one backward pass for each example."""

from __future__ import annotations

import warnings

import pytest
import torch
from opacus import GradSampleModule
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

from murmura.training.bank import Bank
from murmura.training.batch import collate
from murmura.training.config import LoraSpec
from tests.conftest import make_llama
from tests.training.helpers import CPU, assert_close, hf_batch, items, random_state

SPEC = LoraSpec(rank=4, alpha=8, targets=("q_proj", "v_proj", "down_proj"))
RECORDS = items(8)


@pytest.fixture
def bank(llama):
    bank = Bank(llama, SPEC)
    bank.load([random_state(bank, seed) for seed in (1, 2)])
    return bank


def per_example(bank, slot):
    """The gradient of each record's mean token loss, [8, *shape] by name."""
    ids, labels = collate(RECORDS, CPU)
    with bank.per_example(len(RECORDS), slot) as leaves:
        nll, row = bank.head.token_nll(ids, labels)
        (nll / torch.bincount(row)[row]).sum().backward()
        return {entry.name: leaf.grad for entry, leaf in zip(bank.manifest, leaves, strict=True)}


def test_norms_are_those_of_opacus(bank, tokenizer):
    config = LoraConfig(r=4, lora_alpha=8, target_modules=list(SPEC.targets), task_type="CAUSAL_LM")
    peft = get_peft_model(make_llama(tokenizer), config)
    set_peft_model_state_dict(peft, bank.read(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of hooks on modules whose inputs need no gradient
        opacus = GradSampleModule(peft.train(), loss_reduction="sum")
        batch = hf_batch(RECORDS)
        labels = batch.pop("labels")[:, 1:]
        positions = torch.arange(labels.shape[1] + 1).expand(len(RECORDS), -1)  # it needs every input by row
        logits = opacus(**batch, position_ids=positions).logits[:, :-1]
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        (losses.sum(1) / (labels != -100).sum(1)).sum().backward()
    theirs = {
        name.removeprefix("_module.").replace(".default", ""): parameter.grad_sample
        for name, parameter in opacus.named_parameters()
        if parameter.requires_grad
    }
    ours = per_example(bank, 1)
    assert_close(ours, theirs, atol=1e-6)
    torch.testing.assert_close(norms(ours), norms(theirs), atol=1e-5, rtol=1e-4)
    assert norms(ours).min() > 0.01


@pytest.mark.parametrize("slot", [0, 1])
def test_each_is_what_its_record_gives_alone(bank, slot):
    together = per_example(bank, slot)
    for k, record in enumerate(RECORDS):
        bank.route(torch.tensor([slot]))
        with bank.trainable():
            nll, _ = bank.head.token_nll(*collate([record], CPU))
            nll.mean().backward()
            alone = bank.unpack(bank.grad[slot].clone())
        assert_close({name: gradient[k] for name, gradient in together.items()}, alone, atol=1e-6)


def norms(gradients):
    return torch.cat([gradient.flatten(1) for gradient in gradients.values()], dim=1).norm(dim=1)
