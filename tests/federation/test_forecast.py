"""What a run will take, as a method says before it."""

from murmura.federation.forecast import Forecast, SitePart
from murmura.training.config import LocalTraining
from tests.federation.world import Small


def test_a_method_that_says_nothing_takes_nothing():
    part = SitePart(range(9), 1, True, LocalTraining(), adapter=100, down=100, up=100)
    assert Small(None).forecast(part) == Forecast()


def test_steps_are_those_of_training():
    part = SitePart((), 1, True, LocalTraining(batch_size=4, epochs=2))
    assert part.steps(9, 0, 4) == 2 * (3 + 0 + 1)
    assert SitePart((), 1, True, LocalTraining(max_steps=5)).steps(9, 0) == 5
