"""The picture of utility alone: who stands where, and what it says to those who cannot see it."""

import re

from murmura.measure.catalogue import figure
from murmura.report.frontier import Level, levels_picture
from murmura.report.style import style

LEVELS = [
    Level("first", style(0), 0.7, (0.65, 0.75), [0.68, 0.72]),
    Level("second", style(1), 0.8),
    Level("linear", None, 0.6),
]


def heights(svg):
    """Of each name, how far below the upper edge it stands."""
    found = re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>(\w+)</text>', svg)
    return {name: float(height) for height, name in found if name in {level.name for level in LEVELS}}


def test_the_first_is_on_top_and_all_are_named():
    found = heights(levels_picture(LEVELS, figure("accuracy"), "").svg)
    assert sorted(found, key=found.__getitem__) == ["first", "second", "linear"]


def test_it_says_what_it_shows_and_where_better_is():
    drawn = levels_picture(LEVELS, figure("accuracy"), "Bars.")
    assert 'aria-label="Accuracy. first: 0.700; second: 0.800; linear: 0.600."' in drawn.svg
    assert "→ better" in drawn.svg and "← better" in levels_picture(LEVELS, figure("heldout_loss"), "").svg
    attacked = "None of these was attacked while it ran (evaluation.attacks), so this is utility alone."
    assert drawn.caption == f"{attacked} Bars."
