"""The first screen: what is told, and what must not be."""

import io
from dataclasses import asdict, replace
from math import inf, nan
from types import SimpleNamespace

import pytest
from rich.console import Console

from murmura import report
from murmura.privacy.standing import PrivacySpent as Spent
from murmura.report.in_short import BETTER, COST, GAINS, GOOD, LEAKS, PROMISED, in_short, standing_of
from murmura.report.page import render
from murmura.report.sheet import sheet
from murmura.report.standing import RowSummary, costs, leaks, promised
from murmura.runs import RunFolder, read_all
from murmura.runs.audit import Audit
from murmura.runs.names import AUDIT, PERSONAL
from murmura.runs.schema import Attack, Disclosure, PersonalModel, Round
from murmura.units import signed
from tests.report.blocks import said, small
from tests.report.runs import (
    MODEL,
    NOISE,
    PLAIN,
    PRIVATE,
    PROMISE,
    classifier,
    metrics,
    real,
    rows_of,
    seeds,
    write_run,
)


def told(rows, question, **options):
    return " ".join(in_short(rows, **options).answers[question])


def ended(folder, **figures):
    """A run of one round that ended with these."""
    return rows_of(write_run(folder, rows=[metrics(0), metrics(2, **figures)]))


def standing(label, leakage=None, epsilon=None, sent=1e6, **more):
    told = {"ends": None, "told": "at δ = 1e-05", "refused": "", "seconds": None, "runs": run_with()}
    return RowSummary(label=label, leakage=leakage, epsilon=epsilon, sent=sent, **(told | more))


def run_with(few=(), unlike=False, added_by="site", expected=False, caveat=None):
    """A run alone, of which no more is known than this.

    Args:
        few: what so few records were attacked in that it says little.
        expected: bytes were not counted.
        caveat: is said beside its ε.
    """
    privacy = {} if caveat is None else {"caveat": caveat}
    last = Round(2, {}, privacy=privacy, attacks={target: Attack("error zone", 6, 24) for target in few})
    released = Disclosure(**PLAIN[0] | {"protection": {**NOISE, "added_by": added_by}})
    audit = Audit("0.1", "2026-01-01T00:00:00+00:00", (), (), unlike=unlike)
    return [SimpleNamespace(last=last, before=None, audit=audit, disclosure=[released], hides_cohorts=expected)]


def test_a_single_run_is_told_by_what_training_changed(tmp_path):
    rows = rows_of(write_run(tmp_path / "a"))
    good = told(rows, GOOD)
    assert "Held-out loss fell from 2.250 before training to 2.000 (lower is better)" in good
    assert "ROUGE-L rose from 0.125 before training to 0.250 (higher is better)" in good
    assert "worse" not in good and "One seed" in good
    assert BETTER not in in_short(rows).answers


def test_what_became_worse_is_called_so(tmp_path):
    good = told(ended(tmp_path / "a", heldout_loss=2.5, heldout_rouge=0.1), GOOD)
    assert good.count("worse than before") == 2
    assert "stayed at 2.250" in told(ended(tmp_path / "b", heldout_loss=2.25), GOOD)


@pytest.mark.parametrize(("high", "worse"), [(0.13, False), (0.12, True)])
def test_what_may_be_chance_is_not_called_worse(tmp_path, high, worse):
    """Before training it was 0.125."""
    ends = {"heldout_rouge_n": 16, "heldout_rouge_low": 0.08, "heldout_rouge_high": high}
    good = told(ended(tmp_path / "a", heldout_rouge=0.1, **ends), GOOD)
    assert f"fell from 0.125 before training to 0.100 (95 %: 0.080 to {high:.3f}) (higher is better)" in good
    assert ("worse than before" in good) == worse


@pytest.mark.parametrize(("low", "chance"), [(0.125, False), (-0.125, True)])
def test_how_sure_the_fall_of_the_loss_is_is_told(tmp_path, low, chance):
    ends = {"heldout_fall": 0.25, "heldout_fall_n": 36, "heldout_fall_low": low, "heldout_fall_high": 0.375}
    good = told(ended(tmp_path / "a", **ends), GOOD)
    assert f"Over the 36 held-out records the change is −0.250 (95 %: −0.375 to {signed(-low)})" in good
    assert ("may be chance" in good) == chance


