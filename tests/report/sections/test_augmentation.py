"""What the page says of public records that sites were given."""

from dataclasses import replace

import pytest

from murmura.report.content import Details, Heading, Table
from murmura.report.page import render
from murmura.report.sections.augmentation import augmentation, coverage
from murmura.report.sections.disclosure import disclosure
from murmura.report.sections.guarantee import guarantee
from murmura.report.table import table
from murmura.runs import RunFolder, read
from murmura.runs.augment import CentresGuarantee, Given, PublicSelection
from murmura.runs.names import AUGMENT
from tests.report.blocks import blocks, pictures, said, tables
from tests.report.runs import NOISED, PLAIN, write_run
from tests.runs.outcomes import SELECTION

NOISY = CentresGuarantee(3.1401, 1e-5, "zero-out", "the plan")
PLAINLY = replace(SELECTION, guarantee=None)


@pytest.fixture
def run(tmp_path):
    def build(*selections, name="a", **options):
        path = write_run(tmp_path / name, **options)
        RunFolder(path).write(AUGMENT, selections)
        return read(path)

    return build


def section(*runs):
    return augmentation(table(runs))


def words(run):
    return said(section(run))


def columns(run):
    return blocks(section(run), Table)[0].columns


def test_what_sites_were_given_is_told(run):
    told = run(SELECTION)
    for word in ("4 records (400 B) for 2 sites, 3 asked for each site", "of round 1. 50 %", "“code”", "by 0.750."):
        assert word in words(told)
    scores = ["dot product", "least to most"]
    assert columns(told) == ["Site", "Records", "code", "math", "Fewer than asked", "Size", *scores]
    given, examples = tables(section(told))
    assert given == [
        ["a", "3", "2", "1", "0", "300 B", "0.500", "0.250 to 0.750"],
        ["b", "1", "0", "1", "2", "100 B", "0.250", "0.250 to 0.250"],
        ["All sites", "4", "2", "2", "2", "400 B", "0.438", "–"],
    ]
    assert examples == [["a", "code", "0.750", "Sort a list.", "nearest to centre 2"]]
    assert len(pictures(section(told))) == 2


def test_that_a_centre_of_one_record_is_its_vector_is_told(run):
    told = words(run(PLAINLY))
    assert "A centre of a single record is that record’s vector" in told
    assert "Of the 8 that sites sent in all, 1 are of one." in told
    again = replace(PLAINLY, round=2, centres=4, alone=2)
    assert "Of the 12 that sites sent in all, 3 are of one." in words(run(PLAINLY, again, name="c"))
    assert "centre" not in words(run(replace(PLAINLY, centres=None, alone=None), name="b"))


def test_the_epsilon_of_centres_is_told_as_that_of_centres_alone(run):
    centres = dict(NOISED[0], verb="centres", field="centres", kind="embeddings")
    told = run(replace(SELECTION, guarantee=NOISY), disclosure=[*PLAIN, centres])
    text = words(told)
    assert "The centres of a site are covered by ε = 3.141 at δ = 1e-05" in text  # rounded up
    assert "It covers the centres and nothing else" in text and "the run has none" in text
    assert "only centres left with noise" in said(disclosure(table([told])))
    assert guarantee(table([told])) is None
    refused = replace(SELECTION, guarantee=replace(NOISY, epsilon=None, refused="no ε: less noise"))
    assert "no ε all the same: no ε: less noise" in words(run(refused, name="b"))


def test_a_run_whose_every_upload_is_noisy_is_not_said_to_protect_only_a_part(run):
    assert said(disclosure(table([run(SELECTION, disclosure=NOISED)]))) == ""


def test_that_private_records_are_missing_from_the_pool_is_told(run):
    assert "Private records were left out of the pool" in words(run(replace(SELECTION, without_private=True)))
    assert "left out of the pool" not in words(run(SELECTION, name="b"))


def test_texts_are_shown_as_they_are_and_not_as_markup(run):
    example = replace(SELECTION.examples[0], text="<script>alert(1)</script> & more" + " word" * 100, why="<i>near</i>")
    page = render([run(replace(SELECTION, examples=(example,), domain='"<b>'))])
    assert "<script" not in page and "<i>near" not in page and "<b>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more word" in page
    assert page.count(" word") < 100  # of a long one the beginning


def test_without_scores_and_clusters_there_is_less_to_tell(run):
    plain = run(PublicSelection(1, "random", {f"s{k}": Given(2, 0, 9, {"code": 2}) for k in range(13)}, records=2))
    assert columns(plain) == ["Site", "Records", "code", "Fewer than asked", "Size"]
    found = section(plain)
    [folded] = blocks(found, Details)
    assert not folded.opened and pictures(found) == [] and len(found.blocks) == 2


def test_many_domains_share_a_column(run):
    many = run(replace(SELECTION, sites={"a": Given(21, 0, 9, {f"d{k}": k for k in range(1, 7)})}))
    assert columns(many)[2:8] == ["d6", "d5", "d4", "d3", "d2", "other domains"]
    assert tables(section(many))[0][0][1:8] == ["21", "6", "5", "4", "3", "2", "1"]


def test_chosen_again_the_last_choice_is_shown(run):
    again = replace(SELECTION, round=3, records=7)
    assert "7 asked for each site, chosen at the beginning of rounds 1 and 3, of which the last is shown" in words(
        run(SELECTION, again)
    )


def test_runs_without_augmentation_have_no_section(tmp_path):
    assert section(read(write_run(tmp_path / "a"))) is None


def labels(picture):
    return [entry.text for entry in picture.legend]


def test_coverage_is_drawn_against_what_runs_differ_in(run):
    def made(name, **changes):
        return run(replace(SELECTION, **changes), name=name)

    few, many = made("few", records=3, coverage=0.5), made("many", records=9, coverage=0.75)
    [one] = coverage([few, many])
    assert one.title == "Coverage against records asked for each site" and labels(one) == ["FedDCA"]
    other, fine = made("other", strategy="random", clusters=None), made("fine", records=9, clusters=8)
    records, clusters = coverage([few, many, other, fine])
    assert clusters.title == "Coverage against clusters at each site (ξ)"
    assert labels(records) == ["FedDCA, ξ = 4", "random", "FedDCA, ξ = 8"]
    drawn = pictures(section(few, many, other, fine))
    assert [one.title for one in drawn[:2]] == [records.title, clusters.title]
    assert coverage([few]) == [] and coverage([few, made("again", records=3, coverage=0.25)]) == []
    assert coverage([few, made("none", records=9, coverage=None)]) == []


def test_runs_that_differ_in_another_option_are_no_repetitions_of_each_other(run):
    def made(name, records, alpha):
        told = run(replace(SELECTION, records=records), name=name)
        return replace(told, config=f"{told.config}\n[augment]\nrecords = {records}\nalpha = {alpha}\nevery = 2\n")

    runs = [made(f"{records}-{alpha}", records, alpha) for records in (3, 9) for alpha in (0.7, 0.0)]
    [one] = coverage(runs)
    assert labels(one) == ["FedDCA, alpha = 0.7", "FedDCA, alpha = 0.0"]
    [one] = coverage([runs[0], runs[2], replace(runs[0], name="again")])
    assert labels(one) == ["FedDCA"]


def test_of_several_runs_each_is_named(run):
    found = section(run(PLAINLY, name="a"), run(PLAINLY, name="b", method="Other"))
    assert [heading.names[0].text for heading in blocks(found, Heading)] == ["a", "b"]
