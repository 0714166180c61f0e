"""The pictures of utility against leakage, and of utility alone: names that fit, who stands where, and what is said to
those who cannot see it."""

import re
from itertools import pairwise

import pytest

from murmura.measure.catalogue import figure
from murmura.report.frontier import Level, Mark, frontier_picture, levels_picture
from murmura.report.style import style

LEVELS = [
    Level("first", style(0), 0.7, (0.65, 0.75), [0.68, 0.72]),
    Level("second", style(1), 0.8),
    Level("linear", None, 0.6),
]


def drawn(*names):
    marks = [Mark(name, style(place), 2.0 + place / 10, 0.6) for place, name in enumerate(names)]
    return frontier_picture(marks, figure("heldout_loss"), "").svg


def shown(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_names_are_no_mathematics():
    assert {"a $x^2$ b", "only one $"} <= set(shown(drawn("a $x^2$ b", "only one $")))


def test_long_names_lose_their_middle_in_the_picture_and_nothing_in_its_words():
    long = [f"FewFedPIT β=0.3 (method.keep = {keep}, method.scorer = ifs, rank = {keep})" for keep in (4, 8)]
    svg = drawn(*long)
    names = [text for text in shown(svg) if text.startswith("FewFedPIT")]
    assert len(set(names)) == 2 and all(len(name) <= 20 for name in names)
    assert all(f"{name}: held-out loss" in svg for name in long)


def heights(svg, names):
    """How far below the upper edge each of these names stands."""
    found = re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>([^<]+)</text>', svg)
    return {name: float(height) for height, name in found if name in names}


@pytest.mark.parametrize("arms", [5, 30])
def test_no_name_is_written_over_another(arms):
    names = [f"arm {place}" for place in range(arms)]
    found = sorted(heights(drawn(*names), names).values())
    assert len(found) == arms
    assert min(below - above for above, below in pairwise(found)) > 11


def test_names_whose_ends_and_beginnings_are_alike_differ():
    names = [f"FewFedPIT, beta = {beta}, keep = 2" for beta in (0.0, 0.5)]
    found = [text for text in shown(drawn(*names)) if "keep = 2" in text]
    assert len(set(found)) == 2


def test_a_name_is_not_written_on_a_mark_however_near_marks_lie():
    marks = [Mark(name, style(0), loss, 0.5) for name, loss in (("a", 2.3014), ("b", 2.3016))]
    svg = frontier_picture(marks, figure("heldout_loss"), "").svg
    names = [float(x) for x in re.findall(r'<text[^>]* x="([\d.]+)"[^>]*>[ab]</text>', svg)]
    dots = [float(x) for x in re.findall(r'<use xlink:href="[^"]*" x="([\d.]+)"', svg)]
    assert names and dots and min(names) > max(dots) + 4  # which is how far a mark reaches


def test_markup_in_a_name_stays_text():
    svg = drawn('<b>&"')
    assert "<b>" not in svg and "&lt;b&gt;&amp;&quot;: held-out loss" in svg


def test_of_levels_the_first_is_on_top_and_all_are_named():
    found = heights(levels_picture(LEVELS, figure("accuracy"), "").svg, [level.name for level in LEVELS])
    assert sorted(found, key=found.__getitem__) == ["first", "second", "linear"]


def test_a_picture_of_levels_says_what_it_shows_and_where_better_is():
    picture = levels_picture(LEVELS, figure("accuracy"), "Bars.")
    assert 'aria-label="Accuracy. first: 0.700; second: 0.800; linear: 0.600."' in picture.svg
    assert "→ better" in picture.svg and "← better" in levels_picture(LEVELS, figure("heldout_loss"), "").svg
    attacked = "None of these was attacked while it ran (evaluation.attacks), so this is utility alone."
    assert picture.caption == f"{attacked} Bars."