def test_the_fall_of_the_loss_with_several_seeds_is_as_sure_as_these_make_it_too(tmp_path):
    ends = {"heldout_fall_n": 36, "heldout_fall_low": 0.125, "heldout_fall_high": 0.375}
    rows = seeds(tmp_path, *([metrics(0), metrics(2, heldout_fall=fell, **ends)] for fell in (0.0, 0.5)))
    good = told(rows, GOOD)
    assert "Over the 36 held-out records and 2 seeds the change is −0.250 (95 %: −3.427 to +2.927), so" in good


def test_seeds_have_a_spread_and_no_sentence_on_a_single_one(tmp_path):
    rows = seeds(tmp_path, *([metrics(0), metrics(2, heldout_loss=loss)] for loss in (1.5, 2.0)))
    good = told(rows, GOOD)
    assert "to 1.750 ± 0.354" in good and "Means of 2 seeds" in good and "One seed" not in good


def test_a_classifier_is_told_by_its_accuracy_beside_guessing(tmp_path):
    good = told(rows_of(classifier(tmp_path / "a", accuracy=0.75, accuracy_guess=0.6)), GOOD)
    assert "Accuracy rose from 0.500 before training to 0.750 (higher is better; guessing comes to 0.600)" in good


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [(0.5625, 0.6875, "more than guessing"), (0.48, 0.77, "may be guessing"), (0.5, 0.75, "may be guessing")],
)
def test_leakage_is_told_in_cases_and_never_as_more_than_its_interval_shows(tmp_path, low, high, says):
    leaking = told(ended(tmp_path / "a", attack_auc=0.64, attack_auc_low=low, attack_auc_high=high), LEAKS)
    assert f"right one in 64 (95 %: {100 * low:.0f} to {100 * high:.0f}); guessing" in leaking and says in leaking
    assert ("no proof that nothing leaks" in leaking) == (says == "may be guessing")


def test_what_tells_records_apart_before_training_is_not_called_leakage(tmp_path):
    """AUC of the loss alone before training with an interval that leaves out 0.5, and one that holds it."""
    for low, differ in ((0.6, True), (0.4, False)):
        before = metrics(0) | {"attack_loss_auc": 0.7, "attack_loss_auc_low": low, "attack_loss_auc_high": 0.8}
        after = metrics(2, attack_auc=0.9, attack_auc_low=0.85, attack_auc_high=0.95)
        leaking = told(rows_of(write_run(tmp_path / str(low), rows=[before, after])), LEAKS)
        assert "more than guessing" in leaking
        assert ("even before training" in leaking, "gives away" in leaking) == (differ, not differ)
    before = metrics(0) | {"attack_loss_auc": 0.66, "attack_loss_auc_low": 0.58, "attack_loss_auc_high": 0.74}
    after = metrics(2, attack_auc=0.9, attack_auc_low=0.85, attack_auc_high=0.95)
    rows = seeds(tmp_path / "two", [before, after], [before | {"attack_loss_auc": 0.67}, after])
    assert len(rows) == 1 and "even before training" in told(rows, LEAKS)
    both = " ".join(
        leaks([standing("A", 0.9, ends=(0.8, 1.0), runs=run_with(unlike=True)), standing("B", 0.9, ends=(0.8, 1.0))])
    )
    assert "More than guessing is shown for A; but the loss alone told" in both


def test_an_audit_of_records_of_different_kinds_says_so(tmp_path):
    for unlike in (True, False):
        path = write_run(tmp_path / str(unlike))
        (path / "private").mkdir()
        RunFolder(path).write(AUDIT, Audit("0.1", "2026-01-01T00:00:00+00:00", (MODEL,), (), unlike=unlike))
        rows = rows_of(path)
        assert ("but the loss alone told" in told(rows, LEAKS)) == unlike
        assert ("or less: the loss alone told" in render(list(rows[0].runs))) == unlike


