"""How good each row or arm is in one picture, where no run attacked its model: a line each, with its name beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murmura.measure.figure import Figure
from murmura.report.content import Picture
from murmura.report.drawing import ROOM, Ends, lengthen, marked, named, shortened, svg
from murmura.report.style import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BELOW = 0.28  # of a line, where single seeds lie, so that they do not hide the interval
_ROOMY = 2  # lines of type, of one of these at least


@dataclass(frozen=True, slots=True)
class Level:
    """How good a row or an arm is.

    Attributes:
        name: that stands beside it.
        look: its colour and marker; None for what it is only held against, which is grey.
        mean: over the seeds.
        ends: of its 95 % interval, where that is known.
        seeds: single ones, where there are several.
    """

    name: str
    look: Style | None
    mean: float
    ends: Ends | None = None
    seeds: Sequence[float] = ()


def levels_picture(levels: Sequence[Level], utility: Figure, bars: str) -> Picture:
    """One picture of at least one of them, the first on top.

    Args:
        bars: what bars and hollow marks are, as a sentence of the caption.
    """
    right = utility.better == "higher"

    def draw(axes: Axes) -> None:
        for row, one in enumerate(reversed(levels)):
            marked(axes, (one.mean, row), one.look, one.ends, seeds=[(seed, row - _BELOW) for seed in one.seeds])
        axes.set_ylim(-0.6, len(levels) - 0.4)
        lengthen(axes)
        low, high = axes.get_xlim()
        axes.set_xlim(low, high + ROOM * (high - low))
        names = shortened([one.name for one in levels])
        for row, (one, name) in enumerate(zip(reversed(levels), reversed(names), strict=True)):
            named(axes, high + 0.04 * (high - low), row, name, one.look)
        axes.yaxis.set_visible(False)
        axes.set_xlabel(f"{utility.title.lower()} ({utility.unit.name}), {'→' if right else '←'} better")

    words = "; ".join(f"{one.name}: {utility.unit.write(one.mean)}" for one in levels)
    drawn = svg(draw, "", "levels", rounds=False, described=f"{utility.title}. {words}.", names=_ROOMY * len(levels))
    caption = f"None of these was attacked while it ran (evaluation.attacks), so this is utility alone. {bars}"
    return Picture(utility.title, drawn, caption.strip())
