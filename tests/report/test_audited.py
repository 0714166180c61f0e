"""What an audit has found, for the terminal and on the page; pictures of bounds on ε."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from murmura.measure.catalogue import READS
from murmura.report.audited import audits, show_audit
from murmura.report.page import render
from murmura.report.pictures import held_against
from murmura.report.table import table
from murmura.runs import RunFolder, read, read_all
from murmura.runs.audit import Audit, AuditedModel, Extraction, Histogram, Separation, Written
from tests.report.runs import metrics, write_run

MODEL = AuditedModel(
    "model", 150, 120, "error zone",
    (
        Separation("error zone", 0.728, 0.641, 0.808, 0.21, 0.11, 0.33),
        Separation("plain loss", 0.599, 0.5, 0.69, None, None, None, control=True),
    ),
    Histogram((0.0, 0.5, 1.0), (50, 100), (80, 40)),
)  # fmt: skip
PRIVACY = {"epsilon": 4.2, "delta": 1e-5, "unit": "record", "adjacency": "zero-out", "accountant": "PLD", "plan": "p"}


@pytest.fixture
def audited(tmp_path):
    def build(name="a", model=MODEL, missing=(), rows=None, **options):
        path = write_run(tmp_path / name, rows=rows, **options)
        (path / "private").mkdir()
        RunFolder(path).write_audit(Audit("0.1", "2026-01-01T00:00:00+00:00", (model,), missing), [{"site": "a"}])
        return read(path)

    return build


def printed(run):
    console = Console(file=io.StringIO(), width=160)
    show_audit(run, console)
    return console.file.getvalue()


def private(epsilon, **figures):
    return [metrics(0), metrics(1), metrics(2, epsilon=epsilon, privacy=PRIVACY | {"epsilon": epsilon}, **figures)]


def test_what_was_written_is_read_back(audited):
    assert audited(missing=("This was not done.",)).audit == Audit(
        "0.1", "2026-01-01T00:00:00+00:00", (MODEL,), ("This was not done.",)
    )


def test_terminal_and_page_say_the_same(audited):
    run = audited(missing=("This was not done.",))
    words = printed(run), render([run])
    for told in words:
        for word in ("The model: 150 of the sites’ records against 120 others", "0.728", "0.641 to 0.808", "0.210",
                     "0.110 to 0.330", "strongest", "for comparison, never called the strongest",
                     "This was not done."):  # fmt: skip
            assert word in told, word
        assert "too few" not in told
    assert "Scores by error zone, the model" in words[1]


def test_why_an_attack_is_called_the_strongest_is_said(audited):
    lucky = Separation("window votes", 0.751, 0.66, 0.83, None, None, None, apart=0.6021)
    attacks = (replace(MODEL.attacks[0], apart=0.7312), lucky, replace(MODEL.attacks[1], apart=0.9))
    run = audited(model=replace(MODEL, attacks=attacks))
    for told in (printed(run), render([run])):
        assert "strongest: 0.731 on the quarter set apart, the next one 0.602" in told
    assert "strongest: the first, with no records to spare for a choice" in printed(audited("few"))


def test_what_attacks_go_by_is_said(audited):
    run = audited()
    for told in (" ".join(printed(run).split()), render([run])):
        assert f"“error zone”, {READS['error zone']}; “plain loss”, {READS['plain loss']}." in told
    assert "“window votes”" in render([run])  # among the results, which name the strongest of all


def test_extraction_and_what_was_written(audited):
    run = audited()
    tries = Extraction("model", 1.0, 40, 0.9, 28, 24, (1, 1000), (0.0, 0.25), (0.0, 0.13), (0.12, 0.43), (0.0, 0.0))
    texts = Written("model", "template", 100, 100, 0.31, 0.29, 0.02, -0.01, 0.05)
    answers = Written("model", "record", 50, 40, 0.5, 0.25, 0.25, 0.2, 0.3)
    run = replace(run, audit=replace(run.audit, extraction=(tries,), written=(answers, texts)))
    for told in (printed(run), render([run])):
        for word in ("with a probability of 0.9 or more", "(temperature 1, top-k 40)", "1,000", "0.130 to 0.430",
                     "continued greedily", "n = 50 and 40", "100 texts", "+0.250", "−0.010 to +0.050"):  # fmt: skip
            assert word in told, word
    same = replace(tries, found=(0.25, 0.25), others_found=(0.0, 0.0))
    told = printed(replace(run, audit=replace(run.audit, extraction=(same,))))
    assert sum(line.strip().startswith(("1 ", "1,000 ")) for line in told.splitlines()) == 1  # the plateau's end alone


def test_few_records_say_little_and_what_was_not_measured_is_a_dash(audited):
    told = printed(audited(model=replace(MODEL, others=19)))
    assert "against 19 others, too few to say much" in told and "–" in told


def test_how_many_records_a_private_run_has_is_not_told(audited):
    run = audited(model=replace(MODEL, members=None))
    tries = Extraction("model", 1.0, 40, 0.9, None, 24, (1,), (0.25,), (0.12,), (0.43,), (0.0,))
    answers = Written("model", "record", None, 40, 0.5, 0.25, 0.25, 0.2, 0.3)
    run = replace(run, audit=replace(run.audit, extraction=(tries,), written=(answers,)))
    for told in (printed(run), render([run])):
        assert "The model: some of the sites’ records against 120 others" in told and "too few" not in told
        assert "of some of the sites’ records and 24 others" in told and "n = 40 others" in told


def test_its_caveat_is_told_and_that_nothing_was_attacked_is_not(audited):
    run = audited(rows=[metrics(0, attack_auc=None, upload_auc=None)])
    run = replace(run, audit=replace(run.audit, caveat="No ε covers this."))
    assert "No ε covers this." in printed(run) and "No ε covers this." in render([run])
    assert "Leakage was not measured" not in render([run])
    assert "Leakage was not measured" in render([replace(run, audit=None)])


def test_each_of_several_runs_has_its_own(audited, tmp_path):
    runs = read_all([audited("a").folder, audited("b", method="Other").folder, write_run(tmp_path / "c", method="C")])
    assert [one.run for one in audits(runs)] == ["a", "b"]
    page = render(runs)
    assert page.count("The model: 150") == 2


def test_without_an_audit_there_is_no_section(tmp_path):
    assert "<h2>Audit</h2>" not in render([read(write_run(tmp_path / "a"))])


# ---- claimed, guaranteed and shown -----------------------------------------------------------------------------------


def held(*rows_of_runs, folder):
    runs = [write_run(folder / f"run-{k}", f"M{k}", rows=rows) for k, rows in enumerate(rows_of_runs)]
    return held_against(table(read_all(runs)))


def test_bounds_stand_on_one_axis_also_without_an_audit(tmp_path):
    [picture] = held(private(4.2, audit_epsilon=0.8), private(0.3, audit_epsilon=0.9), folder=tmp_path)
    for word in ("guaranteed", "shown", "M0", "M1"):
        assert word in picture.svg
    assert "claimed" not in picture.svg


def test_a_papers_claim_is_held_against_what_is_guaranteed(tmp_path):
    rows = private(4.2)
    rows[-1]["privacy"]["claimed_per_step"] = 1.0
    [picture] = held(rows, folder=tmp_path)
    assert "claimed, for a step" in picture.svg and "shown" not in picture.svg


def test_a_guarantee_with_nothing_to_hold_against_it_has_no_picture(tmp_path):
    refused = [metrics(0), metrics(1, privacy={"refused": "because", "delta": 1e-5}, audit_epsilon=0.4)]
    assert held(private(4.2), [metrics(0)], refused, folder=tmp_path) == []
