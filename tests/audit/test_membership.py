"""Samples, and which attack is called the strongest."""

import warnings

import numpy as np
import pytest

from murmura.audit.membership import AuditSample, Readings, measured, unlike
from murmura.generation.scoring import TokenScores
from murmura.measure.attacks import Passes
from murmura.streams import Stream
from tests.audit.conftest import one_model

MEMBERS = {"a": list(range(30)), "b": list(range(10)), "c": []}


def test_every_member_is_as_likely_and_others_are_drawn_too():
    drawn = [AuditSample.drawn(MEMBERS, range(50), 8, Stream(seed)) for seed in range(200)]
    assert all(one.count == len(one.others) == 8 and "c" not in one.members for one in drawn)
    assert np.mean([len(one.members.get("a", ())) for one in drawn]) == pytest.approx(6, abs=0.4)
    assert len({tuple(one.others) for one in drawn}) == 200
    whole = AuditSample.drawn(MEMBERS, range(5), 100, Stream(0))
    assert whole.members == {"a": MEMBERS["a"], "b": MEMBERS["b"]} and sorted(whole.others) == list(range(5))


def test_the_strongest_is_chosen_by_the_records_set_apart_alone():
    """Where one attack is better on those and another on the rest, the first is named, with its figure on the rest."""
    stream = Stream(0)
    flat = one_model(np.arange(40), np.arange(40))
    apart = ~np.isin(np.arange(40), np.flatnonzero(_rest(40, stream / "members")))
    lucky = np.where(apart, 100.0, -100.0)
    found = measured(
        "model",
        {
            "luck": one_model(lucky, flat.others[0]),
            "plain loss": one_model(-lucky, np.zeros(40)),
            "skill": one_model(-lucky, flat.others[0]),
        },
        stream,
    )
    each = {one.attack: one for one in found.attacks}
    assert found.strongest == "luck" and each["luck"].auc == 0.0 and each["skill"].auc == 1.0
    assert (found.members, found.others) == (30, 30)
    assert each["plain loss"].control and not each["skill"].control


def _rest(count, stream):
    start = (stream / "apart").python().randrange(4)
    return (np.arange(count) + start) % 4 != 0


@pytest.mark.parametrize(("members", "others"), [(1, 1), (1, 30), (2, 3), (30, 1)])
def test_few_records_are_all_measured_on_without_a_warning(members, others):
    for seed in range(8):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            some = one_model(np.arange(members), np.arange(others))
            found = measured("model", {"one": some, "two": some}, Stream(seed))
        assert all(0 <= one.low <= one.auc <= one.high <= 1 for one in found.attacks)
        assert found.members >= 1 and found.others >= 1


@pytest.mark.parametrize(("apart", "expected"), [(0.0, False), (2.0, True)])
def test_records_of_different_kinds_are_seen_by_the_loss_before_training(apart, expected):
    """Whatever the model makes of them, which tells every member from every other."""
    rng = np.random.default_rng(0)

    def read(after, shift):
        return [Passes(tokens(np.full(3, after)), tokens(rng.normal(5.0 + shift, 1.0, 3))) for _ in range(30)]

    found = Readings({"a": read(0.1, 0.0)}, [read(9.0, apart)], {"a": 0})
    assert unlike(found) == expected


def tokens(nll):
    return TokenScores(nll.astype(np.float32), np.ones(len(nll), dtype=bool))
