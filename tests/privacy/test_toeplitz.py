"""Banded noise: its matrix, and its accounting against a sensitivity that is computed from the matrix itself."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from murmura.errors import PrivacyError
from murmura.privacy import BandedNoise, FullParticipation, GaussianNoise, MinSeparation, OncePerTree
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.toeplitz import coefficients, squared_sensitivity
from tests.privacy.plans import followed, of_sites


def banded(steps, bands):
    """C, [steps, steps]."""
    rows, columns = np.indices((steps, steps))
    back = rows - columns
    return np.where((back >= 0) & (back < bands), np.array(coefficients(steps))[np.clip(back, 0, None)], 0.0)


def patterns(steps, separation):
    """Every way in which one unit may take part, 0/1 [steps]."""
    for pattern in product((0, 1), repeat=steps):
        turns = np.flatnonzero(pattern)
        if len(turns) < 2 or np.diff(turns).min() >= separation:
            yield np.array(pattern)


def of_bands(bands, separation, std=5.0, steps=11):
    return of_sites(steps=steps, sampler=MinSeparation(3, separation), noise=BandedNoise(std, bands))


def test_with_all_bands_the_square_is_every_prefix_sum():
    root = banded(9, 9)
    np.testing.assert_allclose(root @ root, np.tril(np.ones((9, 9))), atol=1e-12)
    assert coefficients(4) == (1.0, 1 / 2, 3 / 8, 5 / 16)


@pytest.mark.parametrize(("steps", "bands", "separation"), [(1, 1, 1), (9, 1, 1), (9, 3, 3), (10, 4, 4), (11, 2, 5)])
def test_no_pattern_of_taking_part_moves_it_further(steps, bands, separation):
    matrix, rng = banded(steps, bands), np.random.default_rng(0)
    allowed = squared_sensitivity(steps, bands, separation)
    all_patterns = list(patterns(steps, separation))
    assert allowed == pytest.approx(max(np.square(matrix @ pattern).sum() for pattern in all_patterns))
    for pattern in all_patterns[:: max(len(all_patterns) // 40, 1)]:  # nor do updates that point elsewhere
        updates = rng.normal(size=(steps, 3))
        updates *= (pattern / np.linalg.norm(updates, axis=1))[:, None]
        assert np.square(matrix @ updates).sum() <= allowed + 1e-9


def test_who_comes_back_sooner_moves_it_further():
    """So that a run in which a site does may not tell the ε of one in which none does."""
    sooner = max(np.square(banded(11, 4) @ pattern).sum() for pattern in patterns(11, 3))
    assert sooner > squared_sensitivity(11, 4, 4)


@pytest.mark.parametrize("again", [1, 5, 11])
def test_what_is_done_again_adds_a_row_at_most(again):
    steps, bands = 11, 4
    matrix = banded(steps, bands)
    twice = np.vstack([matrix, matrix[again - 1]])
    worst = max(np.square(twice @ pattern).sum() for pattern in patterns(steps, bands))
    counted = squared_sensitivity(steps, bands, bands) + 1
    assert worst <= counted + 1e-9
    plan = of_bands(bands, bands)
    assert plan.event(repeated=[again]).noise_multiplier == pytest.approx(5.0 / counted**0.5)


def test_one_band_is_fresh_noise_in_every_step():
    assert of_bands(1, 1).epsilon() == of_sites(noise=GaussianNoise(5.0)).epsilon()


def test_a_unit_that_replaces_another_moves_it_twice_as_far():
    plan = of_bands(4, 5)
    replaced = of_sites(
        steps=11, adjacency="replace-one", sampler=MinSeparation(3, 5), noise=BandedNoise(10.0, 4)
    )  # fmt: skip
    assert replaced.epsilon().value == pytest.approx(plan.epsilon().value)


def test_the_noise_is_calibrated_to_what_really_counts():
    plan = of_bands(4, 5).calibrated(2.0)
    assert plan.epsilon().value == pytest.approx(2.0, rel=1e-4)
    assert plan.epsilon(5).value < plan.epsilon(6).value < 2.0  # a second turn costs more


@pytest.mark.parametrize(
    ("sampler", "noise"),
    [
        (MinSeparation(3, 3), BandedNoise(1.0, 4)), (MinSeparation(3, 3), GaussianNoise(1.0)),
        (FullParticipation(), BandedNoise(1.0, 2)), (OncePerTree(3), BandedNoise(1.0, 2)),
    ],
)  # fmt: skip
def test_what_is_not_accounted_is_refused(sampler, noise):
    with pytest.raises(PrivacyError):
        of_sites(sampler=sampler, noise=noise)


def test_a_plan_and_its_ledger_load_again():
    plan = of_bands(4, 5)
    assert type(plan).from_json(plan.to_json()) == plan
    assert "banded noise 5 norms, 4 bands" in plan.describe() and "again after 5 steps" in plan.describe()
    ledger = PrivacyLedger(plan)
    ledger.record(1, [followed(plan, 11)])
    assert PrivacyLedger(plan, ledger.journal).epsilon() == plan.epsilon()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"bands": 5}, "its noise had 5 bands where 4 were planned"), ({"bands": None}, "its noise had None bands")],
)
def test_noise_with_other_bands_has_no_epsilon(changes, reason):
    plan = of_bands(4, 5)
    ledger = PrivacyLedger(plan)
    ledger.record(1, [followed(plan, **changes)])
    with pytest.raises(PrivacyError, match=reason):
        ledger.epsilon()
