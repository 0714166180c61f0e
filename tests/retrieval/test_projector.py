from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from murmura.errors import DataError
from murmura.retrieval.projector import ProjectorTraining, contrastive_loss, train
from murmura.streams import Stream


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def by_hand(projected, targets, temperature, include_positive, similarity):
    """Equation 4, term by term, in double precision."""

    def sim(a, b):
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return dot if similarity == "dot" else dot / math.hypot(*a) / math.hypot(*b)

    total, rows = 0.0, range(len(projected))
    for i in rows:
        others = [j for j in rows if include_positive or j != i]
        below = sum(math.exp(sim(projected[i], targets[j]) / temperature) for j in others)
        total -= math.log(math.exp(sim(projected[i], targets[i]) / temperature) / below)
    return total / len(projected)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("include_positive", [False, True])
def test_the_loss_is_that_of_equation_4(include_positive, similarity):
    rng = np.random.default_rng(0)
    projected, targets = rng.normal(size=(5, 3)) * 2, unit(rng.normal(size=(5, 3))).astype(float)
    ours = contrastive_loss(
        torch.tensor(projected), torch.tensor(targets), 0.5, include_positive=include_positive, similarity=similarity
    )
    assert float(ours) == pytest.approx(by_hand(projected, targets, 0.5, include_positive, similarity), rel=1e-12)


def test_the_least_loss_is_known():
    """Targets that are as far apart as can be, and a perfect projection: −1/τ + log 31 − 1/(31 τ)."""
    simplex = torch.eye(32, dtype=torch.float64) - 1 / 32
    assert float(contrastive_loss(simplex, simplex, 0.5)) == pytest.approx(-2 + math.log(31) - 2 / 31)
    with_positive = math.log(math.exp(2) + 31 * math.exp(-2 / 31)) - 2
    assert float(contrastive_loss(simplex, simplex, 0.5, include_positive=True)) == pytest.approx(with_positive)


@pytest.fixture(scope="module")
def spaces():
    """600 texts in a small space, and in a larger one of which it is a linear image."""
    rng = np.random.default_rng(1)
    large = unit(rng.normal(size=(600, 12)))
    return unit(large @ rng.normal(size=(12, 8))), large


TRAINING = ProjectorTraining(epochs=8, lr=3e-3)


def found(projected, targets):
    """Of how many texts the projection is more like their own vector than like any other one."""
    return float(((projected @ targets.T).argmax(axis=1) == np.arange(len(targets))).mean())


@pytest.mark.parametrize(("include_positive", "similarity"), [(False, "cosine"), (True, "cosine"), (True, "dot")])
def test_a_projector_finds_texts_that_it_was_not_trained_on(spaces, include_positive, similarity):
    small, large = spaces
    training = ProjectorTraining(epochs=8, lr=3e-3, include_positive=include_positive, similarity=similarity)
    before = train(small[:500], large[:500], 0, ProjectorTraining(epochs=0))
    after = train(small[:500], large[:500], 0, training)
    assert found(before.project(small[500:]), large[500:]) < 0.1
    assert found(after.project(small[500:]), large[500:]) > 0.5
    assert len(after.losses) == 8 and after.losses[-1] < after.losses[0] - 0.3


def test_projections_are_unit_float32(spaces):
    small, large = spaces
    projected = train(small, large, 0, ProjectorTraining(epochs=1)).project(3 * small[:7].astype(np.float64))
    assert (projected.dtype, projected.shape) == (np.float32, (7, 12))
    assert np.linalg.norm(projected, axis=1) == pytest.approx(1.0, abs=1e-5)


def test_the_same_seed_gives_the_same_projector_and_leaves_torchs_own_generator_alone(spaces):
    small, large = spaces
    torch.manual_seed(0)
    state = torch.get_rng_state()
    one, same, other = (train(small[:99], large[:99], seed, TRAINING).project(small) for seed in (0, 0, 1))
    assert np.array_equal(one, same) and not np.allclose(one, other, atol=1e-3)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("n", [2, 3, 33, 65])
def test_no_text_is_alone_in_a_batch(spaces, n):
    small, large = spaces
    for batch in (2, 32):
        assert np.isfinite(train(small[:n], large[:n], 0, ProjectorTraining(batch=batch)).losses).all()


def test_one_text_has_nothing_to_be_told_from(spaces):
    small, large = spaces
    with pytest.raises(DataError, match="1 texts to train a projector on, expected at least 2"):
        train(small[:1], large[:1], 0)


def test_the_order_of_the_texts_follows_from_the_seed_alone(spaces, monkeypatch):
    asked = []
    monkeypatch.setattr(Stream, "torch", lambda self: asked.append(self.path) or torch.Generator().manual_seed(0))
    train(*(vectors[:40] for vectors in spaces), seed=3, training=ProjectorTraining(epochs=2))
    assert asked == [("projector", "initial"), ("projector", "order", 0), ("projector", "order", 1)]