def test_that_the_kind_of_record_counts_is_said_of_what_is_of_one_site(tmp_path):
    kind = "others of all sites: what kind of record it has counts, too."
    assert kind in told(ended(tmp_path / "a"), LEAKS)
    without = ended(tmp_path / "b", upload_auc=None)
    assert "gives away something of which records it was trained on." in told(without, LEAKS)
    own = [*PLAIN, asdict(Disclosure("attack", "others", "metric", "public records", None, "", 1, 9))]
    path = write_run(tmp_path / "c", rows=[metrics(0), metrics(2, upload_auc=None)], disclosure=own)
    assert "or of what kind these are." in told(rows_of(path), LEAKS)
    assert "For FedAvg, whose sites keep adapters of their own, what kind" in " ".join(
        leaks([standing_of(row) for row in (*rows_of(path), *without)])
    )
    (path / "private").mkdir()
    for target in ("model", "uploads", "adapters"):
        found = Audit("0.1", "2026-01-01T00:00:00+00:00", (replace(MODEL, target=target),), ())
        RunFolder(path).write(AUDIT, found)
        rows = rows_of(path)
        assert (kind in told(rows, LEAKS)) == (kind in render(list(rows[0].runs))) == (target != "model")


def test_so_few_records_are_told_of_once(tmp_path):
    alike = {"upload": "60 (95 %: 40 to 80)", "runs": run_with(few=("attack", "upload"))}
    uploads = alike | {"runs": run_with(few=("upload",))}
    both = leaks([standing("A", 0.9, **alike), standing("B", 0.7), standing("C", 0.6, **uploads)])
    assert [one for one in both if "says little" in one] == [
        "So few records were attacked for A and C that it says little."
    ]
    alone = leaks([standing("A", 0.9, **uploads)])
    assert [one for one in alone if "says little" in one] == ["So few records were attacked that it says little."]
    many = [standing(f"arm {place}", 0.9, **uploads) for place in range(5)]
    assert "says little" not in " ".join(leaks(many))  # no upload is told of


def test_few_records_and_attacks_beside_an_epsilon_are_said_to_be_such(tmp_path):
    few = {"attack": {"attack": "error zone", "members": 6, "others": 24, "each": {}}}
    leaking = told(ended(tmp_path / "a", attacks=few, **PROMISE), LEAKS)
    assert "says little" in leaking and "No ε covers these figures" in leaking
    plain = told(ended(tmp_path / "b"), LEAKS)
    assert "says little" not in plain and "ε" not in plain


def test_what_was_not_attacked_is_not_called_safe(tmp_path):
    none = {"attack_auc": None, "upload_auc": None}
    assert told(ended(tmp_path / "a", **none), LEAKS) == "Not measured: no attack was carried out."
    assert in_short(ended(tmp_path / "b", attack_auc=None)).picture is None


def test_an_auc_means_no_more_than_it_can(tmp_path):
    below = told(ended(tmp_path / "a", attack_auc=0.3, attack_auc_low=0.2, attack_auc_high=0.4), LEAKS)
    assert "less than guessing" in below and "may be guessing" not in below
    alone = told(ended(tmp_path / "b", attack_auc=0.9, attack_auc_low=None, attack_auc_high=None), LEAKS)
    assert "cannot be told from guessing" in alone and "more than guessing" not in alone
    few = {"attack": {"attack": "error zone", "members": 6, "others": 24, "each": {}}}
    assert "gives away" not in told(ended(tmp_path / "c", attacks=few), LEAKS)
    little = standing("C", 0.7, runs=run_with(few=("attack",)))
    both = " ".join(leaks([standing("A", 0.9), standing("B", 0.3, ends=(0.2, 0.4)), little]))
    assert (
        "guessing for A" in both and "Less than guessing, for B" in both and "few records were attacked for C" in both
    )


def test_uploads_that_were_attacked_are_told_where_the_model_was_not(tmp_path):
    leaking = told(ended(tmp_path / "a", attack_auc=None), LEAKS)
    assert "no attack was carried out" not in leaking
    assert "The model itself was not attacked while the run went on." in leaking
    assert "In what a single site sends, before it is mixed with the others’: 75." in leaking


