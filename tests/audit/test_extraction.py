"""(n, p)-extraction against counting every text that a model can write over a tiny vocabulary."""

import itertools
import math

import numpy as np
import pytest
import torch

from murmura.audit.extraction import GIVEN, WRITTEN, extracted, least_tries, log_probability
from murmura.audit.membership import Readings
from murmura.generation.sampling import Sampling, filtered
from murmura.generation.scoring import CloseScores, closely, score
from murmura.measure.attacks import Passes
from murmura.tasks import DOCUMENT, INSTRUCTION
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from tests.training.helpers import Item, random_state

VOCABULARY, LENGTH = 4, 3


def scores(*drawn):
    values = np.array(drawn, dtype=np.float32)
    return CloseScores(-values, values == 0, values, values, values)


@pytest.fixture
def bank():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        initializer_range=1.0,
    )
    bank = Bank(LlamaForCausalLM(config).eval(), LoraSpec(rank=2, alpha=4, targets=("q_proj",)))
    bank.load([random_state(bank, 0)])
    return bank


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(top_k=2), Sampling(temperature=0.5, top_p=0.8)])
def test_probabilities_are_those_of_every_text_that_can_be_written(bank, sampling):
    """Each text's probability from the pass is that of drawing it token by token, and all of them add up to 1."""
    prompt, texts = [1, 2], list(itertools.product(range(VOCABULARY), repeat=LENGTH))
    items = [Item([*prompt, *text, 0], [-100, -100, *text, 0]) for text in texts]
    found = score(closely(sampling), bank, items, [0] * len(items), tokens_per_pass=64)
    chances = [math.exp(log_probability(INSTRUCTION, one)) for one in found]  # the end token does not count
    assert sum(chances) == pytest.approx(1, abs=1e-4)
    bank.route(torch.tensor([0]))
    for text, chance in zip(texts, chances, strict=True):
        drawn, ids = 1.0, list(prompt)
        for token in text:
            with torch.no_grad():
                logits = bank.model(input_ids=torch.tensor([ids])).logits[0, -1:]
            drawn *= float(filtered(logits, sampling).softmax(-1)[0, token])
            ids.append(token)
        assert chance == pytest.approx(drawn, abs=1e-4)


@pytest.mark.parametrize("q", [0.5, 0.3, 0.01, 1e-9])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_tries_are_the_least_that_are_enough(q, p):
    n = least_tries(math.log(q), p)
    assert -math.expm1(n * math.log1p(-q)) >= p - 1e-12
    assert n == 1 or -math.expm1((n - 1) * math.log1p(-q)) < p


def test_certain_and_impossible_records():
    assert least_tries(0.0, 0.9) == 1 and least_tries(-math.inf, 0.9) == math.inf
    assert least_tries(-2000.0, 0.9) == math.inf
    assert least_tries(-715.0, 0.9) == math.inf  # q is a float, and n is beyond any
    assert least_tries(-700.0, 0.9) == pytest.approx(-math.log(0.1) * math.exp(700.0))
    assert least_tries(math.log(0.75), 0.75) == 1  # a whole number, exactly


def test_of_a_document_the_tokens_behind_its_beginning_count():
    whole = [-1.0] * (GIVEN - 1) + [-2.0] * WRITTEN + [-4.0] * 7
    assert log_probability(DOCUMENT, scores(*whole)) == -2.0 * WRITTEN
    assert log_probability(DOCUMENT, scores(*whole[: GIVEN + WRITTEN - 2])) is None
    assert log_probability(DOCUMENT, scores(*whole[: GIVEN + WRITTEN - 1])) == -2.0 * WRITTEN


def test_shares_of_members_and_others():
    def passes(*logs):
        return [Passes(scores(log, -1.0), scores(log, -1.0)) for log in logs]

    readings = Readings(
        {"a": passes(0.0, math.log(0.1)), "b": passes(-np.inf)},
        [passes(math.log(1e-4)), passes(-np.inf)],
        {"a": 0, "b": 1},
    )
    found = extracted("adapters", INSTRUCTION, readings, Sampling(top_k=40), 0.5)
    assert (found.members, found.others, found.top_k, found.p) == (3, 1, 40, 0.5)
    assert found.tries[:3] == (1, 10, 100)
    assert found.found == pytest.approx([1 / 3] + [2 / 3] * 6)  # seven tries for 0.1
    assert found.others_found == pytest.approx([0] * 4 + [0.5] * 3)  # 6,932 tries for 1e-4, by one model of two
    assert all(low <= share <= high for low, share, high in zip(found.low, found.found, found.high, strict=True))


def test_documents_that_are_too_short_have_nothing_to_extract():
    short = [Passes(scores(-1.0), scores(-1.0))]
    assert extracted("model", DOCUMENT, Readings({"a": short}, [short], {"a": 0}), Sampling(), 0.9) is None
