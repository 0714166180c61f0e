"""Filters against transformers' own, and what is drawn against the distribution spelt out."""

import math

import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from murmura.errors import ConfigError
from murmura.generation import sampling
from murmura.generation.sampling import Sampling, choose, filtered

LOGITS = torch.randn(5, 40, generator=torch.Generator().manual_seed(0)) * 3
SETTINGS = [
    Sampling(0.7),
    Sampling(1.3, top_k=7),
    Sampling(1.0, top_p=0.6),
    Sampling(0.8, 0.9, 12),
    Sampling(5.0, 0.05),
]


def warped(logits, how):
    """What transformers' generate draws from."""
    warpers = [TemperatureLogitsWarper(how.temperature)]
    warpers += [TopKLogitsWarper(how.top_k)] if how.top_k else []
    warpers += [TopPLogitsWarper(how.top_p)] if how.top_p < 1 else []
    for warper in warpers:
        logits = warper(None, logits)
    return logits


def reference(logits, how):
    """Probabilities of one row's tokens in plain Python: the likeliest first, until there are enough."""
    scaled = [z / how.temperature for z in logits]
    order = sorted(range(len(scaled)), key=lambda token: -scaled[token])[: how.top_k or None]
    weights = {token: math.exp(scaled[token]) for token in order}
    kept, mass = {}, 0.0
    for token in order:
        if mass >= how.top_p * sum(weights.values()):
            break
        kept[token] = weights[token]
        mass += weights[token]
    return {token: weight / mass for token, weight in kept.items()}


@pytest.mark.parametrize("how", SETTINGS, ids=str)
@pytest.mark.parametrize("few", [3, 1024])
def test_filters_are_those_of_transformers(how, few, monkeypatch):
    monkeypatch.setattr(sampling, "_LIKELIEST", few)  # how many are looked at first changes nothing
    torch.testing.assert_close(filtered(LOGITS, how), warped(LOGITS, how))


@pytest.mark.parametrize("how", SETTINGS, ids=str)
def test_tokens_are_drawn_as_often_as_they_are_likely(how):
    draws = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    tokens = choose(LOGITS[:1].expand(len(draws), -1), how, draws)
    shares = torch.bincount(tokens, minlength=40) / len(draws)
    expected = torch.zeros(40)
    for token, probability in reference(LOGITS[0].tolist(), how).items():
        expected[token] = probability
    torch.testing.assert_close(shares, expected, atol=1.01e-4, rtol=0)
    assert not shares[expected == 0].any()


def test_a_row_depends_on_its_own_logits_and_number_only():
    draws = torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    together = choose(LOGITS, SETTINGS[3], draws)
    alone = [choose(LOGITS[i : i + 1], SETTINGS[3], draws[i : i + 1]) for i in range(5)]
    assert together.tolist() == [int(token) for token in alone]


@pytest.mark.parametrize("draw", [0.0, 0.5, 1 - 2**-53])
def test_what_has_no_probability_is_never_drawn(draw):
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]])
    token = choose(logits, Sampling(), torch.tensor([draw], dtype=torch.float64))
    assert int(token) == (1 if draw < 0.5 else 3)


def test_without_sampling_the_likeliest():
    assert choose(LOGITS, None, None).tolist() == LOGITS.argmax(-1).tolist()
    greedy = choose(LOGITS, Sampling(top_k=1), torch.rand(5, dtype=torch.float64))
    assert greedy.tolist() == LOGITS.argmax(-1).tolist()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"temperature": 0.0}, "temperature of 0.0"),
        ({"temperature": math.nan}, "temperature of nan"),
        ({"temperature": math.inf}, "temperature of inf"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_k": -1}, "top_k is -1"),
        ({"clip": (2.0, 1.0)}, "clipped to 2.0 and 1.0"),
        ({"clip": (0.0, math.inf)}, "clipped to 0.0 and inf"),
    ],
)
def test_what_cannot_be_sampled_at_is_told(wrong, told):
    with pytest.raises(ConfigError, match=told):
        Sampling(**wrong)
