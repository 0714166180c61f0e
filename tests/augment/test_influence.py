import math

import pytest
import torch
from torch.nn import functional as F

from murmura.augment.influence import features, influences
from murmura.retrieval.rademacher import RademacherProjection
from murmura.streams import Stream
from murmura.training import by_example
from murmura.training.bank import Bank
from murmura.training.by_example import example_gradients
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.warm_up import Milestone, Moments, warm_up
from tests.training.helpers import EPS, Item, items, random_state

TRAINING = LocalTraining(lr=0.01, epochs=2, batch_size=4, eps=EPS)
PROJECTION = RademacherProjection(256, Stream(0))


@pytest.fixture
def bank(llama):
    return Bank(llama, LoraSpec(rank=4, alpha=8))


def milestone(bank, seed, rate):
    generator = torch.Generator().manual_seed(seed)
    mean, square = torch.randn(2, bank.size, generator=generator) * 0.1
    return Milestone(random_state(bank, seed), Moments(mean, square.square(), (0.9, 0.999)), rate)


def own_features(bank, milestones, records):
    found = []
    for one in milestones:
        bank.load([one.state])
        found.append(features(bank, records, TRAINING, PROJECTION))
    return torch.stack(found)


def direction(bank, record, one=None):
    """Of one record by itself, projected: Adam's or the gradient's."""
    gradient = example_gradients(bank, [record], 0, TRAINING)
    return PROJECTION(gradient if one is None else one.moments.direction(gradient))[0]


def by_hand(bank, milestones, public, own):
    """Every Σ η̄ ⟨Γ(z), ∇(z')⟩ as [public, own], a record at a time."""
    total = torch.zeros(len(public), len(own))
    for one, share in zip(milestones, (0.75, 0.25), strict=True):
        bank.load([one.state])
        steps, gradients = [direction(bank, z, one) for z in public], [direction(bank, other) for other in own]
        for i, step in enumerate(steps):
            for j, gradient in enumerate(gradients):
                total[i, j] += share * F.cosine_similarity(step, gradient, dim=0)
    return total


@pytest.mark.parametrize("over", ["max", "mean"])
def test_it_is_the_sum_over_epochs_of_weighted_cosines(bank, monkeypatch, over):
    milestones = [milestone(bank, 1, 0.03), milestone(bank, 2, 0.01)]
    public, own = items(5, seed=1), [items(3, seed=2), [], items(2, seed=3)]
    validation = [own_features(bank, milestones, records) for records in own]
    assert [tuple(given.shape) for given in validation] == [(2, 3, 256), (2, 0, 256), (2, 2, 256)]
    monkeypatch.setitem(by_example.HELD, "cpu", 3 * bank.size)
    found = influences(bank, public, milestones, validation, TRAINING, PROJECTION, over)
    for site in (0, 2):
        sums = by_hand(bank, milestones, public, own[site])
        expected = sums.amax(1) if over == "max" else sums.mean(1)
        torch.testing.assert_close(found[:, site], expected, atol=1e-5, rtol=1e-4)
    assert not found[:, 1].any()


def test_a_record_whose_gradient_is_no_number_has_no_influence(bank):
    state = random_state(bank, 0)
    bank.load([{name: tensor * float("inf") for name, tensor in state.items()}])
    assert not features(bank, items(2), TRAINING, PROJECTION).any()


def test_the_matrix_of_a_projection_is_made_once(bank, monkeypatch):
    made, block = [], RademacherProjection._block
    monkeypatch.setattr(
        RademacherProjection, "_block", lambda self, number, device: made.append(number) or block(self, number, device)
    )
    bank.load([random_state(bank, 0)])
    features(bank, items(3), TRAINING, RademacherProjection(2**16, Stream(0)))
    assert made == list(range(math.ceil(bank.size / 64))) and len(made) > 1


@pytest.mark.parametrize("over", ["max", "mean"])
def test_a_planted_record_that_is_like_the_site_s_own_ranks_first(bank, over):
    """The same answers to other questions, among records of random tokens; after a warm-up on those."""
    public = items(12, seed=5, longest=16)
    answer = [41, 87, 140, 201, 17, 63]
    own = [Item([11 * k + 13, 29, 31, *answer], [-100] * 3 + answer) for k in range(3)]
    planted = Item([222, 223, *answer], [-100] * 2 + answer)
    start = bank.initial(Stream(0))
    milestones = warm_up(bank, public, start, TRAINING, Stream(1))
    validation = [own_features(bank, milestones, own), own_features(bank, milestones, public[:2])]
    found = influences(bank, [*public, planted], milestones, validation, TRAINING, PROJECTION, over)
    assert int(found[:, 0].argmax()) == 12
    assert int(found[:, 1].argmax()) in (0, 1)
