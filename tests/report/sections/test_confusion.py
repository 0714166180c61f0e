"""Tables of right and wrong answers."""

from murmura.report.content import Table
from murmura.report.sections.confusion import confusion
from tests.report.blocks import blocks, tables
from tests.report.runs import metrics, rows_of, seeds, write_run


def section_of(tmp_path, *answers):
    return confusion(seeds(tmp_path, *([metrics(2, accuracy=0.5, confusion=one)] for one in answers)))


def test_each_label_has_its_share_of_right_answers_with_interval_and_n(tmp_path):
    section = section_of(tmp_path, {"bad": {"bad": 45, "good": 5}, "good": {"bad": 0, "good": 4}})
    assert tables(section) == [[["bad", "45", "5", "0.900"], ["good", "0", "4", "1.000"]]]
    [table] = blocks(section, Table)
    bad, good = table.entries
    assert [cell.small for cell in (bad[-1], good[-1])] == [("0.786–0.957, n = 50",), ("0.510–1.000, n = 4",)]
    assert [cell.shade for cell in bad[1:3]] == [31.5, 3.5]


def test_of_several_seeds_it_is_the_mean(tmp_path):
    first = {"bad": {"bad": 4, "good": 0}, "good": {"bad": 2, "good": 2}}
    second = {"bad": {"bad": 3, "good": 1}, "good": {"bad": 0, "good": 4}}
    assert tables(section_of(tmp_path, first, second)) == [
        [["bad", "3.5", "0.5", "0.875"], ["good", "1", "3", "0.750"]]
    ]


def test_a_label_without_a_text_has_a_dash(tmp_path):
    [[_, good]] = tables(section_of(tmp_path, {"bad": {"bad": 3, "good": 0}, "good": {"bad": 0, "good": 0}}))
    assert good[-1] == "–"


def test_runs_that_measured_none_have_none(tmp_path):
    assert confusion(rows_of(write_run(tmp_path / "a"))) is None
