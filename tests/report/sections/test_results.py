"""The tables of results: narrow, one figure a cell, every column explained."""

import re

from murmura.report.content import Definitions, Span, Table
from murmura.report.page import render
from murmura.report.sections.results import results
from murmura.runs import read_all
from tests.report.blocks import blocks, columns_of, tables
from tests.report.runs import classifier, metrics, rows_of, seeds, write_run

PROMISE = {"epsilon": 7.5, "privacy": {"delta": 1e-5, "unit": "record", "adjacency": "zero-out", "epsilon": 7.5}}


def test_each_table_answers_one_question_in_few_columns(tmp_path):
    section = results(rows_of(write_run(tmp_path / "a")))
    assert columns_of(section) == {
        "How good it is": ["Method", "Held-out loss", "before training", "Held-out ROUGE-L", "before training"],
        "What it gives away, and what is guaranteed": [
            "Method",
            "Leakage (AUC)",
            "Leakage of single uploads (AUC)",
            "Guaranteed ε",
        ],
        "What it cost": ["Method", "Sent up", "Sent down", "Wall time", "Peak memory"],
        "Attacks carried out": ["Method", "Attacked", "Strongest attack", "Members", "Others"],
    }
    assert "Bars are" in section.lead
    unmeasured = [metrics(0), metrics(2, attack_auc=None, upload_auc=None)]
    assert "Bars are" not in results(rows_of(write_run(tmp_path / "b", rows=unmeasured))).lead
    good, leaks, cost, attacks = tables(section)
    assert good == [["FedAvg", "2.000", "2.250", "0.250", "0.125"]]
    assert leaks == [["FedAvg", "0.625", "0.750", "–"]] and cost[0][1:3] == ["4.50 MB", "9.00 MB"]
    assert attacks == [["FedAvg", "the model", "error zone", "81", "36"]]


def test_every_column_has_its_line(tmp_path):
    section = results(
        rows_of(write_run(tmp_path / "a", rows=[metrics(0), metrics(2, memorisation=0.1, attack_tpr=0.1)]))
    )
    meant = {term for block in blocks(section, Definitions) for term in block.terms}
    titles = {title for found in list(columns_of(section).values())[:3] for title in found[1:]}
    assert titles - {"before training"} <= meant


def entry(rows, title, place=0):
    section = results(rows)
    [table] = [one for one in blocks(section, Table) if title in one.columns]
    return table.entries[place][list(table.columns).index(title)]


def test_an_interval_is_a_bar_and_small_print_and_nothing_else_is(tmp_path):
    rows = rows_of(write_run(tmp_path / "a"))
    leaking = entry(rows, "Leakage (AUC)")
    assert leaking.span == Span(0.5625, 0.6875, 0.625, 0.5) and leaking.small == ("0.562–0.688",)
    assert entry(rows, "Held-out loss").span is None
    right = entry(rows_of(classifier(tmp_path / "b", accuracy_n=20, accuracy_guess=0.4)), "Accuracy")
    assert (round(right.span.low, 3), round(right.span.high, 3), right.span.guess) == (0.299, 0.701, 0.4)
    page = render(read_all([tmp_path / "a"]))
    [drawn] = re.findall(r'<svg class="span".*?</svg>', page)
    assert 'd="M50.0,0V10" class="guess"' in drawn and 'd="M56.2,5H68.8"' in drawn and 'cx="62.5"' in drawn


def test_figures_beside_an_epsilon_and_of_some_seeds_are_marked(tmp_path):
    rows = rows_of(write_run(tmp_path / "a", rows=[metrics(0), metrics(2, **PROMISE)]))
    assert entry(rows, "Leakage (AUC)").small[-1] == "outside ε"
    partly = seeds(tmp_path / "b", [metrics(2)], [metrics(2, heldout_rouge=None)])
    assert "1 of 2 seeds" in entry(partly, "Held-out ROUGE-L").small


def test_few_records_warn_in_the_table_of_attacks(tmp_path):
    few = {"attack": {"attack": "error zone", "members": 6, "others": 24, "each": {}}}
    section = results(rows_of(write_run(tmp_path / "a", rows=[metrics(0), metrics(2, attacks=few)])))
    assert blocks(section, Table)[-1].entries[0][3].alert == "says little"
    few["attack"] |= {"members": None, "few": True}
    untold = results(rows_of(write_run(tmp_path / "c", rows=[metrics(2, attacks=few)])))
    cell = blocks(untold, Table)[-1].entries[0][3]
    assert (cell.text, cell.alert) == ("–", "says little")
    none = results(rows_of(write_run(tmp_path / "b", rows=[metrics(2, attacks={}, attack_auc=None)])))
    assert "Attacks carried out" not in columns_of(none)
