"""Levels that figures reach without skill, against their definitions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.measure import guessing

LABELS = ["neutral"] * 5 + ["positive"] * 3 + ["negative"] * 2


def test_the_majority_is_right_that_often():
    assert guessing.majority(LABELS) == 0.5


def test_the_loss_is_that_of_the_others_shares():
    spelt = [-math.log(sum(other == one for other in LABELS[:k] + LABELS[k + 1 :]) / 9) for k, one in enumerate(LABELS)]
    assert guessing.loss(LABELS) == pytest.approx(sum(spelt) / 10)
    assert guessing.loss(LABELS, [2] * 10) == pytest.approx(sum(spelt) / 20)


@pytest.mark.parametrize("answers", [[], ["free"], ["one text", "another"], [*LABELS, "mixed"]])
def test_of_answers_that_nobody_else_has_nothing_is_known(answers):
    assert guessing.loss(answers) is None


@given(st.lists(st.sampled_from("abc"), min_size=2))
def test_it_is_never_below_the_entropy_of_the_shares(answers):
    """Which whoever knew these very answers would have."""
    found, shares = guessing.loss(answers), [answers.count(one) / len(answers) for one in set(answers)]
    assert found is None or found >= -sum(share * math.log(share) for share in shares) - 1e-12