def test_what_an_audit_found_is_not_called_unmeasured(tmp_path):
    path = write_run(tmp_path / "a", rows=[metrics(0), metrics(2, attack_auc=None, upload_auc=None)])
    (path / "private").mkdir()
    RunFolder(path).write(AUDIT, Audit("0.1", "2026-01-01T00:00:00+00:00", (MODEL,), ()))
    found = "The audit found most in the model: 73 (95 %: 64 to 81) of 100 pairs, by error zone."
    assert told(rows_of(path), LEAKS) == found
    RunFolder(path).write(AUDIT, Audit("0.1", "2026-01-01T00:00:00+00:00", (replace(MODEL, members=7),), ()))
    assert told(rows_of(path), LEAKS) == f"{found} So few records were attacked that it says little."


def test_who_keeps_all_may_find_more_than_a_run_unless_that_was_tried(tmp_path):
    path = write_run(tmp_path / "a", rows=[metrics(0), metrics(2)])
    audit, keep, experiment = "audit the run (murmura audit).", "set audit.keep = true, and ", path / "config.toml"
    assert told(rows_of(path), LEAKS).endswith(keep + audit)
    plain = experiment.read_text()
    experiment.write_text(plain + "\n[audit]\nkeep = true\n")
    assert told(rows_of(path), LEAKS).endswith(audit) and keep not in told(rows_of(path), LEAKS)
    (path / "private").mkdir()
    RunFolder(path).write(AUDIT, Audit("0.1", "2026-01-01T00:00:00+00:00", (MODEL,), ()))
    assert "by error zone." in told(rows_of(path), LEAKS) and audit not in told(rows_of(path), LEAKS)
    experiment.write_text(plain)
    assert told(rows_of(path), LEAKS).endswith(keep + audit)  # it was audited of its end alone
    assert audit not in told(ended(tmp_path / "b", attack_auc=None, upload_auc=None), LEAKS)


def test_real_sites_are_not_advised_to_audit_what_cannot_be_audited(tmp_path):
    path = write_run(tmp_path / "a", rows=[metrics(0), metrics(2)])
    real(path)
    found = told(rows_of(path), LEAKS)
    assert "simulate the federation on records like its own" in found and "audit.keep" not in found


def test_training_that_diverged_is_not_called_unmeasured_nor_better_than_it_is(tmp_path):
    assert "Held-out loss is not finite: training has diverged." in told(ended(tmp_path / "a", heldout_loss=nan), GOOD)
    rows = seeds(tmp_path, *([metrics(0), metrics(2, heldout_loss=loss)] for loss in (1.5, inf)))
    good = told(rows, GOOD)
    assert "Held-out loss is not finite with 1 of 2 seeds" in good and "1.500" not in good


def test_an_epsilon_whose_noise_the_server_adds_is_not_said_to_hold_against_it(tmp_path):
    by_server = {"type": "differential privacy", "unit": "site", "added_by": "server", "mechanism": "Gaussian"}
    ends = [metrics(0), metrics(2, **PROMISE)]
    rows = rows_of(write_run(tmp_path / "a", rows=ends, disclosure=[dict(PLAIN[0], protection=by_server)]))
    alone = "It does not hold against the server, which adds the noise itself and sees what each site sends without it."
    assert alone in in_short(rows).answers[PROMISED]
    masked = dict(PLAIN[0], protection=by_server, note="It is trusted. secure sum: masks.")
    rows = rows_of(write_run(tmp_path / "b", rows=ends, disclosure=[masked]))
    assert "and sees the sum of what sites send without it" in told(rows, PROMISED)
    assert "server" not in told(ended(tmp_path / "c", **PROMISE), PROMISED)
    named = promised([standing("A", epsilon=1.0, runs=run_with(added_by="server")), standing("B")])
    assert "That of A does not hold against the server" in named[1]


def test_a_promise_is_told_with_delta_unit_and_adjacency_and_its_lack_too(tmp_path):
    assert told(ended(tmp_path / "a"), PROMISED).startswith("Nothing")
    promise = told(ended(tmp_path / "b", **PROMISE), PROMISED)
    assert promise.startswith("ε = 7.500 at δ = 1e-05, for one record (zero-out)")
    both = seeds(tmp_path, *([[metrics(0), metrics(2, **PROMISE)]] * 2))  # without ledgers
    assert "whatever the attack. Seen together, all 2 runs: at most 15.000, δ = 2e-05." in told(both, PROMISED)
    refused = ended(tmp_path / "c", privacy={**PRIVATE, "refused": "a batch was larger"})
    assert "a batch was larger" in told(refused, PROMISED) and "ε =" not in told(refused, PROMISED)


