"""What should be noted of a table: each sentence where it is due, and nowhere else."""

import dataclasses

import pytest

from murmura.report import markdown, show, table
from murmura.report.caveats import caveats
from murmura.report.page import render
from murmura.runs import read, read_all
from murmura.runs.schema import Exclusions, SiteReport
from tests.report.runs import metrics, write_run

WHOLE = [SiteReport("skin", 30, 30, 0, 0)]


def rows_of(folder, *ends, sites=WHOLE, **options):
    rows = [metrics(number, **end) for number, end in zip((0, 2), ends, strict=True)]
    return table(read_all([write_run(folder, rows=rows, sites=sites, **options)]))


def loss(value, **more):
    return {"heldout_loss": value, "heldout_rouge": 0.2, **more}


def test_a_run_that_learnt_from_whole_records_has_nothing_to_be_caveats(tmp_path):
    assert caveats(rows_of(tmp_path / "a", loss(2.0), loss(1.5, heldout_rouge=0.3))) == []


def test_records_that_lost_text_or_were_left_out(tmp_path, capsys):
    sites = [SiteReport("cardiology", 24, 22, 1, 2), SiteReport("skin", 30, 29, 3, 1)]
    rows = rows_of(tmp_path / "a", loss(2.0), loss(1.5), sites=sites)
    [told] = caveats(rows)
    assert told == "Of the sites' 54 records 4 cut and 3 left out, as too long for data.max_length."
    show(rows)
    assert told in capsys.readouterr().out.replace("\n", " ")
    assert told in markdown(rows) and told.replace("'", "&#39;") in render(rows[0].runs)


def test_records_that_were_too_long_to_be_shared_out(tmp_path):
    run = dataclasses.replace(read(write_run(tmp_path / "a", sites=WHOLE)), exclusions=Exclusions(0, 0, 2, 1))
    told = "Left out before the others were shared out: 1 record, as too long for data.max_length."
    assert told in caveats(table([run]))


def test_held_out_records_that_ask_what_sites_do(tmp_path):
    for asked, told in ((3, 1), (0, 0), (None, 0)):
        run = dataclasses.replace(
            read(write_run(tmp_path / str(asked), sites=WHOLE)), exclusions=Exclusions(0, 0, 0, 0, None, asked)
        )
        assert (
            sum("3 held-out records ask what a record of a site asks too" in one for one in caveats(table([run])))
            == told
        )


def test_numbers_that_are_not_told_are_not_caveats(tmp_path):
    sites = [SiteReport("skin", None, None, None, None)]
    assert caveats(rows_of(tmp_path / "a", loss(2.0), loss(1.5), sites=sites)) == []


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (loss(2.0), loss(1.99), "Hardly anything was learnt (held-out loss 2.000 before training, 1.990 after)"),
        (loss(2.0), loss(2.5), "The model has become worse"),
        (loss(2.0, heldout_rouge=0.3), loss(1.5, heldout_rouge=0.1), "Loss and ROUGE-L disagree"),
    ],
)
def test_how_a_loss_went(tmp_path, before, after, told):
    [found] = caveats(rows_of(tmp_path / "a", before, after))
    assert found.startswith(told)


def test_a_loss_that_rose_while_the_answers_became_better(tmp_path):
    worse, disagree = caveats(rows_of(tmp_path / "a", loss(2.0), loss(2.5, heldout_rouge=0.4)))
    assert worse.startswith("The model has become worse") and disagree.startswith("Loss and ROUGE-L disagree")


@pytest.mark.parametrize(
    ("accuracy", "told"), [(0.5, "no skill is shown."), (0.66, "no skill is shown by so few texts."), (0.95, None)]
)
def test_an_accuracy_beside_the_majoritys_share(tmp_path, accuracy, told):
    after = loss(0.5, accuracy=accuracy, accuracy_n=50, accuracy_guess=0.6)
    found = caveats(rows_of(tmp_path / "a", loss(1.0), after, kind="labelled"))
    assert [one.partition(": ")[2] for one in found] == ([told] if told else [])


def test_a_loss_that_guessing_has_too(tmp_path):
    [found] = caveats(rows_of(tmp_path / "a", loss(1.0), loss(0.5, heldout_loss_guess=0.463)))
    assert "0.463" in found and found.endswith("no skill is shown.")


def test_of_several_rows_each_is_named(tmp_path):
    folders = [
        write_run(tmp_path / name, name, rows=[metrics(0, **loss(2.0)), metrics(2, **loss(end))], sites=WHOLE)
        for name, end in (("FedAvg", 1.0), ("FewFedPIT", 2.0))
    ]
    [found] = caveats(table(read_all(folders)))
    assert found.startswith("FewFedPIT: Hardly anything")
