"""Lower bounds on ε: the theorem by brute force, and mechanisms whose ε is known."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from murmura.errors import PrivacyError
from murmura.privacy.accounting import epsilon as accounted
from murmura.privacy.clipping import ExampleClipping
from murmura.privacy.entropy import SeededEntropy
from murmura.privacy.lower_bound import audited, lower_bound, p_value
from murmura.privacy.mechanisms.gaussian import GaussianNoise, gaussian
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import FullParticipation, PoissonSampling
from murmura.streams import Stream


def by_brute_force(right, guesses, canaries, epsilon, delta):
    """The theorem with f as a sum over all outcomes of the guesses."""
    q = math.exp(epsilon) / (1 + math.exp(epsilon))

    def f(v):
        outcomes = product((0, 1), repeat=guesses)
        return sum(math.prod(q if hit else 1 - q for hit in one) for one in outcomes if sum(one) >= v)

    slack = max((f(right - i) - f(right)) / i for i in range(1, canaries + 1))
    return min(1.0, f(right) + 2 * canaries * delta * slack)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.05])
def test_the_p_value_is_the_theorem_s(epsilon, delta):
    for guesses, canaries in ((0, 3), (4, 4), (7, 9)):
        for right in range(guesses + 1):
            told = p_value(right, guesses, canaries, epsilon, delta)
            exact = by_brute_force(right, guesses, canaries, epsilon, delta)
            assert told == pytest.approx(exact, abs=1e-12), (right, guesses)


@pytest.mark.parametrize("delta", [0.01, 0.2])
def test_no_mechanism_beats_the_p_value(delta):
    """Three that are (ε, δ)-DP, by all outcomes: each coin told with probability δ, all coins told with probability δ,
    and randomised response, for which the bound holds with equality where δ = 0."""
    m, epsilon = 6, 0.7
    q = math.exp(epsilon) / (1 + math.exp(epsilon))

    def tail(v, p):
        return sum(math.comb(m, k) * p**k * (1 - p) ** (m - k) for k in range(v, m + 1))

    for v in range(m + 1):
        assert p_value(v, m, m, epsilon, 0.0) == pytest.approx(tail(v, q), abs=1e-12)
        assert p_value(v, m, m, epsilon, delta) >= tail(v, delta + (1 - delta) * q) - 1e-12
        assert p_value(v, m, m, epsilon, delta) >= delta + (1 - delta) * tail(v, q) - 1e-12


def test_guesses_that_are_impossible_are_refused():
    for right, guesses, canaries in ((3, 2, 4), (2, 5, 4), (-1, 2, 4)):
        with pytest.raises(PrivacyError, match="impossible"):
            p_value(right, guesses, canaries, 1.0, 0.0)
    for epsilon, delta in ((-1.0, 0.0), (1.0, 2.0), (math.nan, 0.0)):
        with pytest.raises(PrivacyError, match="ε ="):
            p_value(1, 2, 4, epsilon, delta)


def test_all_guesses_right_show_what_a_coin_allows():
    """q^m = 5 %; where a record is blanked, half as much."""
    for m in (8, 20, 100):
        q = 0.05 ** (1 / m)
        assert lower_bound(m, m, m, 0.0, "replace-one") == pytest.approx(math.log(q / (1 - q)), abs=1e-5)
        assert lower_bound(m, m, m, 0.0, "zero-out") == pytest.approx(math.log(q / (1 - q)) / 2, abs=1e-5)
    assert lower_bound(8, 8, 8, 1e-3, "replace-one") < lower_bound(8, 8, 8, 0.0, "replace-one")
    assert lower_bound(4, 8, 8, 0.0, "replace-one") == 0.0


@pytest.mark.parametrize(
    ("canaries", "guesses", "right", "delta", "published"),
    [(1000, 100, 75, 1e-4, 0.673), (100_000, 1510, 1439, 1e-5, 2.675)],
)
def test_the_paper_s_own_figures(canaries, guesses, right, delta, published):
    """Appendix D and Section 7, rounded or cut off after three digits."""
    assert lower_bound(right, guesses, canaries, delta, "replace-one") == pytest.approx(published, abs=1e-3)


def randomised_response(rng, coins, epsilon):
    kept = rng.random(len(coins)) < math.exp(epsilon) / (1 + math.exp(epsilon))
    return np.where(kept, coins, 1 - coins) - 0.5


def test_randomised_response_is_not_exceeded_and_comes_near():
    epsilon, m = 1.0, 4000
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        coins = rng.integers(0, 2, m)
        found.append(audited(randomised_response(rng, coins, epsilon), coins, 0.0, "replace-one").epsilon)
    assert np.mean(np.array(found) > epsilon) <= 0.1  # 5 % at most, of 60: binomial tail below 2 % beyond 6
    assert np.median(found) > 0.8 * epsilon


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_a_gaussian_release_is_not_exceeded(adjacency):
    """Each canary moves a coordinate of its own by ±C, and the noise is 2C: replaced, 2C are moved; blanked, C."""
    import dp_accounting as dp

    delta, std = 1e-5, 2.0
    multiplier = std if adjacency == "zero-out" else std / 2
    truth = accounted(dp.GaussianDpEvent(multiplier), delta, adjacency, "exact").value
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        coins = rng.integers(0, 2, 1000)
        found.append(audited(2 * coins - 1 + rng.normal(0, std, 1000), coins, delta, adjacency).epsilon)
    assert max(found) < truth
    assert min(found) > 0  # something is found, always


def test_leaving_out_what_is_unsure_shows_more():
    """Half of the canaries are plain to see and the others lost: guessing all of them shows less."""
    rng = np.random.default_rng(0)
    coins = rng.integers(0, 2, 200)
    evidence = np.where(np.arange(200) < 100, 10.0 * (2 * coins - 1), 0.1 * rng.normal(size=200))
    found = audited(evidence, coins, 1e-5, "replace-one")
    assert (found.guesses, found.right) == (100, 100)
    assert found.epsilon > lower_bound(150, 200, 200, 1e-5, "replace-one")
    assert found.epsilon <= found.most


def test_nothing_seen_shows_nothing():
    found = audited([0.0] * 10, [0, 1] * 5, 1e-5, "zero-out")
    assert (found.epsilon, found.guesses, found.canaries) == (0.0, 0, 10)
    assert audited([], [], 1e-5, "zero-out").epsilon == 0.0


# ---- mutants: each canary moves a coordinate of its own, and the audit reads them all --------------------------------

COUNT = 20_000
PLAN = PrivacyPlan(
    "record", "zero-out", PoissonSampling(0.02), ExampleClipping(1.0), GaussianNoise(1.0), steps=1, delta=1e-7
)


def audit_of(entropy, *, noise=1.0, sampler=PLAN.sampler, length=1.0, known=None):
    """A step of PLAN, or of what a mutant makes of it, on canaries whose gradient is ±1 along an axis of their own."""
    coins = SeededEntropy(Stream(0) / "coins").integers(2, COUNT)
    gradient = torch.from_numpy(length * (2.0 * coins - 1)).float()
    [batch] = sampler.batches(COUNT, PLAN.steps, entropy)
    total = {"sum": torch.zeros(COUNT).index_copy_(0, torch.tensor(batch), gradient[batch])}
    seen = gaussian(total, noise * PLAN.noise.std, entropy)["sum"]
    if known is not None:  # who knows the seed draws the same sample and the same noise
        sampler.batches(COUNT, PLAN.steps, known)
        seen = seen - gaussian({"sum": torch.zeros(COUNT)}, noise * PLAN.noise.std, known)["sum"]
        seen = torch.where(seen.abs() > 0.5, seen, 0.0)
    return audited(seen.tolist(), coins.tolist(), PLAN.delta, PLAN.adjacency).epsilon


def test_a_step_as_planned_is_not_accused():
    promised = PLAN.epsilon().value
    assert 0.3 < promised < 2
    assert all(audit_of(SeededEntropy(Stream(seed))) < promised for seed in range(10))


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param({"noise": 0.0}, id="no noise"),
        pytest.param({"sampler": FullParticipation()}, id="every record in every step"),
        pytest.param({"length": 50.0, "sampler": FullParticipation()}, id="no clipping"),
        pytest.param({"known": SeededEntropy(Stream(7))}, id="noise from a public seed"),
    ],
)
def test_mutants_are_caught(mutant):
    assert audit_of(SeededEntropy(Stream(7)), **mutant) > PLAN.epsilon().value
