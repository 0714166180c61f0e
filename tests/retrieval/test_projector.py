import math

import numpy as np
import pytest
import torch

from murmura.errors import DataError
from murmura.retrieval.projector import ProjectorTraining, contrastive_loss, train
from murmura.streams import Stream


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def by_hand(projected, targets, temperature, positive, similarity):
    """Equation 4, term by term, in double precision."""

    def sim(a, b):
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return dot if similarity == "dot" else dot / math.hypot(*a) / math.hypot(*b)

    total, rows = 0.0, range(len(projected))
    for i in rows:
        others = [j for j in rows if positive or j != i]
        below = sum(math.exp(sim(projected[i], targets[j]) / temperature) for j in others)
        total -= math.log(math.exp(sim(projected[i], targets[i]) / temperature) / below)
    return total / len(projected)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("positive", [False, True])
def test_the_loss_is_that_of_equation_4(positive, similarity):
    rng = np.random.default_rng(0)
    projected, targets = rng.normal(size=(5, 3)) * 2, unit(rng.normal(size=(5, 3))).astype(float)
    ours = contrastive_loss(
        torch.tensor(projected), torch.tensor(targets), 0.5, positive=positive, similarity=similarity
    )
    assert float(ours) == pytest.approx(by_hand(projected, targets, 0.5, positive, similarity), rel=1e-12)


def test_the_least_loss_is_known():
    """Targets that are as far apart as can be, and a perfect projection: −1/τ + log 31 − 1/(31 τ)."""
    simplex = torch.eye(32, dtype=torch.float64) - 1 / 32
    assert float(contrastive_loss(simplex, simplex, 0.5)) == pytest.approx(-2 + math.log(31) - 2 / 31)
    with_positive = math.log(math.exp(2) + 31 * math.exp(-2 / 31)) - 2
    assert float(contrastive_loss(simplex, simplex, 0.5, positive=True)) == pytest.approx(with_positive)


@pytest.fixture(scope="module")
def spaces():
    """600 texts in a small space, and in a larger one of which it is a linear image."""
    rng = np.random.default_rng(1)
    large = unit(rng.normal(size=(600, 12)))
    return unit(large @ rng.normal(size=(12, 8))), large


TRAINING = ProjectorTraining(epochs=8, lr=3e-3)
AUTHORS = ProjectorTraining(epochs=3, lr=1e-4, hidden=128, heldout=0)


def found(projected, targets):
    """Of how many texts the projection is more like their own vector than like any other one."""
    return float(((projected @ targets.T).argmax(axis=1) == np.arange(len(targets))).mean())


@pytest.mark.parametrize(("positive", "similarity"), [(False, "cosine"), (True, "cosine"), (True, "dot")])
def test_a_projector_finds_texts_that_it_was_not_trained_on(spaces, positive, similarity):
    small, large = spaces
    training = ProjectorTraining(epochs=8, lr=3e-3, positive=positive, similarity=similarity, hidden=128, heldout=0)
    before = train(small[:500], large[:500], 0, ProjectorTraining(epochs=0, heldout=0))
    after = train(small[:500], large[:500], 0, training)
    assert found(before.project(small[500:]), large[500:]) < 0.1
    assert found(after.project(small[500:]), large[500:]) > 0.5
    assert len(after.losses) == 8 and after.losses[-1] < after.losses[0] - 0.3 and after.heldout == []


def loss_of(projector, small, large):
    return float(contrastive_loss(torch.from_numpy(projector.project(small)), torch.from_numpy(large), 0.5))


def test_training_goes_on_until_texts_held_out_gain_no_more(spaces):
    """By itself a projector trains for long enough, and the weights that it ends with are those that did best."""
    small, large = spaces
    own, authors = (train(small[:500], large[:500], 0, training) for training in (None, AUTHORS))
    least = int(np.argmin(own.heldout))
    assert 3 < len(own.losses) == len(own.heldout) == least + 4 < 100
    assert own.in_words.startswith(f"the projector into the pool's space was trained for {least + 4} epochs; its")
    again = train(small[:500], large[:500], 0, ProjectorTraining(epochs=least + 1))
    assert np.array_equal(own.project(small), again.project(small)) and again.heldout == own.heldout[: least + 1]
    assert loss_of(own, small[500:], large[500:]) < loss_of(authors, small[500:], large[500:]) - 0.5


def test_texts_held_out_are_not_trained_on_and_each_other_one_is(spaces):
    """A text that is not trained on moves no loss but that of the texts held out, and the other way round."""
    small, large = (vectors[:20] for vectors in spaces)
    training, moved = ProjectorTraining(epochs=1, heldout=0.2), []
    own = train(small, large, 0, training)
    for row in range(20):
        other = large.copy()
        other[row] *= -1
        changed = train(small, other, 0, training)
        moved.append(changed.losses != own.losses)
        assert changed.heldout != own.heldout  # by what it was trained on, or by itself
    assert sum(moved) == 16


def test_projections_are_as_long_as_what_is_projected(spaces):
    """So that the dot product with a centre is, in either space, the mean cosine with what it is the centre of."""
    small, large = spaces
    lengths = np.array([0, 0.3, 0.5, 0.7, 1, 1.5, 3])
    projected = train(small, large, 0, ProjectorTraining(epochs=1)).project(lengths[:, None] * small[:7])
    assert (projected.dtype, projected.shape) == (np.float32, (7, 12))
    assert np.linalg.norm(projected, axis=1) == pytest.approx(lengths, abs=1e-5)


def test_the_same_seed_gives_the_same_projector_and_leaves_torchs_own_generator_alone(spaces):
    small, large = spaces
    torch.manual_seed(0)
    state = torch.get_rng_state()
    one, same, other = (train(small[:99], large[:99], seed, TRAINING).project(small) for seed in (0, 0, 1))
    assert np.array_equal(one, same) and not np.allclose(one, other, atol=1e-3)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("n", [4, 5, 33, 65, 330])
def test_no_text_is_alone_in_a_batch(spaces, n):
    small, large = (vectors[:n] for vectors in spaces)
    for batch in (2, 32):
        held = train(small, large, 0, ProjectorTraining(epochs=2, batch=batch))
        assert np.isfinite([*held.losses, *held.heldout]).all()
        assert np.isfinite(train(small[2:], large[2:], 0, ProjectorTraining(2, batch=batch, heldout=0)).losses).all()


def test_one_text_has_nothing_to_be_told_from(spaces):
    small, large = spaces
    with pytest.raises(DataError, match="1 texts to train a projector on, expected at least 2"):
        train(small[:1], large[:1], 0, ProjectorTraining(heldout=0))
    with pytest.raises(DataError, match="3 texts to train a projector on, expected at least 2 beside 2 held out"):
        train(small[:3], large[:3], 0)


def test_the_order_of_the_texts_follows_from_the_seed_alone(spaces, monkeypatch):
    asked = []
    monkeypatch.setattr(Stream, "torch", lambda self: asked.append(self.path) or torch.Generator().manual_seed(0))
    train(*(vectors[:40] for vectors in spaces), seed=3, training=ProjectorTraining(epochs=2, heldout=0))
    assert asked == [("projector", "initial"), ("projector", "order", 0), ("projector", "order", 1)]
