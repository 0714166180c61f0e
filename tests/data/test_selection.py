import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.data.records import Labelled
from murmura.data.selection import few_shot, kmeans, label_order, text_order
from murmura.errors import ConfigError, DataError
from murmura.streams import Stream


@pytest.fixture
def blobs():
    """60 points around 3 far corners, in turn."""
    noise = Stream(1).numpy().normal(scale=0.05, size=(60, 8))
    return (np.eye(3, 8)[np.arange(60) % 3] + noise).astype(np.float32)


def test_kmeans_finds_separate_groups(blobs):
    labels = kmeans(blobs, 3, seed=0)
    assert labels.dtype == np.int64
    assert [len(set(labels[first::3])) for first in range(3)] == [1, 1, 1]
    assert len(set(labels)) == 3


def test_kmeans_is_a_function_of_its_seed(blobs):
    assert np.array_equal(kmeans(blobs, 9, seed=5), kmeans(blobs, 9, seed=5))
    assert not np.array_equal(kmeans(blobs, 9, seed=5), kmeans(blobs, 9, seed=6))
    assert kmeans(blobs, 9, seed=Stream(0).integer()).shape == (60,)


def test_kmeans_runs_in_one_thread(blobs, monkeypatch):
    """What threads add up depends on which of them is done first."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_info, threadpool_limits

    seen, own = [], KMeans.fit_predict
    monkeypatch.setattr(KMeans, "fit_predict", lambda *given: seen.extend(threadpool_info()) or own(*given))
    with threadpool_limits(2):
        kmeans(blobs, 3, seed=0)
        assert {pool["num_threads"] for pool in threadpool_info()} == {2}
    assert {pool["num_threads"] for pool in seen} == {1}


def test_kmeans_of_repeated_rows_makes_no_empty_cluster(recwarn):
    rows = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    assert sorted(np.bincount(kmeans(rows, 10, seed=0))) == [4, 4, 4]
    assert not recwarn.list


@pytest.mark.parametrize("k", [0, -1, 61])
def test_kmeans_needs_a_record_for_every_cluster(blobs, k):
    with pytest.raises(ConfigError, match=rf"{k} clusters of 60 records, expected between 1 and 60"):
        kmeans(blobs, k, seed=0)


@given(
    clusters=st.lists(st.integers(0, 5), min_size=1, max_size=80).map(np.array),
    per_cluster=st.integers(1, 20),
    seed=st.integers(0, 1000),
)
def test_few_shot_takes_so_many_of_each_cluster_or_all(clusters, per_cluster, seed):
    chosen, apart = few_shot(clusters, per_cluster, 0, Stream(seed).numpy())
    assert len(apart) == 0
    assert (np.diff(chosen) > 0).all()
    for name in range(6):
        assert (clusters[chosen] == name).sum() == min(per_cluster, (clusters == name).sum())


def test_few_shot_chooses_at_random():
    clusters = np.zeros(50, dtype=int)
    chosen = [tuple(few_shot(clusters, 5, 0, Stream(seed).numpy())[0]) for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]
    counts = np.bincount(np.concatenate([few_shot(clusters, 5, 0, Stream(seed).numpy())[0] for seed in range(600)]))
    assert counts.min() > 30
    assert counts.max() < 95


def test_few_shot_wrong_arguments():
    with pytest.raises(DataError, match="no records"):
        few_shot(np.zeros(0), 1, 0, Stream(0).numpy())
    with pytest.raises(DataError, match="no records to choose few from, beside 3"):
        few_shot(np.zeros(3), 1, 3, Stream(0).numpy())


@given(
    clusters=st.lists(st.integers(0, 5), min_size=2, max_size=80).map(np.array),
    per_cluster=st.integers(1, 20),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_what_is_drawn_apart_is_as_many_as_asked_and_nothing_that_is_chosen(clusters, per_cluster, seed, data):
    count = data.draw(st.integers(1, len(clusters) - 1))
    chosen, apart = few_shot(clusters, per_cluster, count, Stream(seed).numpy())
    assert len(apart) == len(set(apart)) == count
    assert not set(apart) & set(chosen)
    assert all((clusters[chosen] == name).sum() <= per_cluster for name in range(6))


def test_what_is_drawn_apart_is_of_the_same_population():
    """Clusters of 2, 6, 30 and 200 records: a uniform draw would take five sixths of its records of the last one."""
    clusters = np.repeat(np.arange(4), (2, 6, 30, 200))
    draws = [few_shot(clusters, 5, 6, Stream(seed).numpy()) for seed in range(2000)]
    shares = [
        np.bincount(clusters[np.concatenate([draw[side] for draw in draws])]) / sum(len(draw[side]) for draw in draws)
        for side in (0, 1)
    ]
    assert shares[0] == pytest.approx(shares[1], abs=0.015)
    assert shares[1][3] < 0.4
    for chosen, _ in draws:
        counts = np.bincount(clusters[chosen], minlength=4)
        assert counts[2] == counts[3] == 5  # large clusters give as many as are asked for
    within = np.bincount(np.concatenate([apart for _, apart in draws]), minlength=238)
    assert within[8:38].std() < 2 * np.sqrt(within[8:38].mean())  # any record of a cluster is as likely


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    per_cluster=st.integers(1, 300),
    keep=st.integers(1, 4),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_each_cluster_keeps_what_it_is_to_keep(sizes, per_cluster, keep, seed, data):
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    most = sum(max(size - keep, 0) for size in sizes)
    count = data.draw(st.integers(0, most))
    _, apart = few_shot(clusters, per_cluster, count, Stream(seed).numpy(), keep)
    assert len(set(apart)) == count
    left = np.array(sizes) - np.bincount(clusters[apart], minlength=len(sizes))
    assert all(left >= np.minimum(sizes, keep))
    with pytest.raises(DataError):
        few_shot(clusters, per_cluster, most + 1, Stream(seed).numpy(), keep)


def test_without_a_limit_each_cluster_gives_its_share_and_each_record_is_as_likely():
    """119 of 238: half of each cluster, but for what rounding leaves to lots."""
    sizes = np.array([2, 7, 29, 200])
    clusters = np.repeat(np.arange(4), sizes)
    draws = [few_shot(clusters, len(clusters), 119, Stream(seed).numpy(), 1)[1] for seed in range(1000)]
    for apart in draws:
        assert all(abs(np.bincount(clusters[apart], minlength=4) - sizes / 2) < 1)
    assert np.bincount(np.concatenate(draws), minlength=238) / 1000 == pytest.approx(0.5, abs=0.08)


def test_what_is_drawn_apart_comes_in_random_order():
    clusters = np.repeat([0, 1], 50)
    firsts = [clusters[few_shot(clusters, 5, 4, Stream(seed).numpy())[1][0]] for seed in range(60)]
    assert 15 < sum(firsts) < 45


NOTES = [Labelled(f"note {n}", "good" if n % 3 else "") for n in range(60)]


@pytest.mark.parametrize("order", [text_order, label_order])
def test_records_keep_their_turn_whatever_others_there_are(order):
    all_in_order, some = [NOTES[place] for place in order(NOTES, 0)], NOTES[10:40]
    assert [some[place] for place in order(some, 0)] == [record for record in all_in_order if record in some]


def test_turns_follow_from_the_seed_and_records_without_a_label_come_last():
    first, second = label_order(NOTES, 0), label_order(NOTES, 1)
    assert first != second and sorted(first) == sorted(second) == list(range(60))
    assert [bool(NOTES[place].label) for place in first] == [True] * 40 + [False] * 20
    assert first[:40] != sorted(first[:40])
