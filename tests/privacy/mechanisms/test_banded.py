"""Banded noise: its matrix, its accounting against a sensitivity computed from the matrix itself, and what it adds."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from murmura.errors import PrivacyError
from murmura.privacy.entropy import OSEntropy, SeededEntropy
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.mechanisms.banded import BandedNoise, BandedSums, coefficients, squared_sensitivity
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.observation import Observation
from murmura.privacy.samplers import FullParticipation, MinSeparation, OncePerTree
from tests.privacy.attack import After, given_away
from tests.privacy.attack import of_sites as sums_of_sites
from tests.privacy.chance import variance_is
from tests.privacy.mechanisms.draws import Unit, seeded
from tests.privacy.plans import followed, of_sites

DRAWS = 32


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
    replaced = of_sites(steps=11, adjacency="replace-one", sampler=MinSeparation(3, 5), noise=BandedNoise(10.0, 4))
    assert replaced.epsilon().value == pytest.approx(plan.epsilon().value)


def test_the_noise_is_calibrated_to_what_really_counts():
    plan = of_bands(4, 5).calibrated(2.0)
    assert plan.epsilon().value == pytest.approx(2.0, rel=1e-4)
    assert plan.epsilon(5).value < plan.epsilon(6).value < 2.0  # a second turn costs more


@pytest.mark.parametrize(
    ("sampler", "noise"),
    [
        (MinSeparation(3, 3), BandedNoise(1.0, 4)),
        (MinSeparation(3, 3), GaussianNoise(1.0)),
        (FullParticipation(), BandedNoise(1.0, 2)),
        (OncePerTree(3), BandedNoise(1.0, 2)),
    ],
)
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
    ("parameters", "reason"),
    [({"bands": 5}, "it had bands = 5 where 4 was planned"), ({}, "it had bands = None where 4 was planned")],
)
def test_noise_with_other_bands_has_no_epsilon(parameters, reason):
    plan = of_bands(4, 5)
    ledger = PrivacyLedger(plan)
    ledger.record(1, [followed(plan, parameters=parameters)])
    with pytest.raises(PrivacyError, match=reason):
        ledger.epsilon()


@pytest.mark.parametrize(("steps", "bands"), [(1, 1), (6, 1), (7, 3), (12, 12)])
def test_what_is_released_follows_from_the_noisy_rows_alone(fine_grid, steps, bands):
    """Prefixes are A(x + C⁻¹z), which is A·C⁻¹(C·x + z): nothing else of x gets out."""
    made = BandedSums(BandedNoise(1.0, bands), 1.0, Unit())
    rows = [made.add({"a": torch.zeros(DRAWS)})["a"] for _ in range(steps)]
    expected = np.tril(np.ones((steps, steps))) @ np.linalg.inv(banded(steps, bands))
    np.testing.assert_allclose(torch.stack(rows)[:, :steps].double().numpy(), expected, atol=1e-6)


def test_sums_are_exact_without_noise():
    made = BandedSums(BandedNoise(0.0, 3), 1.0, seeded())
    sums = [made.add({"a": torch.full((2,), float(step))})["a"].tolist() for step in range(1, 5)]
    assert sums == [[1.0, 1.0], [3.0, 3.0], [6.0, 6.0], [10.0, 10.0]]


def test_noise_is_in_units_of_the_norm():
    made = BandedSums(BandedNoise(3.0, 2), 0.5, seeded())
    first = made.add({"a": torch.zeros(40_000)})["a"].double().numpy()
    second = made.add({"a": torch.zeros(40_000)})["a"].double().numpy()
    assert variance_is(first, (3.0 * 0.5) ** 2)
    assert variance_is(second - first, (3.0 * 0.5) ** 2 * (1 + 1 / 4))  # z₂ − z₁/2


def test_it_sees_the_fresh_noise_that_was_really_added(monkeypatch):
    made = BandedSums(BandedNoise(2.0, 3), 0.5, seeded())
    for step in range(4):
        made.add({"a": torch.full((1000,), float(step)), "b": torch.ones(1000)})
        assert made.seen.numbers == 2000
        assert made.seen.squares / made.seen.numbers == pytest.approx(4.0, rel=0.2)
    monkeypatch.setattr(SeededEntropy, "normal", lambda self, count: torch.zeros(count))
    made.add({"a": torch.ones(1000), "b": torch.ones(1000)})
    assert made.seen.squares < 1e-2  # of rounding; what is left of earlier noise is no fresh one


def test_no_released_sum_rules_a_step_out():
    """Not even where all noise before is known."""
    sums = sums_of_sites()
    first = OSEntropy().normal(len(sums[0]))

    def release(sum, entropy):
        made = BandedSums(BandedNoise(2.0, 3), 0.1, After([first], entropy))
        made.add({"a": torch.ones_like(sum)})
        return made.add({"a": sum})["a"]

    assert given_away(release, sums, 0.2, known=1 + 0.2 * first / 2) == [0, 0]


def test_it_goes_on_from_its_state_as_if_it_had_never_stopped():
    whole = BandedSums(BandedNoise(1.0, 3), 1.0, source := seeded())
    cut = BandedSums(BandedNoise(1.0, 3), 1.0, again := seeded())
    for step in range(7):
        expected = whole.add({"a": torch.full((5,), float(step))})
        cut = BandedSums(BandedNoise(1.0, 3), 1.0, again).restore(cut.state()) if step else cut
        assert torch.equal(cut.add({"a": torch.full((5,), float(step))})["a"], expected["a"])
    assert all(tensor.dtype == torch.float64 for tensor in cut.state()["banded.total"].values())
    assert source.normal(1) == again.normal(1)
    assert len([name for name in cut.state() if name.startswith("banded.noise.")]) == 2


@pytest.mark.parametrize(("apart", "refused"), [(None, False), (5, False), (4, True), (1, True)])
def test_a_unit_that_is_back_too_soon_has_no_epsilon(apart, refused):
    plan = of_bands(4, 5)
    done = followed(plan, 2)
    ledger = PrivacyLedger(plan)
    ledger.record(1, [replace(done, observed=done.observed + Observation(apart=apart))])
    if not refused:
        assert math.isfinite(ledger.epsilon().value)
        return
    with pytest.raises(PrivacyError, match=f"back after {apart} steps?, where 5 are the fewest"):
        PrivacyLedger(plan, ledger.journal).epsilon()
