"""Each score against its definition, spelt out; the names that tasks use."""

import random

import numpy as np
import pytest

from murmura.generation.scoring import TokenScores
from murmura.measure.attacks import ATTACKS, CONTROL, WINDOWS, Passes
from murmura.measure.catalogue import READS
from murmura.tasks import TASKS


def passes_of(seed, tokens):
    rng = random.Random(seed)

    def found():
        nll = [rng.randrange(16) / 8 for _ in range(tokens)]  # exact, and some tokens do not move
        return TokenScores(np.array(nll, dtype=np.float32), np.array([rng.random() < 0.4 for _ in range(tokens)]))

    return Passes(found(), found())


def by_hand(name, passes):
    model, base, first = passes.model.nll.tolist(), passes.base.nll.tolist(), passes.model.first.tolist()
    moved = [b - m for m, b in zip(model, base, strict=True)]
    if name == "error zone":
        first = [False] * len(first) if all(first) else first
        up = sum(max(d, 0) for d, right in zip(moved, first, strict=True) if not right)
        down = sum(max(-d, 0) for d, right in zip(moved, first, strict=True) if not right)
        return up / (up + down) if up + down else 0.5
    if name == "loss difference":
        return sum(moved) / len(moved)
    if name == "window votes":
        shares = []
        for size in [size for size in WINDOWS if size <= len(moved)] or [1]:
            sums = [sum(moved[start : start + size]) for start in range(len(moved) - size + 1)]
            votes = [0.5 if one == 0 else float(one > 0) for one in sums]
            shares.append(sum(votes) / len(votes))
        return sum(shares) / len(shares)
    assert name == CONTROL
    return -sum(model) / len(model)


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("tokens", [1, 2, 7, 60])
def test_scores_are_their_definitions(name, tokens):
    for seed in range(5):
        passes = passes_of(seed, tokens)
        assert ATTACKS[name](passes) == pytest.approx(by_hand(name, passes), abs=1e-9)


def test_window_votes_count_windows_of_each_size():
    after, before = np.array([1.0, 4.0, 1.0, 1.0]), np.array([2.0, 1.0, 2.0, 2.0])
    passes = Passes(TokenScores(after, after > 0), TokenScores(before, after > 0))
    # Size 2: sums −2, −2, 2; size 3: −1, −1; size 4: 0, which is half a vote.
    assert ATTACKS["window votes"](passes) == pytest.approx((1 / 3 + 0 + 1 / 2) / 3)


def test_what_every_attack_goes_by_is_said():
    assert READS.keys() == ATTACKS.keys()


def test_nothing_moved_says_nothing():
    same = passes_of(0, 12).model
    found = {name: attack(Passes(same, same)) for name, attack in ATTACKS.items()}
    assert (found["error zone"], found["loss difference"], found["window votes"]) == (0.5, 0.0, 0.5)


def test_rounding_alone_is_no_vote_on_the_whole():
    """Records that are read beside others may move by a rounding, and others not at all: neither looks like a member
    more often than the other."""
    generator, still = np.random.default_rng(0), np.ones(40)
    first = still > 0
    scores = []
    for _ in range(400):
        moved = still + generator.normal(scale=1e-7, size=40)
        scores.append(ATTACKS["window votes"](Passes(TokenScores(moved, first), TokenScores(still, first))))
    same = ATTACKS["window votes"](Passes(TokenScores(still, first), TokenScores(still, first)))
    above = np.mean([(one > same) + 0.5 * (one == same) for one in scores])
    assert abs(above - 0.5) < 4 * 0.5 / 400**0.5


def test_every_attack_of_a_task_is_there_and_the_control_with_them():
    for task in TASKS.values():
        assert set(task.attacks) <= ATTACKS.keys() and CONTROL in task.attacks and len(task.attacks) > 1
