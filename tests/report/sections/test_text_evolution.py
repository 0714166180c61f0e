"""Texts that evolved by votes."""

from dataclasses import replace

import pytest

from murmura.report.page import render
from murmura.report.sections.text_evolution import by_texts, text_evolution
from murmura.report.table import table
from murmura.runs import read
from murmura.runs.evolution import CurvePoint, Generation
from tests.report.blocks import pictures, said, tables
from tests.report.runs import metrics, write_run
from tests.runs.outcomes import POINTS, ROUNDS, leave

PRIVACY = {"unit": "site", "adjacency": "zero-out", "delta": 1e-5, "epsilon": 8.0, "plan": "the plan"}


@pytest.fixture
def run(tmp_path):
    def build(rounds=ROUNDS, points=POINTS, noise=3.5, name="a", **options):
        noises = noise if isinstance(noise, list) else [noise, noise]
        rows = [metrics(n, vote_noise=own, privacy=PRIVACY if own else {}) for n, own in enumerate(noises, start=1)]
        path = write_run(tmp_path / name, method="PrE-Text ε=8", rows=rows, kind="document", **options)
        config = path / "config.toml"
        config.write_text(config.read_text().replace('[method]\nname = "fedit"', "[method]\nthreshold = 2.0"))
        return read(leave(path, rounds, points))

    return build


def section(*runs):
    return text_evolution(table(runs))


def test_votes_are_told_against_the_noise(run):
    quiet = section(run())
    for told in ("3 candidates in each of 2 rounds, of which 2 lived.", "σ = 3.5", "H = 7.0", "covered by the run’s ε"):
        assert told in said(quiet)
    assert "± σ" in pictures(quiet)[0].caption
    shared = section(run(noise=[3.5, 4.5], name="c"))  # by sites, of which more have answered in one round
    assert "σ = 3.5 to 4.5" in said(shared) and "H = 7.0 to 9.0" in said(shared)
    loud = section(run(noise=0.0, name="b"))
    text = said(loud) + pictures(loud)[0].caption
    assert "No ε covers the votes" in text and "σ" not in text and "H =" not in text


def test_who_lived_and_who_died_is_shown_with_votes(run):
    [first] = tables(section(run()))
    assert first == [
        ["1", "21.5", "2 times", "bees fly"],
        ["1", "4.0", "once", "soup boils"],
        ["1", "−3.2", "died", "trains stop"],
        ["2", "12.5", "2 times", "bees fly far"],
        ["2", "8.0", "once", "bees sleep"],
        ["2", "−1.5", "died", "soup is cold"],
    ]
    many = Generation(tuple(f"text {k}" for k in range(99)), tuple(map(float, range(99))), (0,) * 50 + (2,) * 49)
    long = section(run((many,) * 7, name="b"))
    [lines] = tables(long)
    assert [line[0] for line in lines] == ["1"] * 6 + ["4"] * 6 + ["7"] * 6
    assert [line[1] for line in lines[:6]] == ["98.0", "97.0", "96.0", "2.0", "1.0", "0.0"]
    [picture] = pictures(long)
    assert picture.svg.count("<use") < 7 * 2 * 30  # and not all 693
    assert "at most 24" in picture.caption


def test_pairs_are_told_as_such(run):
    first = Generation(("bees fly", "soup boils", "a", "b"), (0.5, -0.25, 0.1, 0.05), (1, 0, 1, 0), pairs=True)
    none = Generation((), (), (), pairs=True)  # no text had more votes than another
    tuned = section(run((first, first), name="b"))
    for told in ("2 pairs of texts in each of 2 rounds, one of each preferred.", "σ = 3.5", "covered by the run’s ε"):
        assert told in said(tuned)
    assert "POPri" in tuned.lead and "PrE-Text" not in tuned.lead
    text = pictures(tuned)[0].caption
    assert "Filled: texts that were preferred." in text and "threshold" not in text + said(tuned)
    [lines] = tables(tuned)
    assert lines[:4] == [
        ["1", "0.50", "preferred", "bees fly"],
        ["1", "−0.25", "to", "soup boils"],
        ["1", "0.10", "preferred", "a"],
        ["1", "0.05", "to", "b"],
    ]
    assert "2 and 0 pairs" in said(section(run((first, none), name="c")))
    both = section(run(), run((first, first), name="d"))
    assert "PrE-Text" in both.lead and "POPri" in both.lead
    with pytest.raises(ValueError, match="before the one"):
        Generation(("a", "b"), (1.0, 0.0), (0, 1), pairs=True)


def test_how_good_the_model_is_is_drawn_by_how_many_texts(run, tmp_path):
    seeds = [run(name=str(seed), seed=seed) for seed in (0, 1)]
    plain = read(write_run(tmp_path / "plain", kind="document"))
    loss, accuracy = pictures(by_texts(table([*seeds, plain])))
    assert loss.title.startswith("Held-out loss") and accuracy.title.startswith("Next-token accuracy")
    assert ">24<" in loss.svg and ">96<" in loss.svg
    assert "Lower is better." in loss.caption and "single runs" in loss.caption
    assert "single runs" not in pictures(by_texts(table(seeds[:1])))[0].caption
    for points in (POINTS[:1], (CurvePoint(24), CurvePoint(96))):
        assert by_texts(table([run(points=points, name=f"{len(points)} points")])) is None


def test_the_page_has_it_and_shows_texts_as_they_are(run):
    hostile = replace(ROUNDS[0], candidates=("<script>alert(1)</script>", *ROUNDS[0].candidates[1:]))
    page = render([run((hostile,))])
    assert "&lt;script&gt;alert(1)" in page and "<script" not in page
    only_curve = table([run((), name="b")])
    assert text_evolution(only_curve) is None and by_texts(only_curve) is not None
