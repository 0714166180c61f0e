"""Greedy decoding against transformers' own, and what ends a continuation."""

from __future__ import annotations

import inspect
import random

import pytest
import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

from murmura.generation.local import complete, end_tokens
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from tests.conftest import make_gpt2, make_llama
from tests.training.helpers import random_state

LIMIT = 12
SLOTS = [0, 1, 2, 1, 0, 2]
FAMILIES = {
    "llama": (make_llama, LoraSpec(rank=4, alpha=8, targets=("q_proj", "v_proj", "down_proj"))),
    "gpt2": (make_gpt2, LoraSpec(rank=4, alpha=8, targets=("c_attn", "c_fc"))),
}


def restless(model):
    """Larger weights, so that an untrained model does not write one token for ever."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    return model


def prompts_of_different_lengths():
    rng = random.Random(0)
    return [[rng.randrange(10, 250) for _ in range(length)] for length in (3, 17, 8, 1, 11, 5)]


PROMPTS = prompts_of_different_lengths()


@pytest.fixture(params=FAMILIES)
def family(request, tokenizer):
    """A bank with three slots, and PEFT's model of each slot."""
    make, spec = FAMILIES[request.param]
    bank = Bank(restless(make(tokenizer)), spec)
    states = [random_state(bank, seed, scale=0.2) for seed in range(3)]
    bank.load(states)
    config = LoraConfig(
        r=4, lora_alpha=8, target_modules=list(spec.targets), fan_in_fan_out=request.param == "gpt2",
        task_type="CAUSAL_LM",
    )  # fmt: skip
    models = [get_peft_model(restless(make(tokenizer)), config) for _ in states]
    for model, state in zip(models, states, strict=True):
        set_peft_model_state_dict(model, state)
    return bank, models


@pytest.fixture
def bank(tokenizer):
    bank = Bank(restless(make_llama(tokenizer)), FAMILIES["llama"][1])
    bank.load([random_state(bank, seed, scale=0.2) for seed in range(3)])
    return bank


def generate(model, prompts, ends, pad):
    """What transformers writes for left-padded prompts, without the end and what follows it."""
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    out = model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=LIMIT, do_sample=False, eos_token_id=ends, pad_token_id=pad
    )
    found = []
    for row in out[:, width:].tolist():
        stops = [place for place, token in enumerate(row) if token in ends]
        found.append((row[: stops[0]], True) if stops else (row, False))
    return found


@pytest.mark.parametrize("ends", [0, 2])
def test_token_for_token_what_transformers_writes(family, tokenizer, ends):
    bank, models = family
    free = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6)
    assert len({tuple(text.ids) for text in free}) == 6
    # Two tokens that the models do write become ends, each of another row.
    named = [free[1].ids[4], free[4].ids[7]][:ends]
    bank.model.generation_config.eos_token_id = named or None
    ends = end_tokens(bank.model, tokenizer)
    assert ends == {tokenizer.eos_token_id, *named}
    ours = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6)
    if named:
        assert {text.finished for text in ours} == {True, False}
    for slot, model in enumerate(models):
        rows = [row for row, other in enumerate(SLOTS) if other == slot]
        theirs = generate(model, [PROMPTS[row] for row in rows], sorted(ends), tokenizer.pad_token_id)
        assert [(ours[row].ids, ours[row].finished) for row in rows] == theirs
    assert [text.text for text in ours] == [tokenizer.decode(text.ids, skip_special_tokens=True) for text in ours]


def test_limits_are_each_rows_own(bank, tokenizer):
    full = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6)
    limits = [3, 0, 12, 1, 7, 5]
    cut = complete(bank, tokenizer, PROMPTS, SLOTS, limits)
    assert [text.ids for text in cut] == [text.ids[:limit] for text, limit in zip(full, limits, strict=True)]
    assert not any(text.finished for text in cut)
    assert cut[1].text == ""


def test_nothing_to_write(bank, tokenizer):
    assert complete(bank, tokenizer, [], [], []) == []
    assert [text.ids for text in complete(bank, tokenizer, PROMPTS[:2], [0, 1], [0, 0])] == [[], []]


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_how_many_are_written_at_once_changes_nothing(bank, tokenizer, rows):
    limits = [3, 9, 12, 1, 7, 5]
    together = complete(bank, tokenizer, PROMPTS, SLOTS, limits)
    assert complete(bank, tokenizer, PROMPTS, SLOTS, limits, rows=rows) == together


def test_a_finished_row_leaves_the_batch(bank, tokenizer, monkeypatch):
    sizes = []
    forward = bank.model.forward

    def counting(input_ids, **options):
        sizes.append(len(input_ids))
        return forward(input_ids=input_ids, **options)

    counting.__signature__ = inspect.signature(forward)
    monkeypatch.setattr(bank.model, "forward", counting)
    complete(bank, tokenizer, PROMPTS, SLOTS, [1, 2, 2, 4, 4, 4])
    assert sizes == [6, 5, 3, 3]


def test_a_stop_string_ends_the_text_before_it(bank, tokenizer):
    free = complete(bank, tokenizer, PROMPTS, SLOTS, [40] * 6)
    stop = free[2].text[10:14]
    found = complete(bank, tokenizer, PROMPTS, SLOTS, [40] * 6, stop=[stop, "never written"])
    for text, whole in zip(found, free, strict=True):
        head, written, _ = whole.text.partition(stop)
        assert text.text == head
        assert text.finished == bool(written)
        assert text.ids == whole.ids[: len(text.ids)]
    assert len(found[2].ids) < 40
    assert stop in tokenizer.decode(found[2].ids)
    assert stop not in tokenizer.decode(found[2].ids[:-1])  # not a token more than needed


def test_a_long_stop_string_is_seen(bank, tokenizer):
    free = complete(bank, tokenizer, PROMPTS[:1], [0], [60])[0]
    stop = tokenizer.decode(free.ids[5:45])
    found = complete(bank, tokenizer, PROMPTS[:1], [0], [60], stop=[stop])[0]
    assert found.finished
    assert len(found.ids) <= 45
    assert found.text == free.text[: free.text.index(stop)]


def test_a_text_that_gets_nowhere_is_cut_off(bank, tokenizer):
    free = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6)
    found = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6, halt=lambda text: len(text) >= 10)
    for text, whole in zip(found, free, strict=True):
        assert not text.finished
        assert text.ids == whole.ids[: len(text.ids)]
        assert len(text.ids) == LIMIT or len(text.text) >= 10
    assert any(len(text.ids) < LIMIT for text in found)


def test_no_gradient_is_kept(bank, tokenizer):
    with bank.trainable():
        complete(bank, tokenizer, PROMPTS[:2], [0, 1], [2, 2])
        assert not bank.grad.any()
