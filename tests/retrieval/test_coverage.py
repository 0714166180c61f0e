import numpy as np
import pytest

from murmura.retrieval import search
from murmura.retrieval.coverage import closest, coverage
from tests.retrieval.pools import unit

DOMAIN = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)


def test_it_is_the_mean_over_the_domain_of_the_largest_cosine():
    assert coverage(DOMAIN, DOMAIN[:2]) == pytest.approx(2 / 3)


def test_nothing_covers_nothing():
    assert coverage(DOMAIN, DOMAIN[:0]) == 0.0
    assert coverage(DOMAIN[:0], DOMAIN) == 0.0


def test_what_covers_badly_counts_as_that():
    """Cosines below 0 are not taken for 0."""
    assert coverage(DOMAIN[:1], DOMAIN[2:]) == pytest.approx(-1.0)


@pytest.mark.parametrize("block", [1, 5, 32, 1000])
def test_blocks_make_no_difference(block):
    domain, covering = unit(83, 12, 0), unit(47, 12, 1)
    whole = domain.astype(np.float64) @ covering.astype(np.float64).T
    assert closest(domain, covering, block=block) == pytest.approx(whole.max(axis=1), abs=1e-6)
    assert coverage(domain, covering, block=block) == pytest.approx(whole.max(axis=1).mean(), abs=1e-6)


def test_at_most_a_block_of_each_is_multiplied(monkeypatch):
    tensor, sizes = search.tensor, set()
    monkeypatch.setattr(
        "murmura.retrieval.coverage.tensor", lambda array, device: (sizes.add(len(array)), tensor(array, device))[1]
    )
    assert coverage(unit(83, 12, 0), unit(47, 12, 1), block=20) < 1.0
    assert sizes == {20, 7, 3}
