"""Sites with their numbers of records, and where time went there."""

import pytest

from murmura.report.content import Details, Table
from murmura.report.sections.bars import counts, time
from murmura.report.sections.sites import sites
from murmura.runs import RunFolder
from murmura.runs.names import PERSONAL
from murmura.runs.schema import PersonalModel, SiteReport
from murmura.units import DASH
from tests.report.blocks import bars, blocks, said, tables
from tests.report.runs import metrics, rows_of, write_run


def rows(folder, **options):
    return rows_of(write_run(folder, **options))


def test_sites_add_up(tmp_path):
    found = sites(rows(tmp_path / "a"))
    [table] = blocks(found, Table)
    assert table.total and tables(found)[0][1:] == [["skin", "30", "30", "0", "0"], ["All sites", "54", "52", "1", "2"]]


@pytest.mark.parametrize(("number", "folded"), [(12, 0), (13, 1)])
def test_many_sites_are_folded_away(tmp_path, number, folded):
    names = [f"site-{place}" for place in range(number)]
    found = sites(rows(tmp_path / "a", sites=[SiteReport(name, 3, 2, 1, 0) for name in names]))
    assert len(blocks(found, Details)) == folded and len(tables(found)) == 1
    found = sites(rows(tmp_path / "b", sites=[SiteReport(name, None, None, None, None) for name in names]))
    assert len(blocks(found, Details)) == folded and tables(found) == []
    assert names[-1] in said(found) and "is not told" in said(found)


def test_what_is_not_known_of_sites_elsewhere_is_no_zero(tmp_path):
    found = sites(rows(tmp_path / "a", sites=[SiteReport(name, None, 3, None, None) for name in ("north", "south")]))
    names = {"north": "3", "south": "3", "All sites": "6"}
    assert tables(found)[0] == [[name, DASH, used, DASH, DASH] for name, used in names.items()]
    assert "and not how many more it has" in said(found) and "ε" not in said(found)
    assert "on a machine of its own" not in said(sites(rows(tmp_path / "b")))


def test_that_nobody_measured_who_gains_is_told_where_it_could_have_been(tmp_path):
    assert "Whether every site gains" in said(sites(rows(tmp_path / "a")))
    private = rows(tmp_path / "b", rows=[metrics(0), metrics(2, privacy={"epsilon": 1.0})])
    assert "Whether every site gains" not in said(sites(private))
    gained = write_run(tmp_path / "c")
    RunFolder(gained).write(PERSONAL, [PersonalModel("x", 4, 2.5, 2.0, 2.0, 3.0, 2.75, 2.875)])
    assert "Whether every site gains" not in said(sites(rows_of(gained)))


def test_time_outside_phases_is_shown_as_other(tmp_path):
    found = time(rows(tmp_path / "a"))  # 90 s of wall time; train 36 s, evaluate 18 s
    assert bars(found) == [("train", "36.0 s", 40.0), ("evaluate", "18.0 s", 20.0), ("other", "36.0 s", 40.0)]


def test_what_was_counted_is_told_by_reason(tmp_path):
    told = [metrics(0), metrics(1, counts={"drafts.too_short": 8, "drafts.kept": 32})]
    assert bars(counts(rows(tmp_path / "a", rows=told))) == [("kept", "32", 100.0), ("too short", "8", 25.0)]
    assert counts(rows(tmp_path / "b")) is None
