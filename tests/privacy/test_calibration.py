import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.privacy import accounting
from murmura.privacy.calibration import calibrate
from murmura.privacy.samplers import FixedSizeSampling, FullParticipation, PoissonSampling
from tests.conftest import remembering
from tests.privacy.plans import of_records

pytestmark = pytest.mark.slow


@settings(max_examples=25, deadline=None)
@given(st.floats(0.05, 50), st.integers(1, 500), st.sampled_from([1e-7, 1e-5, 1e-3]), st.sampled_from(["rdp", "exact"]))
def test_calibration_inverts(target, steps, delta, accountant):
    plan = of_records(sampler=FullParticipation(), steps=steps, delta=delta).calibrated(target, accountant)
    assert target * (1 - 1e-4) <= plan.epsilon(accountant=accountant).value <= target


@pytest.fixture(scope="module")
def remembered():
    """Of samples of a fixed size both adjacencies ask the same moments, which take seconds."""
    module, functions = remembering()
    with pytest.MonkeyPatch.context() as patch:
        for name, function in functions.items():
            patch.setattr(module, name, function)
        yield


@pytest.mark.parametrize("sampler", [FullParticipation(), PoissonSampling(0.04), FixedSizeSampling(8, 200)])
def test_calibration_finds_the_noise_of_the_best_accountant(sampler, remembered):
    for adjacency in ("zero-out", "replace-one"):
        plan = of_records(sampler=sampler, adjacency=adjacency, delta=1e-9)
        found = plan.calibrated(3.0)
        assert found == of_records(sampler=sampler, adjacency=adjacency, delta=1e-9, noise=found.noise), adjacency
        assert 3.0 * (1 - 5e-4) < found.epsilon().value <= 3.0, adjacency
        assert found.with_noise(found.noise.std * (1 - 5e-4)).epsilon().value > 3.0, adjacency


def test_pld_is_asked_a_few_times_only(monkeypatch):
    asked = []
    pld = accounting._pld
    monkeypatch.setattr(accounting, "_pld", lambda *words: asked.append(1) or pld(*words))
    plan = of_records(sampler=PoissonSampling(0.04), steps=50)
    calibrate(lambda std: plan.with_noise(std).event(), 2.0, 1e-5, "zero-out")
    assert 0 < len(asked) <= 12
