"""Utility in one picture, against leakage, or alone where no run attacked its model: each row or arm by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murmura.measure.figure import GUESSING, Figure
from murmura.report.content import Picture
from murmura.report.drawing import LINE, MUTED, ROOM, Ends, colour_of, lengthen, marked, named, shortened, svg
from murmura.report.style import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BELOW = 0.28  # of a level's line, where its single seeds lie, so that they do not hide the interval
_ROOMY = 2  # lines of type that a level takes, at least


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a row or an arm lies.

    Attributes:
        name: that stands beside it.
        look: its colour and marker; None for the model before training, which is grey.
        utility, leakage: how good it is, and the AUC of an attack.
        across, up: ends of their 95 % intervals, where these are known.
        seeds: utility and leakage of single seeds, where there are several.
    """

    name: str
    look: Style | None
    utility: float
    leakage: float
    across: Ends | None = None
    up: Ends | None = None
    seeds: Sequence[tuple[float, float]] = ()


def frontier_picture(
    marks: Sequence[Mark], utility: Figure, bars: str, attack: str = "the strongest attack"
) -> Picture:
    """One picture of at least one mark.

    Args:
        bars: what bars and hollow marks are, as a sentence of the caption.
        attack: whose AUC leakage is, in words.
    """
    right = utility.better == "higher"

    def draw(axes: Axes) -> None:
        axes.axhline(GUESSING, color=MUTED, linewidth=0.9, zorder=1)
        for one in marks:
            marked(axes, (one.utility, one.leakage), one.look, one.across, one.up, one.seeds)
        _name(axes, marks)
        _label(axes, utility)

    caption = (
        f"Best is the lower {'right' if right else 'left'} corner: useful, and gives little away. The line is "
        f"guessing. {bars}"
    ).strip()
    unit, words = f"leakage (AUC of {attack}), ↓ better", _words(marks, utility)
    drawn = svg(draw, unit, "frontier", rounds=False, described=words, names=len(marks))
    return Picture("Utility against leakage", drawn, caption)


def _words(marks: Sequence[Mark], utility: Figure) -> str:
    """The picture for those who cannot see it."""
    told = (
        f"{one.name}: {utility.title.lower()} {utility.unit.write(one.utility)}, leakage {one.leakage:.3f}"
        for one in marks
    )
    return f"Utility against leakage. {'; '.join(told)}."


def _name(axes: Axes, marks: Sequence[Mark]) -> None:
    """Names in a column on the right, in the order of their marks, each led to its own."""
    lengthen(axes)
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    wide, tall, line = right - left, high - low, LINE / axes.bbox.height
    guess = (GUESSING - low) / tall
    axes.set_xlim(left, right + ROOM * wide)
    ordered = sorted(marks, key=lambda one: one.leakage)
    places: list[float] = []
    for one in ordered:
        at = (one.leakage - low) / tall
        at += line * (abs(at - guess) < line / 2)  # not on the line of guessing
        places.append(max(at, places[-1] + line) if places else at)
    over = max(0.0, places[-1] - 1.0)
    for one, place, name in zip(ordered, places, shortened([one.name for one in ordered]), strict=True):
        spot = low + (place - over) * tall
        ends = [one.utility, right + 0.06 * wide], [one.leakage, spot]
        axes.plot(*ends, color=colour_of(one.look), linewidth=0.6, alpha=0.5, zorder=2)
        named(axes, right + 0.08 * wide, spot, name, one.look)


@dataclass(frozen=True, slots=True)
class Level:
    """How good a row or an arm is, where nothing is known of what it leaks; see ``Mark``.

    What others are only held against has no ``look``, too.
    """

    name: str
    look: Style | None
    utility: float
    across: Ends | None = None
    seeds: Sequence[float] = ()


def levels_picture(levels: Sequence[Level], utility: Figure, bars: str) -> Picture:
    """One picture of at least one of them, the first on top; for ``bars`` see ``frontier_picture``."""

    def draw(axes: Axes) -> None:
        for row, one in enumerate(reversed(levels)):
            marked(axes, (one.utility, row), one.look, one.across, seeds=[(seed, row - _BELOW) for seed in one.seeds])
        axes.set_ylim(-0.6, len(levels) - 0.4)
        lengthen(axes)
        low, high = axes.get_xlim()
        axes.set_xlim(low, high + ROOM * (high - low))
        names = shortened([one.name for one in levels])
        for row, (one, name) in enumerate(zip(reversed(levels), reversed(names), strict=True)):
            named(axes, high + 0.04 * (high - low), row, name, one.look)
        axes.yaxis.set_visible(False)
        _label(axes, utility)

    words = "; ".join(f"{one.name}: {utility.unit.write(one.utility)}" for one in levels)
    drawn = svg(draw, "", "levels", rounds=False, described=f"{utility.title}. {words}.", names=_ROOMY * len(levels))
    caption = f"None of these was attacked while it ran (evaluation.attacks), so this is utility alone. {bars}"
    return Picture(utility.title, drawn, caption.strip())


def _label(axes: Axes, utility: Figure) -> None:
    arrow = "→" if utility.better == "higher" else "←"
    axes.set_xlabel(f"{utility.title.lower()} ({utility.unit.name}), {arrow} better")
