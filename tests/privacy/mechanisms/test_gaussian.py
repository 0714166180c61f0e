import pytest
import torch

from murmura.errors import PrivacyError
from murmura.privacy.entropy import OSEntropy, SeededEntropy
from murmura.privacy.mechanisms.gaussian import GaussianNoise, gaussian, noise_like, released
from murmura.privacy.mechanisms.tree import TreeNoise
from murmura.streams import Stream
from tests.privacy.attack import given_away, of_sites
from tests.privacy.chance import variance_is
from tests.privacy.plans import RECORDS
from tests.training.helpers import Told


def test_the_noise_of_a_release_has_the_planned_variance():
    total = {"a": torch.full((700, 400), 3.0), "b": torch.zeros(120_000)}
    std = RECORDS.noise.std * RECORDS.clipping.norm
    noisy = gaussian(total, std, OSEntropy())
    noise = torch.cat([(noisy[name] - total[name]).flatten() for name in total]).numpy()
    assert variance_is(noise, (2.0 * 1.5) ** 2)
    assert noisy["a"].shape == (700, 400) and noisy["a"].dtype == torch.float32
    assert torch.equal(total["b"], torch.zeros(120_000))


def test_without_noise_a_sum_stays_as_it_is():
    total = {"a": torch.tensor([1.0, 2.0])}
    assert torch.equal(gaussian(total, 0.0, OSEntropy())["a"], total["a"])


@pytest.mark.parametrize("std", [3.0, 0.07, 1.0])
def test_no_number_of_a_release_rules_a_sum_out(std):
    """Neither the true one nor any other, for whoever knows all sites but one; in float32 a sum of floats would."""
    sums = of_sites(norm=std / 30)
    assert given_away(lambda sum, entropy: gaussian({"a": sum}, std, entropy)["a"], sums, std) == [0, 0]


def test_a_release_is_whole_steps_of_a_grid_that_knows_only_the_noise():
    for std, step in ((1.0, 2**-10), (1.99, 2**-10), (2.0, 2**-9), (0.3, 2**-12), (3e-9, 2.0**-39)):
        for sum in (torch.zeros(300), torch.full((300,), 2.7e3 * std), torch.rand(300, dtype=torch.float64)):
            steps = gaussian({"a": sum}, std, OSEntropy())["a"].double() / step
            assert torch.equal(steps, steps.round()) and len(steps.unique()) > 250


def test_the_sum_is_rounded_with_its_noise_and_not_before():
    """Else a site less could move what is released by half a step more at each of its numbers."""
    told, exact = torch.full((9,), 0.3 / 1024), torch.linspace(0, 2, 9, dtype=torch.float64) / 1024
    found = gaussian({"a": exact}, 1.0, Told(told))["a"].double() * 1024
    assert found.tolist() == [round(0.25 * place + 0.3) for place in range(9)]


@pytest.mark.parametrize("size", [1.0, 2.0**20, 2.0**45])
def test_no_digit_of_the_noise_is_lost_in_a_large_sum(size):
    exact, noise = torch.tensor([size + 0.125], dtype=torch.float64), torch.tensor([2.0**-11 - 2.0**-60 - 0.125])
    noise = noise.double() if size == 1 else torch.tensor([0.375], dtype=torch.float64)
    made = released({"a": exact}, {"a": noise}, 1.0)["a"]
    assert made.tolist() == torch.tensor([size + float(exact - size + noise)]).mul(1024).round().div(1024).tolist()


def test_noise_waits_in_float64_in_the_shape_of_the_sum():
    noise = noise_like({"a": torch.zeros(2, 3), "b": torch.zeros(4)}, 2.0, SeededEntropy(Stream(0)))
    drawn = SeededEntropy(Stream(0))
    assert all(tensor.dtype == torch.float64 for tensor in noise.values())
    assert torch.equal(noise["a"], 2.0 * drawn.normal(6).view(2, 3)) and torch.equal(noise["b"], 2.0 * drawn.normal(4))
    assert not any(tensor.any() for tensor in noise_like(noise, 0.0, SeededEntropy(Stream(0))).values())


def test_noise_is_not_added_where_it_is_not_accounted_for():
    for told, call in (
        ("gaussian noise is for single steps. Use tree", lambda: GaussianNoise(1.0).prefix_sums(1.0, OSEntropy())),
        ("tree noise is for sums of all steps. Use Gaussian", lambda: TreeNoise(1.0, 4).add({}, 1.0, OSEntropy())),
        ("Gaussian noise in shares", lambda: GaussianNoise(1.0).add({}, 1.0, OSEntropy(), shares=2)),
    ):
        with pytest.raises(PrivacyError, match=told):
            call()
