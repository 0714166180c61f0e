"""What a site knows of the secure sums of other runs on its records."""

from types import SimpleNamespace

import pytest

from murmura.aggregation.config import SecureSumConfig
from murmura.errors import CheckpointError, SecureSumError
from murmura.federation.site.signed import SignedInAllRuns
from tests.federation.masked import Parties, votes

SAME, OTHER = b"the same question", b"another question"


def summed(tmp_path, run, present, asked, *, records=("one", "two"), **options):
    """What site a is told of a sum over these sites in a run; others keep no account."""
    parties = Parties(4, options=SecureSumConfig(**options))
    known = SignedInAllRuns(tmp_path / "accounts", records)
    enter = lambda line, repeats, **_: known.enter(line, run=run, repeats=repeats)  # noqa: E731
    parties.sites["a"]._all_runs = SimpleNamespace(enter=enter)
    parties.advertise(parties.names)
    parties.share(parties.names)
    parties.collect({name: votes(1, 2, 3, 4) for name in present}, asked=dict.fromkeys(present, asked))
    return parties.sites["a"].confirm(parties.server.number, parties.server.members)[1]


def test_a_second_run_that_asks_the_same_of_one_site_less_is_refused(tmp_path):
    """Of the two sums the difference would be what that site has sent."""
    assert summed(tmp_path, "first", "abcd", SAME) == []
    with pytest.raises(SecureSumError, match="an earlier run has asked the same of other sites"):
        summed(tmp_path, "second", "abc", SAME)
    with pytest.raises(SecureSumError):  # nor after another attempt
        summed(tmp_path, "third", "abd", SAME)
    assert summed(tmp_path, "second", "abcd", SAME) == []


def test_records_are_known_by_what_they_are(tmp_path):
    summed(tmp_path, "first", "abcd", SAME, records=["some"])
    assert summed(tmp_path, "second", "abc", SAME, records=["others"]) == []


def test_records_in_another_order_are_the_same(tmp_path):
    """They vote alike to the last vote, and so the difference of two sums is the same too."""
    summed(tmp_path, "first", "abcd", SAME, records=["one", "two"])
    with pytest.raises(SecureSumError):
        summed(tmp_path, "second", "abc", SAME, records=["two", "one"])


def test_of_a_run_that_asks_other_things_of_other_sites_the_owner_is_told_once(tmp_path):
    summed(tmp_path, "first", "abcd", SAME)
    [told] = summed(tmp_path, "second", "abc", OTHER)
    assert "an earlier run has summed over other sites" in told
    known = SignedInAllRuns(tmp_path / "accounts", ["one", "two"])
    line = {"verb": "vote", "asked": "another", "sites": "others"}
    told = [known.enter(line, run="third", repeats=False) for _ in range(2)]
    assert list(map(len, told)) == [1, 0]


def test_an_owner_may_let_it_happen_and_is_told(tmp_path):
    summed(tmp_path, "first", "abcd", SAME)
    assert len(summed(tmp_path, "second", "abc", SAME, allow_cohort_change_on_retry=True)) == 1


def test_within_a_run_other_rounds_have_other_sites(tmp_path):
    known = SignedInAllRuns(tmp_path, ["one"])
    for sites in ("some", "others"):
        assert known.enter({"verb": "vote", "asked": "x", "sites": sites}, run="run", repeats=False) == []


def test_without_an_account_over_all_runs_the_owner_is_told_what_that_means():
    parties = Parties(3)
    told = []
    for round in (1, 2):
        parties.begin(round)
        parties.advertise(parties.names)
        parties.share(parties.names)
        parties.collect({name: votes(1, 2, 3, 4) for name in parties.names})
        told += parties.sites["a"].confirm(parties.server.number, parties.server.members)[1]
    assert len(told) == 1 and "does not notice where another run" in told[0]


def test_what_cannot_be_entered_is_not_signed(tmp_path):
    (tmp_path / "accounts").write_text("a file")
    with pytest.raises(CheckpointError, match="cannot be written"):
        summed(tmp_path, "first", "abcd", SAME)
