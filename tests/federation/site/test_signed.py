"""What a site knows of the secure sums of other runs on its records."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from murmura.aggregation.config import SecureSumConfig
from murmura.errors import CheckpointError, SecureSumError
from murmura.federation.site.signed import SignedInAllRuns
from murmura.privacy.journal import Journal
from tests.federation.masked import Parties, votes

SAME, OTHER = b"the same question", b"another question"


CAST = (1, 2, 3, 4)


def opened(tmp_path, folder, records=("one", "two")):
    return SignedInAllRuns(tmp_path / "accounts", records, Journal(tmp_path / f"{folder}.journal"))


def summed(tmp_path, run, present, asked, *, records=("one", "two"), folder=None, cast=CAST, **options):
    """What site a is told of a sum over these sites in a run; others keep no account."""
    parties = Parties(4, options=SecureSumConfig(**options))
    known = opened(tmp_path, folder or run, records)
    enter = lambda line, repeats, **_: known.enter(line, run=run, repeats=repeats)  # noqa: E731
    parties.sites["a"]._all_runs = SimpleNamespace(enter=enter)
    parties.advertise(parties.names)
    parties.share(parties.names)
    parties.collect({name: votes(*cast) for name in present}, asked=dict.fromkeys(present, asked))
    return parties.sites["a"].confirm(parties.server.number, parties.server.members)[1]


def test_a_second_run_that_asks_the_same_of_one_site_less_is_refused(tmp_path):
    """Of the two sums the difference would be what that site has sent."""
    assert summed(tmp_path, "first", "abcd", SAME) == []
    with pytest.raises(SecureSumError, match="an earlier run has asked the same of other sites"):
        summed(tmp_path, "second", "abc", SAME)
    with pytest.raises(SecureSumError):  # nor after another attempt
        summed(tmp_path, "third", "abd", SAME)
    assert summed(tmp_path, "second", "abcd", SAME) == []


def test_a_servers_name_of_a_run_does_not_make_it_the_same_run(tmp_path):
    """It names a second folder of the federation, with a site less, as it did the first."""
    summed(tmp_path, "run", "abcd", SAME, folder="first")
    with pytest.raises(SecureSumError, match="an earlier run has asked the same of other sites"):
        summed(tmp_path, "run", "abc", SAME, folder="second", cast=(4, 3, 2, 1))
    with pytest.raises(SecureSumError):  # nor does the folder by itself
        summed(tmp_path, "other", "abc", SAME, folder="first")


def test_what_leaves_is_the_same_whatever_was_asked(tmp_path):
    """Such as with a field that no verb reads."""
    summed(tmp_path, "first", "abcd", SAME)
    with pytest.raises(SecureSumError, match="or had this site send the same"):
        summed(tmp_path, "second", "abc", OTHER)
    assert summed(tmp_path, "second", "abcd", OTHER) == []


def test_what_has_left_is_the_same_wherever_it_stands_in_a_vector(tmp_path):
    fields = {"votes": torch.zeros(4, dtype=torch.int64), "loss": 0.0}
    for run, present, like in (("first", "abcd", fields), ("second", "abc", dict(reversed(fields.items())))):
        parties = Parties(4, like=like)
        parties.sites["a"]._all_runs = opened(tmp_path, run)
        parties.advertise(parties.names)
        parties.share(parties.names)
        parties.collect({name: votes(*CAST) | {"loss": 0.5} for name in present}, asked={"a": run.encode()})
        with pytest.raises(SecureSumError) if run == "second" else nullcontext():
            parties.sites["a"].confirm(parties.server.number, parties.server.members)


def test_a_run_that_is_resumed_in_its_folder_is_the_same_run(tmp_path):
    """Its rounds have other sites than one another; within one, the folder's own journal keeps them the same."""
    line = {"verb": "vote", "asked": "x", "made": "y"}
    for sites in ("some", "others"):
        assert opened(tmp_path, "own").enter({**line, "sites": sites}, run="run", repeats=False) == []
    assert opened(tmp_path, "own").enter({**line, "sites": "some"}, run="run", repeats=False) == []
    assert len(Journal(tmp_path / "own.journal").lines) == 1


def test_updates_that_do_not_count_are_no_sign_of_the_same_sum(tmp_path):
    """A site whose update is no finite number sends zeros, and nobody is told: nor by what it refuses."""
    for run, present in (("first", "abcd"), ("second", "abc")):
        assert len(summed(tmp_path, run, present, run.encode(), cast=(0, 0, 0, 0))) == (run == "second")


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
    [told] = summed(tmp_path, "second", "abc", OTHER, cast=(4, 3, 2, 1))
    assert "an earlier run, or another site with the same records" in told
    known = opened(tmp_path, "third")
    line = {"verb": "vote", "asked": "another", "made": "otherwise", "sites": "others"}
    told = [known.enter(line, run="third", repeats=False) for _ in range(2)]
    assert list(map(len, told)) == [1, 0]


def test_an_owner_may_let_it_happen_and_is_told(tmp_path):
    summed(tmp_path, "first", "abcd", SAME)
    assert len(summed(tmp_path, "second", "abc", SAME, allow_cohort_change_on_retry=True)) == 1


def test_within_a_run_other_rounds_have_other_sites(tmp_path):
    known = opened(tmp_path, "own")
    for sites in ("some", "others"):
        line = {"verb": "vote", "asked": "x", "made": "y", "sites": sites}
        assert known.enter(line, run="run", repeats=False) == []


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
