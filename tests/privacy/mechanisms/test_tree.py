"""The tree's accounting against a sensitivity that is computed from the nodes themselves, and what it adds."""

from itertools import product

import numpy as np
import pytest
import torch

from murmura.privacy.entropy import OSEntropy, SeededEntropy
from murmura.privacy.mechanisms.tree import TreeNoise, TreeSums, completed_by, squared_sensitivity
from murmura.privacy.samplers import OncePerTree
from murmura.streams import Stream
from tests.privacy.attack import After, given_away
from tests.privacy.attack import of_sites as sums_of_sites
from tests.privacy.chance import variance_is
from tests.privacy.mechanisms.draws import Unit, seeded
from tests.privacy.plans import of_sites

DRAWS = 64


def nodes(steps, restart_every):
    """Which steps each node sums, in the order in which nodes are completed: 0/1 matrix [nodes, steps]."""
    rows = []
    for step in range(steps):
        since, height = step % restart_every + 1, 0
        while since % 2**height == 0:
            row = np.zeros(steps)
            row[step + 1 - 2**height : step + 1] = 1
            rows.append(row)
            height += 1
    return np.array(rows)


def patterns(steps, restart_every, every_step):
    """Every way in which one unit may take part, 0/1 [steps]."""
    for pattern in product((0, 1), repeat=steps):
        trees = [sum(pattern[start : start + restart_every]) for start in range(0, steps, restart_every)]
        if every_step or max(trees) <= 1:
            yield np.array(pattern)


@pytest.mark.parametrize("every_step", [True, False])
@pytest.mark.parametrize(("steps", "restart_every"), [(1, 1), (5, 1), (7, 8), (8, 8), (10, 4), (9, 3), (12, 5)])
def test_no_pattern_of_taking_part_moves_the_nodes_further(steps, restart_every, every_step):
    matrix = nodes(steps, restart_every)
    worst = max(np.square(matrix @ pattern).sum() for pattern in patterns(steps, restart_every, every_step))
    assert squared_sensitivity(steps, restart_every, every_step) == worst


@pytest.mark.parametrize("every_step", [True, False])
@pytest.mark.parametrize(("steps", "restart_every"), [(5, 1), (8, 8), (10, 4), (9, 3)])
def test_what_a_step_completes_bounds_what_doing_it_again_adds(steps, restart_every, every_step):
    matrix = nodes(steps, restart_every)
    for step in range(1, steps + 1):
        last = [row for row in matrix if row[step - 1] and not row[step:].any()]
        moves = [np.square(np.array(last) @ unit).sum() for unit in patterns(steps, restart_every, every_step)]
        assert completed_by(step, restart_every, every_step) == max(moves)
    if every_step:  # where one unit is the worst for all of them, they add up to the whole
        each = [completed_by(step, restart_every, True) for step in range(1, steps + 1)]
        assert sum(each) == squared_sensitivity(steps, restart_every, True)


def test_updates_that_point_elsewhere_move_the_nodes_less():
    matrix, rng = nodes(7, 8), np.random.default_rng(0)
    for _ in range(200):
        updates = rng.normal(size=(7, 3))
        updates /= np.linalg.norm(updates, axis=1, keepdims=True)
        assert np.square(matrix @ updates).sum() < squared_sensitivity(7, 8, every_step=True)


def test_one_tree_over_a_hundred_rounds_is_no_single_participation():
    assert squared_sensitivity(100, 100, every_step=True) == 10_172
    assert squared_sensitivity(100, 1, every_step=True) == 100
    assert squared_sensitivity(100, 100, every_step=False) == 7


def test_restarted_every_round_the_tree_is_gaussian_noise():
    gaussian = of_sites(steps=100)
    tree = of_sites(steps=100, noise=TreeNoise(11.3, restart_every=1))
    assert tree.epsilon() == gaussian.epsilon()
    assert of_sites(steps=100, noise=TreeNoise(34.07, 1)).epsilon(accountant="rdp").value == pytest.approx(
        1.2875, abs=2e-4
    )


def test_the_pattern_decides_what_a_tree_costs():
    every = of_sites(steps=100, noise=TreeNoise(34.0, 100))
    once = of_sites(steps=100, noise=TreeNoise(34.0, 100), sampler=OncePerTree(5))
    assert every.epsilon().value > 15
    assert once.epsilon(accountant="rdp").value == pytest.approx(0.31, abs=0.05)
    assert once.epsilon(50).value < once.epsilon().value


def weights(steps, restart_every, honaker, norm=1.0, std=1.0):
    """How much of each node's noise is in each prefix: [steps, nodes]."""
    entropy = Unit()
    tree = TreeSums(TreeNoise(std, restart_every, honaker), norm, entropy)
    rows = [tree.add({"a": torch.zeros(DRAWS)})["a"] for _ in range(steps)]
    return torch.stack(rows)[:, : entropy.drawn].double().numpy()


