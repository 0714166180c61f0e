"""Scores of labels against a loop over transformers' own logits, many adapters in one batch."""

import pytest
import torch

from murmura.data.cloze import Cloze
from murmura.generation.cloze import scores
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from tests.conftest import make_bert, make_gpt2, make_llama
from tests.training.helpers import peft_of, random_state

FAMILIES = {
    "llama": (make_llama, ("q_proj", "v_proj", "down_proj")),
    "gpt2": (make_gpt2, ("c_attn", "c_fc")),
    "bert": (make_bert, ("query", "value", "dense")),  # "dense" is in the head too
}
CAUSAL = ("{text} The result, please: {blank}", "Note: {text} This is a note to the {blank}")
MASKED = (*(pattern + "." for pattern in CAUSAL), "It was {blank}. {text}")
VERBALISER = {"skin": ["skin", "rash"], "heart": ["heart", "blood", "breathless"], "other": ["food"]}
LONGEST = 60
TEXTS = ["the rash spreads", "", "short of breath on monday " * 20, "take it with food 🌡", "fever and a rash " * 4]


@pytest.fixture(params=FAMILIES)
def family(request, tokenizer):
    """A bank with three slots, and PEFT's model of each slot."""
    make, targets = FAMILIES[request.param]
    spec = LoraSpec(rank=4, alpha=8, targets=targets)
    bank = Bank(make(tokenizer), spec)
    states = [random_state(bank, seed, scale=0.3) for seed in range(3)]
    bank.load(states)
    transposed = request.param == "gpt2"
    return bank, [peft_of(make(tokenizer), spec, state, transposed=transposed).eval() for state in states]


def cloze_of(bank, tokenizer, reduction="mean"):
    masked = not bank.head.is_decoder
    patterns = MASKED if masked else CAUSAL
    return Cloze(patterns, VERBALISER, tokenizer, LONGEST, masked, reduction, several_tokens="average")


def tokenised(cloze):
    """All items, and a slot for each so that neighbours differ."""
    items = [item for text in cloze.tokenise_all(TEXTS) for item in text]
    assert {len(item.ids) for item in items} > {LONGEST}
    return items, [k % 3 for k in range(len(items))]


def slow_score(model, item, words, tokenizer, reduction):
    """One item through the whole model and the whole head, words of one label added up one by one."""
    if tokenizer.mask_token_id in item.ids:
        [logits] = model(input_ids=torch.tensor([item.ids])).logits[:, item.ids.index(tokenizer.mask_token_id)]
    else:
        [logits] = model(input_ids=torch.tensor([item.ids[:-1]])).logits[:, -1]
    total = 0.0
    for word in words:
        ids = tokenizer(f" {word}")["input_ids"]
        total += sum(logits[token].item() for token in ids) / len(ids)
    return total / len(words) if reduction == "mean" else total


@torch.no_grad()
@pytest.mark.parametrize(("reduction", "tokens"), [("mean", 1), ("mean", 200), ("mean", 10_000), ("sum", 200)])
def test_scores_are_those_of_transformers_own_logits(family, tokenizer, reduction, tokens):
    bank, models = family
    cloze = cloze_of(bank, tokenizer, reduction)
    items, slots = tokenised(cloze)
    found = scores(bank, items, slots, cloze, tokens_per_pass=tokens)
    expected = [
        [slow_score(models[slot], item, words, tokenizer, reduction) for words in VERBALISER.values()]
        for item, slot in zip(items, slots, strict=True)
    ]
    assert (found.dtype, found.shape) == (torch.float32, (len(items), 3))
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-4, rtol=1e-4)
    assert found.std(0).min() > 0.01  # texts, patterns and adapters make a difference


def test_without_adapters(bert, tokenizer):
    bank = Bank(bert, None)
    bank.load([bank.initial(None)])
    cloze = cloze_of(bank, tokenizer)
    items, _ = tokenised(cloze)
    found = scores(bank, items, [0] * len(items), cloze, tokens_per_pass=300)
    own = [[slow_score(bert, item, words, tokenizer, "mean") for words in VERBALISER.values()] for item in items]
    torch.testing.assert_close(found, torch.tensor(own), atol=1e-4, rtol=1e-4)


def test_nothing_to_score(family, tokenizer):
    bank, _ = family
    assert scores(bank, [], [], cloze_of(bank, tokenizer), tokens_per_pass=100).shape == (0, 3)
