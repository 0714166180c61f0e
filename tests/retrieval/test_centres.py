import numpy as np
import pytest

from murmura.retrieval.centres import cluster
from murmura.streams import Stream
from tests.retrieval.pools import normed


@pytest.fixture
def groups():
    """Unit vectors around 4 corners: 20, 9, 3 and 1 of them; and the corner of each."""
    owners = np.repeat(np.arange(4), [20, 9, 3, 1])
    noise = Stream(3).numpy().normal(scale=0.05, size=(33, 8))
    return normed(np.eye(4, 8)[owners] + noise), owners


def test_centres_are_means_as_they_are(groups):
    vectors, owners = groups
    found = cluster(vectors, 4, seed=0)
    assert sorted(found.sizes) == [1, 3, 9, 20]
    assert (found.points.dtype, found.sizes.dtype, found.points.shape) == (np.float32, np.int64, (4, 8))
    for point, size in zip(found.points, found.sizes, strict=True):
        own = vectors[owners == point.argmax()]
        assert len(own) == size
        assert point == pytest.approx(own.mean(axis=0), abs=1e-6)
    assert np.linalg.norm(found.points, axis=1).min() < 0.999  # not brought back to length 1


def test_the_same_seed_gives_the_same_clusters():
    vectors = normed(Stream(0).numpy().normal(size=(80, 6)))
    one, same, other = (cluster(vectors, 9, seed=seed) for seed in (4, 4, 5))
    assert np.array_equal(one.points, same.points) and np.array_equal(one.sizes, same.sizes)
    assert not np.array_equal(one.points, other.points)


@pytest.mark.parametrize("n", [1, 3, 10])
def test_fewer_different_texts_than_clusters_are_as_many_clusters(n, recwarn):
    vectors = np.repeat(np.eye(10, dtype=np.float32)[:n], 2, axis=0)
    found = cluster(vectors, 10, seed=0)
    assert found.sizes.tolist() == [2] * n
    assert sorted(map(tuple, found.points)) == sorted(map(tuple, np.eye(10, dtype=np.float32)[:n]))
    assert not recwarn.list


@pytest.mark.parametrize(("smallest", "sizes"), [(2, [4, 9, 20]), (4, [4, 9, 20]), (5, [13, 20]), (14, [33])])
def test_small_clusters_join_the_nearest(groups, smallest, sizes):
    vectors, owners = groups
    vectors = vectors.copy()
    vectors[owners == 3] = normed([[0, 0.1, 1, 0.5, 0, 0, 0, 0]])  # its nearest corner is the third
    vectors[owners == 2] = normed(vectors[owners == 2] + np.eye(1, 8, 1))  # whose nearest is the second
    found = cluster(vectors, 4, seed=0, smallest=smallest)
    assert sorted(found.sizes) == sizes
    # Whatever joins what, the centres' weighted mean stays that of all texts.
    assert found.sizes @ found.points / 33 == pytest.approx(vectors.mean(axis=0), abs=1e-6)


def test_fewer_texts_than_the_smallest_cluster_may_have_are_not_told_at_all(groups):
    vectors, _ = groups
    assert cluster(vectors[:4], 2, seed=0, smallest=5).points.shape == (0, 8)
    assert len(cluster(vectors[:0], 2, seed=0)) == 0
    assert cluster(vectors[:5], 2, seed=0, smallest=5).sizes.tolist() == [5]
