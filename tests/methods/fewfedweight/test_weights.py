import math

import pytest

from murmura.methods.fewfedweight.weights import energy_weights, skill


def test_weights_are_a_softmax_with_mean_one():
    weights = energy_weights([-2.0, -1.0, 0.0], temperature=1.0, largest=5.0)
    parts = [math.e**2, math.e, 1.0]
    assert weights == pytest.approx([3 * part / sum(parts) for part in parts])
    assert sum(weights) == pytest.approx(3)


def test_lower_energy_weighs_more_and_the_temperature_flattens():
    sharp, flat = (energy_weights([-30.0, -20.0], temperature=t, largest=5.0) for t in (1.0, 100.0))
    assert sharp[0] > flat[0] > 1 > flat[1] > sharp[1]


def test_no_weight_is_above_the_largest():
    assert energy_weights([-100.0] + [0.0] * 9, temperature=1.0, largest=5.0)[0] == 5.0


def test_large_energies_do_not_overflow():
    assert energy_weights([-1e6, -1e6, 1e6], temperature=1.0, largest=5.0) == [1.5, 1.5, 0.0]
    assert energy_weights([], temperature=1.0, largest=5.0) == []


@pytest.mark.parametrize(
    ("error", "weight"), [(0.2, 0.5 * math.log(4)), (0.5, 0.0), (0.8, 0.0), (1.0, 0.0), (0.1, 0.5 * math.log(9))]
)
def test_skill(error, weight):
    assert skill(error) == pytest.approx(weight)


def test_a_site_without_error_has_a_finite_weight():
    assert skill(0.0) == skill(1e-6) == pytest.approx(6.9077, abs=1e-4)
