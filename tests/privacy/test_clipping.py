import math

import pytest
import torch

from murmura.privacy.clipping import AdaptiveSiteClipping, SiteClipping, clip
from murmura.privacy.entropy import OSEntropy, SeededEntropy
from murmura.privacy.observation import Observation
from murmura.streams import Stream
from tests.privacy.attack import contradictions
from tests.privacy.chance import variance_is

ADAPTIVE = AdaptiveSiteClipping(norm=1.0, quantile=0.5, learning_rate=0.2, count_noise=5.0)


def size(update):
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in update.values()))


@pytest.mark.parametrize("seed", range(20))
def test_clipping_never_leaves_more_than_the_norm(seed):
    generator = torch.Generator().manual_seed(seed)
    update = {"a": torch.randn(300, generator=generator) * 10**seed, "b": torch.randn(7, 3, generator=generator)}
    clipped, unclipped = clip(update, 0.7)
    assert not unclipped
    assert 0.7 * (1 - 2e-6) < size(clipped) <= 0.7
    before, after = update["a"].double(), clipped["a"].double()
    torch.testing.assert_close(after / after.norm(), before / before.norm(), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("norm", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("value", [1e30, 1e36, 1e37, 1e38, 3e38])
def test_nor_where_no_float32_factor_is_small_enough(value, norm):
    clipped, unclipped = clip({"a": torch.full((100_000,), value)}, norm)
    assert not unclipped and size(clipped) <= norm
    assert size(clipped) > 0.99 * norm or not clipped["a"].any()


def test_a_short_update_is_left_alone():
    update = {"a": torch.tensor([0.3, 0.4])}
    clipped, unclipped = clip(update, 0.51)
    assert unclipped and torch.equal(clipped["a"], update["a"])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_counts_as_zero_and_as_too_long(bad):
    clipped, unclipped = clip({"a": torch.tensor([1.0, bad]), "b": torch.ones(2, dtype=torch.float64)}, 1.0)
    assert not unclipped and all(not tensor.any() and tensor.dtype == torch.float32 for tensor in clipped.values())


def drift(unclipped, expected=20, clipping=ADAPTIVE, rounds=400):
    """Mean of the norm's logarithmic step."""
    entropy, balance = SeededEntropy(Stream(3) / "norm"), sum(bit - 0.5 for bit in unclipped)
    return sum(math.log(clipping.next_norm(1.0, balance, expected, entropy)[0]) for _ in range(rounds)) / rounds


def test_the_norm_shrinks_when_too_few_are_clipped_and_grows_when_too_many():
    assert drift([True] * 20) == pytest.approx(-0.2 * 0.5, abs=0.01)
    assert drift([False] * 20) == pytest.approx(0.2 * 0.5, abs=0.01)
    assert drift([True, False] * 10) == pytest.approx(0, abs=0.01)


def test_sites_that_are_missing_count_half():
    # The divisor is the planned number: a count over those that replied would tell how many did.
    assert drift([True] * 10) == pytest.approx(-0.2 * 0.25, abs=0.01)


def test_the_count_is_noised_as_planned():
    entropy = SeededEntropy(Stream(4) / "norm")
    steps = [math.log(ADAPTIVE.next_norm(1.0, 0.0, 20, entropy)[0]) for _ in range(5_000)]
    assert variance_is(steps, (0.2 * 5.0 / 20) ** 2)


def test_the_norm_rules_no_count_out():
    def moved(balance, entropy):
        return torch.tensor([ADAPTIVE.next_norm(0.3, balance, 20, entropy)[0]], dtype=torch.float64)

    found = [0, 0]
    for _ in range(50):
        published = moved(3.5, OSEntropy())
        for k, balance in enumerate((3.5, 4.0)):
            fraction = ADAPTIVE.quantile - math.log(float(published) / 0.3) / ADAPTIVE.learning_rate
            noise = ((fraction - 0.5) * 20 - balance) / ADAPTIVE.count_noise
            told = torch.tensor([noise], dtype=torch.float64)
            found[k] += contradictions(lambda source, balance=balance: moved(balance, source), published, told)
    assert found == [0, 0]


def test_it_starts_from_this_rounds_norm():
    streams = (SeededEntropy(Stream(5) / "norm") for _ in range(2))
    small, large = (ADAPTIVE.next_norm(norm, 0.5, 20, next(streams))[0] for norm in (0.1, 10.0))
    assert large == pytest.approx(100 * small)


def test_the_noise_on_a_count_is_read_back_off_the_norm():
    class Seven(SeededEntropy):
        def normal(self, count):
            return torch.tensor([1.4])

    _, seen = ADAPTIVE.next_norm(0.3, 2.5, 20, Seven(Stream(0)))
    assert seen.counts == 1 and math.sqrt(seen.count_squares) == pytest.approx(7.0, abs=5 / 2048)


def test_a_norm_that_does_not_follow_anything_stays():
    assert SiteClipping(0.7).next_norm(0.7, 2.5, 20, OSEntropy()) == (0.7, Observation())
