"""What the page says of texts that evolved by votes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from murmura.report.evolved import curves, evolved
from murmura.report.page import render
from murmura.report.table import table
from murmura.runs import read
from murmura.runs.evolution import CurvePoint, Generation
from tests.report.runs import metrics, write_run
from tests.runs.test_evolution import POINTS, ROUNDS, leave

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


def test_votes_are_told_against_the_noise(run):
    [found] = evolved([run()])
    text = " ".join(found.sentences)
    assert "3 candidates in each of 2 rounds, of which 2 lived." in text
    assert "Noise of σ = 3.5 lies on every candidate’s votes." in text and "H = 7.0" in text
    assert "is covered by the run’s ε" in text
    [picture] = found.pictures
    assert picture.title == "Votes by round, against the noise" and "± σ" in picture.caption
    [shared] = evolved([run(noise=[3.5, 4.5], name="c")])  # by sites, of which more have answered in one round
    text = " ".join(shared.sentences)
    assert "σ = 3.5 to 4.5 lies" in text and "H = 7.0 to 9.0 was" in text
    [loud] = evolved([run(noise=0.0, name="b")])
    text = " ".join(loud.sentences) + loud.pictures[0].caption
    assert "No ε covers the votes" in text and "σ" not in text and "H =" not in text


def test_who_lived_and_who_died_is_shown_with_votes(run):
    [found] = evolved([run()])
    told = [(one.round, one.votes, one.drawn, one.text) for one in found.candidates]
    assert told == [
        ("1", "21.5", "2 times", "bees fly"), ("1", "4.0", "once", "soup boils"), ("1", "−3.2", "died", "trains stop"),
        ("2", "12.5", "2 times", "bees fly far"), ("2", "8.0", "once", "bees sleep"),
        ("2", "−1.5", "died", "soup is cold"),
    ]  # fmt: skip
    many = Generation(tuple(f"text {k}" for k in range(99)), tuple(map(float, range(99))), (0,) * 50 + (2,) * 49)
    [found] = evolved([run((many,) * 7, name="b")])
    assert [one.round for one in found.candidates] == ["1"] * 6 + ["4"] * 6 + ["7"] * 6
    assert [one.votes for one in found.candidates[:6]] == ["98.0", "97.0", "96.0", "2.0", "1.0", "0.0"]
    assert found.pictures[0].svg.count("<use") < 7 * 2 * 30  # and not all 693
    assert "at most 24" in found.pictures[0].caption


def test_how_good_the_model_is_is_drawn_by_how_many_texts(run, tmp_path):
    seeds = [run(name=str(seed), seed=seed) for seed in (0, 1)]
    plain = read(write_run(tmp_path / "plain", kind="document"))
    pictures = curves(table([*seeds, plain]))
    assert [one.title for one in pictures] == [
        "Held-out loss, by how many texts", "Next-token accuracy, by how many texts"
    ]  # fmt: skip
    assert ">24<" in pictures[0].svg and ">96<" in pictures[0].svg
    assert "Lower is better." in pictures[0].caption and "single runs" in pictures[0].caption
    assert "single runs" not in curves(table(seeds[:1]))[0].caption
    assert curves(table([run(points=POINTS[:1], name="one")])) == []
    unmeasured = (CurvePoint(24), CurvePoint(96))
    assert curves(table([run(points=unmeasured, name="none")])) == []


def test_the_page_has_it_and_shows_texts_as_they_are(run):
    hostile = replace(ROUNDS[0], candidates=("<script>alert(1)</script>", *ROUNDS[0].candidates[1:]))
    page = render([run((hostile,))])
    for word in ("<h2>How the texts evolved</h2>", "Votes by round, against the noise", "Held-out loss, by how many",
                 "&lt;script&gt;alert(1)", "3 candidates in one round"):  # fmt: skip
        assert word in page, word
    assert "<script" not in page
    only_curve = render([run((), name="b")])
    assert "How the texts evolved" not in only_curve and "Held-out loss, by how many texts" in only_curve
