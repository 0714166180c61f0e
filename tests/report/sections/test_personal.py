"""What single sites gain, in a report."""

from murmura.report.content import Details, Listing
from murmura.report.sections.personal import personal
from murmura.runs import RunFolder
from murmura.runs.names import PERSONAL
from murmura.runs.schema import PersonalModel
from tests.report.blocks import blocks, pictures, tables
from tests.report.runs import rows_of, write_run


def run(folder, sites):
    path = write_run(folder)
    RunFolder(path).write(
        PERSONAL, [PersonalModel(f"site {n}", 4 + n, 2.5, 2.0, 1.75 + n / 4, 3.0, 2.75, 2.875) for n in range(sites)]
    )
    return path


def test_each_site_has_a_row_and_a_line_and_who_pays_is_named(tmp_path):
    section = personal(rows_of(run(tmp_path / "a", 3)))
    own, public = tables(section)
    assert own[1] == ["site 1", "5", "2.500", "2.000", "2.000", "0.000"]
    assert public[0] == ["site 0", "3.000", "2.750", "2.875", "+0.125"]
    [listing] = blocks(section, Listing)
    assert "3 of 3 sites gain" in listing.items[0]
    assert "1 of 3 sites gain" in listing.items[1] and "site 2 pays" in listing.items[1]
    [picture] = pictures(section)
    assert all(f"site {n}" in picture.svg for n in range(3))


def test_of_many_sites_the_table_is_folded_and_the_picture_names_none(tmp_path):
    section = personal(rows_of(run(tmp_path / "a", 13)))
    assert len(blocks(section, Details)) == 2
    assert "site 1" not in pictures(section)[0].svg


def test_other_runs_have_no_such_section(tmp_path):
    assert personal(rows_of(write_run(tmp_path / "a"))) is None
