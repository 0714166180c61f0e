import pytest

from murmura.errors import PrivacyError
from murmura.privacy.journal import Journal
from murmura.privacy.reported import ReportedEpsilons


def figures(epsilon, refused=None):
    return {"epsilon": epsilon, "refused": refused}


def told(epsilon, refused=None, answers=9):
    return figures(epsilon, refused) | {"answers": answers}


def test_what_sites_said_last_outlives_the_process(tmp_path):
    file = tmp_path / "reported.journal"
    said = ReportedEpsilons(file)
    for site, epsilon in (("a", 1.0), ("b", 2.0), ("a", 3.0), ("a", 3.0)):
        said.record(site, told(epsilon))
    assert ReportedEpsilons(file).worst == said.worst == figures(3.0)
    assert file.read_text().count("\n") == 3  # what was said before is not written again


def test_what_a_site_says_does_nothing_to_whoever_reads_it():
    said = ReportedEpsilons()
    said.record("a", told(None, "no ε\n\x1b[2Jround 9: ε = 0.1"))
    assert said.worst["refused"] == "site a says: no ε\\n\\x1b[2Jround 9: ε = 0.1"


def test_an_edited_one_is_refused(tmp_path):
    file = tmp_path / "reported.journal"
    ReportedEpsilons(file).record("a", told(9.0))
    file.write_text(file.read_text().replace("9.0", "1.0"))
    with pytest.raises(PrivacyError, match="that sites have reported"):
        ReportedEpsilons(file)


def test_the_worst_is_what_the_least_protected_site_said_last():
    said = ReportedEpsilons()
    for site, epsilon in (("a", 1.0), ("b", 2.0)):
        said.record(site, told(epsilon))
    assert said.worst == figures(2.0)
    said.record("a", told(0.5))  # nobody can have spent less than before
    assert said.worst["epsilon"] is None and "site a has lost what it had spent" in said.worst["refused"]
    said.record("a", told(4.0))  # and what is lost stays lost
    assert said.worst["epsilon"] is None


def test_a_ledger_with_fewer_answers_than_have_come_has_lost_some(tmp_path):
    """Put back from a copy, it is again what it was, and the next answer brings ε to where it had been."""
    file = tmp_path / "reported.journal"
    for answers, epsilon in enumerate((1.0, 1.5, 1.8), start=1):
        said = ReportedEpsilons(file)
        said.asked(["a"], answers, lambda times: 9.0)
        said.record("a", told(epsilon, answers=answers), answers=1)
        assert said.worst == figures(epsilon)
    said.record("a", told(1.8, answers=3))  # told once more, with no answer
    assert ReportedEpsilons(file).worst == figures(1.8)
    said.record("a", told(1.8, answers=3), answers=1)
    for one in (said, ReportedEpsilons(file)):
        assert one.worst["epsilon"] is None and "site a has lost what it had spent" in one.worst["refused"]


def test_sites_that_do_not_say_what_they_have_spent_leave_no_epsilon_until_they_do(tmp_path):
    file = tmp_path / "reported.journal"
    said = ReportedEpsilons(file)
    said.record("a", told(1.0))
    said.asked(["b", "a"], 1)
    said.record("a", told(1.0))  # as before: its answer cost nothing
    for one in (said, ReportedEpsilons(file)):
        assert one.worst["epsilon"] is None and one.worst["refused"].startswith("no ε: b did not say")
    said.asked(["c"], 1)
    said.record("b", told(0.5))
    assert said.worst["refused"].startswith("no ε: c did not say")
    said.record("c", None)  # which cannot be read, and stays so
    assert "site c has told none" in said.worst["refused"]


def test_a_site_whose_answer_did_not_arrive_counts_with_what_so_many_answers_may_cost(tmp_path):
    file = tmp_path / "reported.journal"

    def promised(times):
        return [0.0, 1.0, 1.5][times] if times <= 2 else None

    said = ReportedEpsilons(file)
    assert said.worst == figures(0.0)
    said.asked(["a", "b"], 1, promised)
    assert said.worst == figures(1.0) and said.most_asked == 1
    said.record("a", told(0.9))
    said.asked(["a", "b"], 1, promised)
    said.record("a", told(1.2))
    for one in (said, ReportedEpsilons(file), ReportedEpsilons.peek(file)):
        assert one.worst == figures(1.5)
    said.asked(["a"], 1, promised)  # more often than anything is promised for
    assert "a did not say" in said.worst["refused"]
    said.record("a", told(1.7))
    assert said.worst == figures(1.7)


def test_asks_are_counted_by_their_rounds(tmp_path):
    file = tmp_path / "reported.journal"
    said = ReportedEpsilons(file)
    for round in (1, 2, 2):
        said.asked(["a"], round)
    for one in (said, ReportedEpsilons(file)):
        assert [one.asked_after(round) for round in range(3)] == [3, 2, 0]


@pytest.mark.parametrize(
    "line",
    [
        {"silent": ["a"], "round": 1},
        {"silent": {"a": None}},
        {"site": "a", "figures": figures(1.0)},
        {"site": "a", "answers": 1},
        {"answers": 1, "figures": figures(1.0)},
    ],
)
def test_a_line_that_lacks_a_count_is_refused_and_never_read_as_none(tmp_path, line):
    file = tmp_path / "reported.journal"
    Journal(file).append(line)
    for read in (ReportedEpsilons, ReportedEpsilons.peek):
        with pytest.raises(PrivacyError, match="this is not a journal of the ε"):
            read(file)


def test_of_what_a_site_says_only_its_epsilon_is_kept():
    said = ReportedEpsilons()
    said.record("a", told(1.0) | {"plan": "pure DP, trusted by nobody", "accountant": "exact", "more": [1]})
    assert said.worst == figures(1.0)
    said.record("b", told(1.5, "words, and not of a refusal"))
    assert said.worst == figures(1.5)
    said.record("a", told(None, "x" * 10_000))
    assert said.worst["refused"].startswith("site a says: xxx") and len(said.worst["refused"]) < 600


@pytest.mark.parametrize(
    "said",
    [
        None,
        5,
        [],
        {},
        {"epsilon": 1.0},
        {"refused": "why"},
        told(10**400),
        told("none"),
        told([1]),
        told(-1.0),
        told(True),
        told(None),
        figures(1.0),
        told(1.0, answers="2"),
        told(1.0, answers=True),
    ],
)
def test_what_cannot_be_read_is_no_epsilon(said):
    """A site may say anything; what it says is never a guarantee that it did not give."""
    kept = ReportedEpsilons()
    kept.record("a", said)
    kept.record("b", told(2.0))
    assert kept.worst["epsilon"] is None and "site a" in kept.worst["refused"]
