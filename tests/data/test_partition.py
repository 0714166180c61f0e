import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.data.config import SitesConfig
from murmura.data.partition import partition
from murmura.errors import ConfigError
from murmura.streams import Stream

SCHEMES = ("iid", "dirichlet", "dirichlet-equal")
alphas = st.sampled_from([1e-300, 1e-6, 0.01, 0.5, 1.0, 100.0, 1e12])
labelled = st.lists(st.integers(0, 6), max_size=120).map(np.array)
seeds = st.integers(0, 2**32)


def rng(seed=0):
    return Stream(seed).numpy()


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=80, deadline=None)
@given(labels=labelled, sites=st.integers(1, 30), alpha=alphas, seed=seeds)
def test_every_item_goes_to_one_site(scheme, labels, sites, alpha, seed):
    shares = partition(labels, len(labels), sites, scheme, alpha, rng(seed))
    assert len(shares) == sites
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(labels)))
    for share in shares:
        assert share.dtype == np.int64
        assert (np.diff(share) > 0).all()


@pytest.mark.parametrize("scheme", ["iid", "dirichlet-equal"])
@settings(max_examples=80, deadline=None)
@given(labels=labelled, sites=st.integers(1, 30), alpha=alphas, seed=seeds)
def test_sizes_are_equal_within_one(scheme, labels, sites, alpha, seed):
    sizes = [len(share) for share in partition(labels, len(labels), sites, scheme, alpha, rng(seed))]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_seed_is_a_partition(scheme):
    labels = np.arange(200) % 7
    first, again, other = (partition(labels, 200, 5, scheme, 1.0, rng(seed)) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("scheme", ["dirichlet", "dirichlet-equal"])
def test_labels_may_be_words(scheme):
    numbers = np.arange(60) % 3
    words = np.array(["skin", "heart", "kidney"])[np.argsort(["skin", "heart", "kidney"])][numbers]
    by_number, by_word = (partition(labels, 60, 4, scheme, 0.5, rng()) for labels in (numbers, words))
    assert all(np.array_equal(a, b) for a, b in zip(by_number, by_word, strict=True))


def mixes(scheme, alpha, *, prior=(0.5, 0.3, 0.2), sites=2, items=1000, draws=400):
    """The share of each label at the first site, over many partitions: [draws, labels]."""
    labels = np.repeat(np.arange(len(prior)), np.rint(np.array(prior) * items).astype(int))
    generator = rng(11)
    firsts = [labels[partition(labels, items, sites, scheme, alpha, generator)[0]] for _ in range(draws)]
    return np.array([np.bincount(first, minlength=len(prior)) for first in firsts])


@pytest.mark.parametrize("alpha", [0.3, 1.0, 10.0])
def test_the_classic_form_draws_each_labels_shares_from_the_dirichlet(alpha):
    """Var of one share under Dir(alpha, ..., alpha) over N sites: (1/N)(1 - 1/N) / (N alpha + 1)."""
    sites = 4
    shares = mixes("dirichlet", alpha, sites=sites, draws=1500) / np.array([500, 300, 200])
    assert shares.mean(axis=0) == pytest.approx(1 / sites, abs=0.03)
    assert shares.var(axis=0) == pytest.approx((1 / sites) * (1 - 1 / sites) / (sites * alpha + 1), rel=0.12)
    assert abs(np.corrcoef(shares, rowvar=False)[0, 1]) < 0.08


@pytest.mark.parametrize("alpha", [0.3, 1.0, 10.0])
def test_the_equal_form_draws_each_sites_mix_around_the_prior(alpha):
    """Var of one label's share under Dir(alpha p): p (1 - p) / (alpha + 1), at the first site: it finds all stock."""
    prior = np.array([0.5, 0.3, 0.2])
    counts = mixes("dirichlet-equal", alpha, prior=prior, sites=20, draws=800)
    assert (counts.sum(axis=1) == 50).all()
    shares = counts / 50
    assert shares.mean(axis=0) == pytest.approx(prior, abs=0.03)
    assert shares.var(axis=0) == pytest.approx(prior * (1 - prior) / (alpha + 1), rel=0.15)


def test_a_mix_is_rounded_to_the_nearest_counts():
    """A huge alpha makes every mix the prior: 6.6 and 3.4 of 10."""
    counts = mixes("dirichlet-equal", 1e12, prior=(0.66, 0.34), sites=10, items=100, draws=3)
    assert (counts == (7, 3)).all()


def test_where_a_label_runs_out_the_others_fill_up():
    labels = np.repeat([0, 1], [90, 10])
    for seed in range(20):
        shares = partition(labels, 100, 10, "dirichlet-equal", 1e-6, rng(seed))
        assert [len(share) for share in shares] == [10] * 10


def test_a_tiny_alpha_gives_a_label_to_one_site_and_a_site_one_label():
    labels = np.arange(300) % 3
    classic = partition(labels, 300, 5, "dirichlet", 1e-300, rng())
    assert sum(len(share) > 0 for share in classic) <= 3
    equal = partition(labels, 300, 30, "dirichlet-equal", 1e-300, rng())
    assert len(set(labels[equal[0]])) == 1


def test_more_sites_than_items_leaves_some_empty():
    shares = partition(None, 2, 5, "iid", 1.0, rng())
    assert sorted(len(share) for share in shares) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"scheme": "dirichlet_equal"}, "'scheme' = 'dirichlet_equal'"),
        ({"count": 0}, "'count' = 0"),
        *(({"scheme": "dirichlet", "alpha": alpha}, "'alpha'") for alpha in (0.0, -1.0, float("nan"), float("inf"))),
    ],
)
def test_what_makes_no_partition_is_refused(given, named):
    with pytest.raises(ConfigError, match=named):
        SitesConfig.parse({"by": "partition", "count": 2} | given, "my.toml")
