import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from murmura.errors import PrivacyError
from murmura.generation.sampling import Sampling, filtered
from murmura.privacy import local_text


def epsilon(tokens, low, high, temperature, documents):
    """ε of one text for each of a site's documents (Utpala et al. 2023, Theorem 1)."""
    return 2 * tokens * documents * (high - low) / temperature


def test_eight_documents_of_sixty_four_tokens():
    """The temperatures at which paraphrases have the guarantees of private evolution: the tokens are nearly uniform."""
    bounds = {"tokens": 64, "low": -19.2271, "high": 7.4832, "documents": 8}
    assert local_text.temperature(1.29, **bounds) == pytest.approx(21203, rel=1e-3)
    assert local_text.temperature(7.58, **bounds) == pytest.approx(3608, rel=1e-3)


@given(st.floats(1e-4, 36), st.integers(1, 10_000), st.floats(-50, 0), st.floats(0.1, 50), st.integers(1, 100))
def test_the_temperature_of_an_epsilon_keeps_within_it(each, tokens, low, high, documents):
    """By what draws may be off, and little more."""
    target = each * tokens * documents * (1 - 1e-12)
    hot = local_text.temperature(target, tokens, low, high, documents)
    off = 4 * 2**-28 * math.exp(each / 2)
    assert each - off - 1e-9 * each < epsilon(1, low, high, hot, 1) <= each - off * (1 - 1e-6)


def chance(logits, temperature, token):
    """Exactly how likely a token is to be drawn, when draws are multiples of 2⁻⁵³."""
    ways = Sampling(temperature, clip=(-5.0, 5.0))
    ends = filtered(torch.tensor(logits)[None], ways).softmax(-1).cumsum(-1, dtype=torch.float64)[0].tolist()
    below, above = (math.ceil(Fraction(end) / Fraction(ends[-1]) * 2**53) for end in ([0.0, *ends][token], ends[token]))
    return Fraction(above - below, 2**53)


@pytest.mark.parametrize(("target", "size"), [(36.0, 3), (2e-6, 2**18)])
def test_it_covers_how_tokens_are_really_drawn(target, size):
    """The worst two documents there are: one token is all that the first speaks against, and all that the other speaks
    for. Without what draws are off, 2·10⁻⁶ would be exceeded by 8·10⁻⁶ of itself."""
    hot = local_text.temperature(target, 1, -5.0, 5.0, 1)
    for token in range(0, size, max(size // 40, 1)):
        against = np.full(size, 5.0)
        against[token] = -5.0
        assert math.log(chance(-against, hot, token) / chance(against, hot, token)) <= target


def test_it_bounds_what_clipped_logits_can_do():
    """A token's probability under any two documents; the worst are at the bounds, and there the bound is nearly met."""
    low, high, hot, generator = -2.0, 3.0, 1.7, np.random.default_rng(0)
    worst = np.full(2000, high)
    pairs = [generator.uniform(low, high, (2, 50)) for _ in range(100)]
    pairs.append(np.stack([np.where(np.arange(2000) == 0, high, low), np.where(np.arange(2000) == 0, low, worst)]))
    losses = []
    for pair in pairs:
        logs = pair / hot - np.log(np.exp(pair / hot).sum(1, keepdims=True))
        losses.append(np.abs(logs[0] - logs[1]).max())
    assert max(losses) <= epsilon(1, low, high, hot, 1)
    assert losses[-1] > 0.9 * epsilon(1, low, high, hot, 1)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: local_text.temperature(1.0, 0, -1, 1, 1), "texts of 0 tokens. A text has"),
        (lambda: local_text.temperature(1.0, 9, 1, 1, 1), "logits clipped to [1, 1]. Give finite bounds"),
        (lambda: local_text.temperature(1.0, 9, -math.inf, 1, 1), "logits clipped to [-inf, 1]"),
        (
            lambda: local_text.temperature(4.1, 1, 7.0, math.nextafter(7.0, 8.0), 1),
            "further apart than logits are exact",
        ),
        (lambda: local_text.temperature(4.1, 1, 0.0, 5e-324, 1), "logits clipped to [0.0, 5e-324]"),
        (lambda: local_text.temperature(1.0, 9, -1, 1, 0), "a site with 0 documents. Count"),
        (lambda: local_text.temperature(math.inf, 9, -1, 1, 1), "ε = inf. Ask for a positive"),
        (lambda: local_text.temperature(60.0, 1, -1, 1, 1), "ε = 60 for 1 tokens. Ask for 1e-06 to 36 a token"),
        (lambda: local_text.temperature(1e-3, 9, -1, 1, 1000), "ε = 0.001 for 9000 tokens. Ask for 1e-06"),
    ],
)
def test_what_makes_no_sense_is_refused(call, told):
    with pytest.raises(PrivacyError) as refused:
        call()
    assert told in str(refused.value)