def test_a_promise_that_an_audit_contradicts_is_not_to_be_relied_on(tmp_path):
    audit = {"audit_epsilon": 8.0, "audit_right": 9, "audit_guesses": 9, "audit_coins": 9, "audit_most": 9.0}
    assert "Do not rely on it" in told(ended(tmp_path / "a", **PROMISE, **audit), PROMISED)
    assert "rely" not in told(ended(tmp_path / "b", **PROMISE, **(audit | {"audit_epsilon": 1.0})), PROMISED)


def test_a_run_that_stopped_in_a_round_that_was_not_measured_is_told_by_the_last_that_was(tmp_path):
    unmeasured = {"round": 2, "heldout_loss": None, "attack_auc": None, **PROMISE}
    audit = {"audit_epsilon": 8.0, "audit_right": 9, "audit_guesses": 9, "audit_coins": 9, "audit_most": 9.0}
    measured = [metrics(0), metrics(1, **PROMISE, **audit)]
    rows = rows_of(write_run(tmp_path / "a", rows=[*measured, unmeasured], finished=False))
    then = rows_of(write_run(tmp_path / "b", rows=measured, finished=False))
    told_last = "That was after round 1, the last that was attacked; round 2 is the last that was saved."
    assert set(in_short(then).answers[LEAKS]) < {*in_short(rows).answers[LEAKS]} and told_last in told(rows, LEAKS)
    assert told(rows, GOOD).startswith("Held-out loss fell from 2.250 before training to 2.125")
    assert "after round 1, the last that was measured" in told(rows, GOOD) and "round 2 of 2" in told(rows, GOOD)
    assert "an audit of a has shown that ε is 8.000 or more after round 1." in told(rows, PROMISED)
    [row] = rows
    parts = {section.title: section for section in sheet(row)}
    found, guaranteed = parts["What an attacker found"], parts["What is guaranteed"]
    assert "no attack was carried out" not in said(found) and told_last in said(found)
    assert "Do not rely on it" in said(guaranteed) and "by the audit after round 1" in " ".join(small(guaranteed))
    [both] = [one for one in in_short([*rows, *then]).answers[LEAKS] if "last that was attacked" in one]
    assert both.startswith(f"That of {row.label} was after round 1")


def test_what_an_epsilon_leaves_attacks_is_told_of_a_single_run_alone(tmp_path, monkeypatch):
    """Of several seeds the ε is the largest, and the curve that of the first."""
    bounded = SimpleNamespace(words=["An attack finds at most 3 %."])
    monkeypatch.setattr("murmura.report.in_short.guarantees", lambda rows: [bounded])
    runs = [[metrics(0), metrics(2, **PROMISE)]] * 2
    assert "at most 3 %" in told(rows_of(write_run(tmp_path / "a", rows=runs[0])), PROMISED)
    assert "at most 3 %" not in told(seeds(tmp_path, *runs), PROMISED)


@pytest.mark.parametrize(("most", "said"), [(4, True), (1, False)])
def test_an_epsilon_of_a_record_is_not_taken_for_that_of_a_person(tmp_path, most, said):
    """By whoever reads the first screen alone."""
    more = f'user = "patient"\nrecords_per_user = {most}\n'
    rows = [metrics(0), metrics(2, **PROMISE)]
    [one, other] = [write_run(tmp_path / name, name, rows=rows, more=more) for name in "ab"]
    words = "A person may have 4 records at a site (data.records_per_user), and ε is for one of them."
    assert (words in told(rows_of(one), PROMISED)) == said
    assert (f"a and b: {words}" in told(rows_of(one, other), PROMISED)) == said


def test_what_an_interrupted_run_spent_besides_stands_beside_its_epsilon(tmp_path, monkeypatch):
    found = Spent(1, 9.0)
    monkeypatch.setattr("murmura.report.guarantee.standing", lambda *_: found)
    rows = rows_of(write_run(tmp_path / "a", rows=[metrics(0), metrics(1, **PROMISE)], finished=False))
    assert "but ε = 9.000 by the privacy ledgers" in told(rows, PROMISED)
    monkeypatch.setattr("murmura.report.guarantee.standing", lambda *_: Spent(1, 1.0))  # no more than is told
    assert "stopped after it had sent more" not in told(rows, PROMISED)


