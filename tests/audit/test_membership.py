"""Samples, and which attack is called the strongest."""

import warnings

import numpy as np
import pytest

from murmura.audit.membership import AuditSample, measured
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
