"""Records in the plane, and histograms of their scores."""

import numpy as np
import pytest

from murmura.retrieval.map import histogram, plane


def two_domains(count):
    found = np.random.default_rng(0).normal(size=(2 * count, 16)) * 0.2
    found[:count, 0] += 1
    found[count:, 1] += 1
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def test_what_is_alike_lies_close_together():
    found = plane(two_domains(30), seed=3)
    assert found.shape == (60, 2) and found.dtype == np.float32
    assert np.abs(found).max() == 1
    apart = np.linalg.norm(found[:, None] - found, axis=2) + np.eye(60) * 9
    assert (apart.argmin(axis=1) < 30).tolist() == [True] * 30 + [False] * 30
    assert np.array_equal(found, plane(two_domains(30), seed=3))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 6])
def test_few_points_and_equal_ones_have_a_place(count):
    for given in (two_domains(3)[:count], np.repeat(two_domains(1)[:1], count, axis=0)):
        found = plane(given, seed=0)
        assert found.shape == (count, 2) and np.isfinite(found).all()


def test_every_score_is_in_a_bin_of_its_domain():
    scores = np.array([0.1, 0.9, 0.5, 0.5, 0.9], dtype=np.float32)
    found = histogram(scores, ["code", "math", "code", "code", "code"])
    assert list(found.counts) == ["code", "math"]
    assert {name: sum(counts) for name, counts in found.counts.items()} == {"code": 4, "math": 1}
    assert len(found.edges) == len(found.counts["code"]) + 1
    assert found.counts["math"][-1] == 1 and found.edges[0] == pytest.approx(0.1)
    assert histogram(np.zeros(0), []) is None