def test_of_several_only_those_that_promise_have_an_epsilon():
    sentences = promised([standing("A"), standing("B", epsilon=2.0), standing("C", refused="a departure")])
    first, none, alone = sentences
    assert first == "B: ε = 2.000 at δ = 1e-05, whatever the attack." and none == "Nothing for A and C (a departure)."
    assert "of one alone" in alone
    assert promised([standing("A"), standing("B")])[0].startswith("Nothing")


def test_what_is_promised_of_several_alike_is_said_once():
    def row(label, epsilon, caveat):
        return standing(label, epsilon=epsilon, runs=run_with(caveat=caveat))

    rows = [row("A", 8.0, "Sites tell more."), row("B", 8.0, "Sites tell more."), row("C", 2.0, "It began elsewhere.")]
    assert promised(rows)[:-1] == (
        "A and B, each: ε = 8.000 at δ = 1e-05, whatever the attack.",
        "C: ε = 2.000 at δ = 1e-05, whatever the attack.",
        "Beside the ε of A and B: Sites tell more.",
        "Beside the ε of C: It began elsewhere.",
    )
    assert promised(rows[:1]) == ("ε = 8.000 at δ = 1e-05, whatever the attack.", "Sites tell more.")


def test_of_many_the_least_and_the_most_are_told():
    many = [standing(f"arm{n}", leakage=0.5 + n / 20, ends=(0.51 + n / 20, 1.0), sent=1e6 * (9 - n)) for n in range(6)]
    words = " ".join(leaks(many))
    assert (
        "50 (95 %: 51 to 100) for arm0 and 75 (95 %: 76 to 100) for arm5" in words
        and "least and the most of 6" in words
        and "arm3" not in words
    )
    assert costs(many) == ("From 4.00 MB sent (arm5) to 9.00 MB sent (arm0), by what was sent.",)
    alike = [standing(f"arm{n}", sent=1e6, seconds=90.0 - 10 * n) for n in range(6)]
    by_time = "From 1.00 MB sent, 40.0 s (arm5) to 1.00 MB sent, 90.0 s (arm0), by time."
    assert costs(alike) == (by_time,)
    assert costs(alike, "other machines")[0] == "1.00 MB sent, for each of them."
    assert (
        costs([*alike[:1], *(replace(one, seconds=None) for one in alike[1:])])[0] == "1.00 MB sent, for each of them."
    )
    old, unrecorded = standing("old", sent=None), "Traffic was not recorded for old."
    assert costs([*many, old]) == ("From 4.00 MB sent (arm5) to 9.00 MB sent (arm0), by what was sent.", unrecorded)
    assert costs([*alike, old]) == (by_time, unrecorded)
    level = [replace(one, seconds=40.0) for one in alike]
    assert costs([*level, old])[0] == "1.00 MB sent, 40.0 s, for each of the others."
    secret = run_with(expected=True)
    told = costs([replace(one, runs=secret) for one in alike[:2] + many])[0]
    assert told.startswith("From 1.00 MB sent (expected), ")
    some = [replace(one, runs=secret if one in alike[:2] else one.runs, seconds=None) for one in alike]
    assert costs(some) == ("1.00 MB sent, for each of them.", "For arm0 and arm1 it is what is expected.")
    assert costs([replace(one, runs=secret) for one in some]) == ("1.00 MB sent (expected), for each of them.",)
    untold = [*alike[:3], replace(alike[3], sent=1e6 + 9, seconds=None), *alike[4:]]
    assert costs(untold) == (by_time, "No time is told for arm3.")
    assert "Not measured for B." in leaks([standing("A", leakage=0.7), standing("B")])


def test_costs_are_told_once_where_they_are_the_same(tmp_path):
    assert told(rows_of(write_run(tmp_path / "a")), COST) == "13.5 MB sent, 90.0 s."
    assert "not recorded" in costs([standing(f"{n}", sent=None, seconds=float(n)) for n in range(5)])[0]
    assert costs([standing("A"), standing("B")]) == ("1.00 MB sent, for each of them.",)
    assert "(expected)" in costs([standing("A", runs=run_with(expected=True))])[0]


