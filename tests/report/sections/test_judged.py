import pytest

from murmura.report.sections.judged import judged
from murmura.runs.folder import RunFolder
from murmura.runs.judgement import BEFORE, Judgement
from tests.report.blocks import said
from tests.report.runs import PROMISE, metrics, rows_of, write_run


def page(tmp_path, last, against=BEFORE, private=False, **judgement):
    path, counts = write_run(tmp_path / "a", rows=[metrics(0), last]), {"overall": {"win": 1, "tie": 0, "lose": 0}}
    RunFolder(path).write_judgement(
        "x", Judgement(against, "m", "here", 1, counts, 0, 2, 0, None, private, **judgement)
    )
    return said(judged(rows_of(path)))


@pytest.mark.parametrize(
    ("judgement", "why"),
    [
        ({"private": True}, "the questions come out of the sites’ records"),
        ({"site": "heart", "against": f"{BEFORE}, at site heart"}, "site heart has answered by an adapter of its own"),
        ({"against": f"{BEFORE} 2"}, "the run’s ε does not count the other run"),
    ],
)
def test_what_no_epsilon_covers_of_a_judgement_is_told_where_one_is_promised(tmp_path, judgement, why):
    promising = metrics(1, **PROMISE)
    assert f"No ε covers these figures: {why}." in page(tmp_path / "told", promising, **judgement)
    assert "No ε covers" not in page(tmp_path / "public", promising)
    assert "No ε covers" not in page(tmp_path / "no ε", metrics(1), **judgement)
