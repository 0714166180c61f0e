import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.retrieval import rademacher
from murmura.retrieval.rademacher import RademacherProjection
from murmura.streams import Stream


def vectors(count, size, seed=0):
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


def dense(size, dimension, stream, rows):
    """The whole matrix, from the same streams."""
    blocks = []
    for number in range(-(-size // rows)):
        drawn = np.frombuffer((stream / number).numpy().bytes(rows * dimension // 8), dtype=np.uint8)
        blocks.append(np.unpackbits(drawn, bitorder="little").reshape(rows, dimension))
    return torch.from_numpy(np.concatenate(blocks)[:size].astype(np.float32)) * 2 - 1


@pytest.mark.parametrize(("size", "dimension", "rows"), [(100, 16, 24), (7, 16, 24), (50, 13, 8)])
def test_it_is_the_product_with_the_whole_matrix(monkeypatch, size, dimension, rows):
    monkeypatch.setattr(rademacher, "_NUMBERS", rows * dimension)
    signs = dense(size, dimension, Stream(4), rows)
    assert signs.unique().tolist() == [-1, 1]
    found = RademacherProjection(dimension, Stream(4))(vectors(3, size))
    torch.testing.assert_close(found, vectors(3, size) @ signs / dimension**0.5, atol=1e-5, rtol=1e-5)


def test_no_more_of_the_matrix_is_made_at_once_than_agreed(monkeypatch):
    made, block = [], RademacherProjection._block
    monkeypatch.setattr(RademacherProjection, "_block", lambda *args: made.append(found := block(*args)) or found)
    RademacherProjection(8192, Stream(0))(vectors(1, 1500))
    assert [tuple(found.shape) for found in made] == [(512, 8192)] * 3
    assert len({found[:, :8].numpy().tobytes() for found in made}) == 3


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), alike=st.floats(-1, 1))
def test_inner_products_are_kept_within_six_standard_deviations(seed, alike):
    """Which are at most √(2/d) of the lengths; so it fails once in 10⁸ times."""
    x, other = vectors(2, 300, seed)
    y = alike * x + (1 - abs(alike)) * other
    short = RademacherProjection(1024, Stream(seed))(torch.stack([x, y]))
    for a, b in ((0, 1), (0, 0), (1, 1)):
        long = torch.stack([x, y])
        error = abs(float(short[a] @ short[b] - long[a] @ long[b]))
        assert error <= 6 * (2 / 1024) ** 0.5 * float(long[a].norm() * long[b].norm()) + 1e-4


def test_another_stream_is_another_projection():
    one, same, other = (RademacherProjection(64, Stream(seed))(vectors(1, 40)) for seed in (0, 0, 1))
    assert one.equal(same) and not one.equal(other)
