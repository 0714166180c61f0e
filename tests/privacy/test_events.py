"""What is in an event, and the same event without some of it."""

import logging
import math

import dp_accounting as dp
import pytest

from murmura.privacy import events
from murmura.privacy.mechanisms.skellam import SkellamNoise
from murmura.privacy.renyi import IntegerNoiseDpEvent

GAUSSIAN = dp.GaussianDpEvent(2.0)
SKELLAM = IntegerNoiseDpEvent(SkellamNoise(2.0), norm=8, sensitivity=8)


def test_several_gaussian_releases_are_one():
    both = dp.ComposedDpEvent([dp.SelfComposedDpEvent(GAUSSIAN, 8), dp.GaussianDpEvent(1.0), dp.NoOpDpEvent()])
    assert events.inverse_variance(both) == 3.0
    assert events.inverse_variance(dp.ComposedDpEvent([both, dp.NonPrivateDpEvent()])) == math.inf
    assert events.inverse_variance(dp.GaussianDpEvent(1e-300)) == math.inf
    assert events.inverse_variance(dp.PoissonSampledDpEvent(0.1, GAUSSIAN)) is None
    assert events.inverse_variance(dp.ComposedDpEvent([both, SKELLAM])) is None


@pytest.mark.parametrize(
    "sampled", [dp.PoissonSampledDpEvent(0.1, GAUSSIAN), dp.SampledWithoutReplacementDpEvent(10, 1, GAUSSIAN)]
)
def test_whoever_knows_the_samples_sees_every_release(sampled):
    whole = dp.ComposedDpEvent([dp.SelfComposedDpEvent(sampled, 3), dp.dp_event.RepeatAndSelectDpEvent(sampled, 5, 1)])
    bare = dp.ComposedDpEvent([dp.SelfComposedDpEvent(GAUSSIAN, 3), dp.dp_event.RepeatAndSelectDpEvent(GAUSSIAN, 5, 1)])
    assert events.unsampled(whole) == bare == events.unsampled(bare)


def test_what_is_in_an_event_is_found_however_deep_it_is():
    mixture = dp.dp_event.MixtureOfGaussiansDpEvent(2.0, [0, 1], [0.9, 0.1])
    for one, other, found in ((mixture, SKELLAM, events.has_mixtures), (SKELLAM, mixture, events.has_integer_noise)):
        deep = dp.ComposedDpEvent([GAUSSIAN, dp.SelfComposedDpEvent(dp.ComposedDpEvent([one]), 2)])
        assert found(deep) and not found(other) and not found(GAUSSIAN)


def test_what_is_quiet_within_another_leaves_that_quiet():
    logger = logging.getLogger("absl")
    before = list(logger.filters)
    with events.quiet():
        with events.quiet():
            pass
        assert not logger.filter(logging.LogRecord("absl", logging.WARNING, "", 0, "hear", (), None))
    assert logger.filters == before