@pytest.mark.parametrize("honaker", [True, False])
@pytest.mark.parametrize(("steps", "restart_every"), [(1, 1), (6, 1), (8, 8), (13, 16), (14, 4), (15, 6)])
def test_what_is_released_follows_from_the_noisy_nodes_alone(fine_grid, steps, restart_every, honaker):
    # Prefix = W (C x + z) for C the nodes that are accounted for and z the noise: that W C sums every step since the
    # restart once proves that nothing else of x gets out, and that prefixes are unbiased.
    mixed = weights(steps, restart_every, honaker) @ nodes(steps, restart_every)
    prefix = [[float(j <= i and j // restart_every == i // restart_every) for j in range(steps)] for i in range(steps)]
    np.testing.assert_allclose(mixed, prefix, atol=1e-6)


def test_honaker_leaves_the_least_variance_that_its_nodes_allow(fine_grid):
    plain = np.square(weights(16, 16, honaker=False)).sum(1)
    better = np.square(weights(16, 16, honaker=True)).sum(1)
    np.testing.assert_allclose(plain, [bin(step).count("1") for step in range(1, 17)])
    left = [1 / (2 - 2.0**-height) for height in range(5)]
    expected = [sum(left[height] for height in range(5) if step >> height & 1) for step in range(1, 17)]
    np.testing.assert_allclose(better, expected, rtol=1e-6)
    # Generalised least squares over all nodes of a complete block can do no better.
    matrix = nodes(16, 16)
    least = np.ones(16) @ np.linalg.inv(matrix.T @ matrix) @ np.ones(16)
    assert better[15] == pytest.approx(least)


def test_noise_is_in_units_of_the_norm():
    assert weights(1, 4, True, norm=0.5, std=3.0)[0, 0] == pytest.approx(1.5)


def test_nodes_have_the_planned_variance():
    tree = TreeSums(TreeNoise(3.0, 4, honaker=False), 0.5, seeded())
    zeros = {"a": torch.zeros(100_000), "b": torch.zeros(10, 10)}
    first, second, third = (tree.add(zeros)["a"].numpy() for _ in range(3))
    for values, in_it in ((first, 1), (second, 1), (third, 2)):
        assert variance_is(values, in_it * 1.5**2)


def test_without_noise_prefixes_are_exact_and_start_anew_after_a_restart():
    tree = TreeSums(TreeNoise(0.0, 3), 1.0, seeded())
    sums = [tree.add({"a": torch.tensor([float(step)])})["a"].item() for step in range(1, 8)]
    assert sums == [1, 3, 6, 4, 9, 15, 7]
    assert tree.step == 1


@pytest.mark.parametrize("honaker", [True, False])
def test_no_prefix_rules_a_step_out(honaker):
    """Of a node of two steps, not even where the noise of both leaves is known."""
    sums, own = sums_of_sites(), 2 / 3 if honaker else 1.0
    leaves = OSEntropy().normal(2 * len(sums[0])).view(2, -1)

    def release(sum, entropy):
        tree = TreeSums(TreeNoise(2.0, 4, honaker), 0.1, After(leaves, entropy))
        tree.add({"a": sum})
        return tree.add({"a": torch.ones_like(sum)})["a"]

    assert given_away(release, sums, 0.2 * own, known=1 + (1 - own) * 0.2 * leaves.sum(0)) == [0, 0]


def test_sums_that_were_given_are_not_changed():
    tree = TreeSums(TreeNoise(1.0, 4), 1.0, seeded())
    total = {"a": torch.ones(3)}
    for _ in range(3):
        tree.add(total)["a"].zero_()
    assert torch.equal(total["a"], torch.ones(3))
    assert tree.state()["tree.total"]["a"].tolist() == [3, 3, 3]


@pytest.mark.parametrize("stop", [0, 1, 3, 6])
def test_a_tree_goes_on_from_a_checkpoint(stop):
    totals = [{"a": torch.tensor([float(step), 1.0])} for step in range(8)]
    source, whole, half = SeededEntropy(Stream(0)), TreeNoise(1.0, 8), TreeNoise(1.0, 8)
    tree = TreeSums(whole, 1.0, source)
    prefixes = [tree.add(total)["a"] for total in totals]

    source = SeededEntropy(Stream(0))
    first = TreeSums(half, 1.0, source)
    again = [first.add(total)["a"] for total in totals[:stop]]
    second = TreeSums(half, 1.0, source).restore({"tree.block.7": {}} | first.state())
    again += [second.add(total)["a"] for total in totals[stop:]]
    assert all(torch.equal(one, other) for one, other in zip(prefixes, again, strict=True))