def test_figures_that_were_not_measured_alike_are_not_compared(tmp_path):
    cut = [write_run(tmp_path / n, n, more=f"max_length = {most}\n") for n, most in (("A", 128), ("B", 256))]
    rows = rows_of(*cut)
    assert "cannot be compared with one another: tokens of a record at most" in told(rows, LEAKS)
    assert in_short(rows).picture is None
    assert "was not measured alike" in told(rows, BETTER) and "2.000" not in told(rows, BETTER)
    assert in_short(rows_of(*(write_run(tmp_path / f"{n}2", n) for n in "CD"))).picture is not None


def test_without_a_test_nothing_is_called_better(tmp_path):
    rows = rows_of(*(write_run(tmp_path / n, n) for n in "AB"))
    assert "Nothing here tests which is better" in told(rows, BETTER)
    assert told(rows, BETTER, which=("A is.",)) == "A is."
    kinds = rows_of(write_run(tmp_path / "c"), classifier(tmp_path / "d"))
    assert "different kinds of record" in told(kinds, BETTER)


def test_who_pays_is_told(tmp_path):
    path = write_run(tmp_path / "a")
    RunFolder(path).write(
        PERSONAL,
        [PersonalModel(site, 4, 2.5, shared, 2.0, 3.0, 2.75, 2.875) for site, shared in (("x", 2.0), ("y", 2.75))],
    )
    assert "1 of 2 sites gain" in told(rows_of(path), GAINS) and "y pays" in told(rows_of(path), GAINS)
    again = write_run(tmp_path / "c", seed=1)
    RunFolder(again).write(PERSONAL, [PersonalModel("x", 4, 2.5, 2.0, 2.0, 3.0, 2.75, 2.875)])
    one, two = in_short(rows_of(path, again)).answers[GAINS]  # a row of two seeds
    assert "ε" not in told(rows_of(path), GAINS)
    private = write_run(tmp_path / "d", rows=[metrics(0), metrics(2, **PROMISE)])
    RunFolder(private).write(PERSONAL, [PersonalModel("x", 4, 2.5, 2.0, 2.0, 3.0, 2.75, 2.875)])
    assert told(rows_of(private), GAINS).endswith("No ε covers that: sites tell it of their own records.")
    assert one.startswith("a: ") and two.startswith("c: 1 of 1 sites gain")
    assert GAINS not in in_short(rows_of(write_run(tmp_path / "b"))).answers


def test_the_picture_has_words_for_those_who_cannot_see_it(tmp_path):
    picture = in_short(rows_of(write_run(tmp_path / "a"))).picture
    assert 'aria-label="Utility against leakage. before training: held-out loss 2.250, leakage 0.500;' in picture.svg
    assert "after training: held-out loss 2.000, leakage 0.625." in picture.svg


def test_the_caption_says_what_the_bars_are_intervals_over(tmp_path):
    ends = {"attack_auc_low": 0.55, "attack_auc_high": 0.65}
    several = seeds(tmp_path, *([metrics(0), metrics(2, attack_auc=auc, **ends)] for auc in (0.5, 0.6, 0.7)))
    alone = rows_of(several[0].runs[0].folder)
    assert several[0].cells["attack_auc"].ends[0] < 0.4  # by the seeds: records alone give 0.55
    bars = "Upright bars are 95 % intervals over records"
    assert f"{bars}, or over seeds where that is wider. Small" in in_short(several).picture.caption
    assert in_short(alone).picture.caption.endswith(f"{bars}.")


def test_page_terminal_and_markdown_say_the_same(tmp_path):
    folder = write_run(tmp_path / "a")
    rows, console = rows_of(folder), Console(file=io.StringIO(), width=1000)
    report.show(rows, console)
    page, text, shown = render(read_all([folder])), report.markdown(rows), console.file.getvalue()
    for question, sentences in in_short(rows).answers.items():
        for sentence in (question, *sentences):
            assert all(sentence in where for where in (page, text, shown)), sentence
    assert page.index(GOOD) < page.index('class="facts"') < page.index("<h2>Results</h2>")
