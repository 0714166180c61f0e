"""What an audit has found, for the terminal and on the page."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from murmura.measure.catalogue import READS
from murmura.report.content import Heading, Table
from murmura.report.sections.audit import audit, figures_of
from murmura.report.sections.results import results
from murmura.report.table import table
from murmura.report.terminal import show_blocks
from murmura.runs import RunFolder, read, read_all
from murmura.runs.audit import Audit, Extraction, Separation, Written
from murmura.runs.names import AUDIT
from tests.report.blocks import blocks, pictures, said, small, tables
from tests.report.runs import BEST, MODEL, PLAIN_LOSS, metrics, write_run


@pytest.fixture
def audited(tmp_path):
    def build(name="a", model=MODEL, missing=(), rows=None, **options):
        path = write_run(tmp_path / name, rows=rows, **options)
        RunFolder(path).write(AUDIT, Audit("0.1", "2026-01-01T00:00:00+00:00", (model,), missing))
        return read(path)

    return build


def printed(run):
    console = Console(file=io.StringIO(), width=160)
    show_blocks(figures_of(run), console)
    return console.file.getvalue()


def section(*runs):
    return audit(table(runs))


def test_what_was_written_is_read_back(audited):
    made = Audit("0.1", "2026-01-01T00:00:00+00:00", (MODEL,), ("This was not done.",))
    assert audited(missing=("This was not done.",)).audit == made


def test_terminal_and_page_say_the_same(audited):
    run = audited(missing=("This was not done.",))
    found = section(run)
    assert tables(found) == [
        [
            ["error zone", "0.728", "0.641 to 0.808", "0.210", "0.110 to 0.330"],
            ["plain loss", "0.599", "0.500 to 0.690", "–", "–"],
        ]
    ]
    [picture] = pictures(found)
    assert picture.title == "Scores by error zone, the model" and "This was not done." in said(found)
    told = " ".join(printed(run).split())
    titles = [one.title for one in blocks(found, Table)]
    cells = [cell for line in tables(found)[0] for cell in line]
    for words in (*titles, *cells, *small(found), said(found)):
        assert words in told


def test_why_an_attack_is_called_the_strongest_is_said(audited):
    lucky = Separation("window votes", 0.751, 0.66, 0.83, None, None, None, apart=0.6021)
    attacks = (replace(BEST, apart=0.7312), lucky, replace(PLAIN_LOSS, apart=0.9))
    why, control = small(section(audited(model=replace(MODEL, attacks=attacks))))
    assert why.startswith("strongest: 0.731") and why.endswith("0.602") and "never" in control
    assert small(section(audited("few")))[0].startswith("strongest: the first")


def test_what_attacks_go_by_is_said(audited):
    run = audited()
    assert f"“error zone”, {READS['error zone']}; “plain loss”, {READS['plain loss']}." in said(section(run))


TRIES = Extraction("model", 1.0, 40, 0.9, 28, 24, (1, 1000), (0.0, 0.25), (0.0, 0.13), (0.12, 0.43), (0.0, 0.0))
ANSWERS = Written("model", "record", 50, 40, 0.5, 0.25, 0.25, 0.2, 0.3)
TEXTS = Written("model", "template", 100, 100, 0.31, 0.29, 0.02, -0.01, 0.05)


def test_extraction_and_what_was_written(audited):
    run = audited()
    found = section(replace(run, audit=replace(run.audit, extraction=(TRIES,), written=(ANSWERS, TEXTS))))
    _, extracted, written = tables(found)
    assert extracted == [["1", "0.000", "0.000 to 0.120", "0.000"], ["1,000", "0.250", "0.130 to 0.430", "0.000"]]
    assert [line[1:] for line in written] == [
        ["0.500", "0.250", "+0.250", "+0.200 to +0.300"],
        ["0.310", "0.290", "+0.020", "−0.010 to +0.050"],
    ]
    title = blocks(found, Table)[1].title
    assert "0.9 or more" in title and "(temperature 1, top-k 40)" in title
    assert small(found)[-2:] == ["n = 50 and 40", "100 texts"]
    same = replace(TRIES, found=(0.25, 0.25), others_found=(0.0, 0.0))
    _, plateau = tables(section(replace(run, audit=replace(run.audit, extraction=(same,)))))
    assert [line[0] for line in plateau] == ["1,000"]  # the plateau's end alone


def test_few_records_say_little(audited):
    run = audited(model=replace(MODEL, others=19))
    tries, texts = replace(TRIES, members=19), replace(TEXTS, members=8, others=8)
    answers = replace(ANSWERS, members=1, others=1)
    run = replace(run, audit=replace(run.audit, extraction=(tries,), written=(answers, texts)))
    attacked, extracted, _ = (table.title for table in blocks(section(run), Table))
    assert attacked.endswith("against 19 others, too few to say much")
    assert extracted.endswith("of 19 of the sites’ records and 24 others, too few to say much")
    assert small(section(run))[-2:] == ["n = 1 and 1, too few to say much", "8 texts, too few to say much"]


def test_how_many_records_a_private_run_has_is_not_told(audited):
    run = audited(model=replace(MODEL, members=None))
    tries, answers = replace(TRIES, members=None), replace(ANSWERS, members=None)
    run = replace(run, audit=replace(run.audit, extraction=(tries,), written=(answers,)))
    found = section(run)
    attacked, extracted, _ = (table.title for table in blocks(found, Table))
    assert attacked == "The model: some of the sites’ records against 120 others"
    assert extracted.endswith("of some of the sites’ records and 24 others") and small(found)[-1] == "n = 40 others"


def test_its_caveat_is_told_and_that_nothing_was_attacked_is_not(audited):
    run = audited(rows=[metrics(0, attack_auc=None, upload_auc=None)])
    run = replace(run, audit=replace(run.audit, caveat="No ε covers this."))
    assert "No ε covers this." in said(section(run))
    attacked, nothing = results(table([run])), results(table([replace(run, audit=None)]))
    assert "Leakage was not measured" not in said(attacked) and "Leakage was not measured" in said(nothing)


def test_each_of_several_runs_has_its_own(audited, tmp_path):
    runs = read_all([audited("a").folder, audited("b", method="Other").folder, write_run(tmp_path / "c", method="C")])
    assert [heading.names[0].text for heading in blocks(section(*runs), Heading)] == ["a", "b"]
    assert len(tables(section(*runs))) == 2
    assert section(runs[-1]) is None
