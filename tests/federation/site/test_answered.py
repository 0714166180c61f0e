"""A site counts its answers, and a process that is started again is no reason to give more of them."""

import pytest

from murmura.errors import RefusedError
from murmura.federation.site.answered import Answered


def given(path, most, run=None, **how):
    """How often a process answers before it refuses."""
    count, answered = 0, Answered(path, **how)
    with pytest.raises(RefusedError):
        while True:
            answered.enter("vote", count, most, run)
            count += 1
    return count


def test_that_it_was_started_again_grants_nothing(tmp_path):
    """Whoever makes it crash would get an answer, and less noise, each time."""
    assert [given(tmp_path / "answers", 2, again=False) for _ in range(4)] == [2, 0, 0, 0]


def test_its_owner_grants_one_more_each_time(tmp_path):
    path = tmp_path / "answers"
    assert [given(path, 2, again=again) for again in (False, True, False, True, True)] == [2, 1, 0, 1, 1]


def test_what_was_granted_and_not_given_is_not_lost_and_not_doubled(tmp_path):
    path = tmp_path / "answers"
    Answered(path, again=False).enter("vote", 1, 2)
    Answered(path, again=True).enter("vote", 2, 2)
    assert given(path, 2, again=False) == 1 and given(path, 2, again=False) == 0


def test_where_runs_are_told_apart_each_has_its_own_count(tmp_path):
    def attacks(run):
        return given(tmp_path / "measured", 2, again=False, run=run)

    assert [attacks(run) for run in ("a", "a", "b", "a", "b")] == [2, 0, 2, 0, 0]


@pytest.mark.parametrize("run", [None, "a"])
def test_only_where_all_runs_are_counted_together_another_one_takes_another_folder(tmp_path, run):
    path = tmp_path / "answers"
    Answered(path, again=False).enter("vote", 1, 1, run)
    with pytest.raises(RefusedError) as refused:
        Answered(path, again=False).enter("vote", 1, 1, run)
    assert ("takes another folder" in refused.value.fix) == (run is None)
