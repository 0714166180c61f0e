"""One picture as SVG that takes its colours and its type from the page around it.

Drawn with matplotlib's object interface: nothing here touches pyplot or leaves a global setting changed, and the same
figures give the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING, Any

from murmura.report.style import COLOURS, Style, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# Colours that stand for CSS variables until the SVG is written.
_STAND_INS = {"#010101": "--ink", "#020202": "--muted", "#030303": "--rule", "#040404": "--paper"}
_STAND_INS |= {look.colour: f"--series-{look.number}" for look in map(style, range(COLOURS))}
INK, MUTED, RULE, PAPER = list(_STAND_INS)[:4]

# Units of the SVG's view box; at 400 wide, type of 11 units is readable on a telephone and not coarse on a desk.
_WIDTH, _HEIGHT, _TYPE = 400, 262, 11.0
_ABOVE, _BELOW, _UNIT = 27.51, 41.92, 10.6  # the plot's margins, and how far above it the unit of y stands
LINE = 12.0  # between two names
FEW = 12  # up to so many rounds every one has its mark
ROOM = 0.75  # of the width of marks, for their names beside them
_LETTERS = 20  # of a name, for which there is room on a telephone too
_FINEST = 0.005  # no axis is shorter, so that ticks are no finer than the three decimals of tables

Ends = tuple[float, float]


def dots(axes: Axes, points: Sequence[tuple[float, float]], colour: str, size: float, **more: Any) -> None:
    """Marks without a line between them."""
    x, y = [one[0] for one in points], [one[1] for one in points]
    axes.plot(x, y, linestyle="none", color=colour, markersize=size, **({"marker": "o"} | more))


def hollow(axes: Axes, points: Sequence[tuple[float, float]], look: Style, zorder: int) -> None:
    """Small marks of single runs, beside that of their mean."""
    edge = {"markerfacecolor": PAPER, "markeredgewidth": 0.9}
    dots(axes, points, look.colour, 3.2, marker=look.marker, zorder=zorder, **edge)


def marked(
    axes: Axes,
    at: tuple[float, float],
    look: Style | None,
    across: Ends | None = None,
    up: Ends | None = None,
    seeds: Sequence[tuple[float, float]] = (),
) -> None:
    """One mark with its intervals and, where there are several, small hollow marks of single seeds; without a look it
    is grey."""
    x, y = at
    for wide, tall in ((_reach(x, across), None), (None, _reach(y, up))):
        if wide or tall:
            bar: dict[str, Any] = {"ecolor": colour_of(look), "elinewidth": 1.0, "alpha": 0.6}
            axes.errorbar([x], [y], xerr=wide, yerr=tall, fmt="none", **bar)
    if look is None:
        dots(axes, [at], MUTED, 7.0, markerfacecolor=PAPER, zorder=5)
        return
    if len(seeds) > 1:
        hollow(axes, seeds, look, zorder=4)
    dots(axes, [at], look.colour, 8.0, zorder=5, marker=look.marker, markeredgecolor=PAPER)


def _reach(mean: float, ends: Ends | None) -> list[list[float]] | None:
    """How far an interval goes, down and up."""
    return None if ends is None else [[max(0.0, mean - ends[0])], [max(0.0, ends[1] - mean)]]


def shortened(names: Sequence[str]) -> list[str]:
    """Long names without their middles, since names that begin alike tend to differ at the end; without their
    beginnings where that would make two of them the same."""
    half = _LETTERS // 2
    found = [name if len(name) <= _LETTERS else f"{name[:half]}…{name[1 - half :]}" for name in names]
    return [f"…{name[1 - _LETTERS :]}" if found.count(one) > 1 else one for name, one in zip(names, found, strict=True)]


def named(axes: Axes, x: float, y: float, name: str, look: Style | None) -> None:
    """The name of a mark, beside it."""
    axes.text(x, y, name, color=colour_of(look), va="center", fontsize=9)


def lengthen(axes: Axes, rounds: bool = False) -> None:
    """Have no axis so short that its ticks would be finer than tables are; that of rounds stays as it is."""
    axes.set_ylim(*_long_enough(*axes.get_ylim()))
    if not rounds:
        axes.set_xlim(*_long_enough(*axes.get_xlim()))


def colour_of(look: Style | None) -> str:
    """Grey for what has no look of its own."""
    return MUTED if look is None else look.colour


def shares(axes: Axes, edges: Sequence[float], numbers: Sequence[int], colour: str, shade: float) -> None:
    """A histogram in per cent of all of them."""
    parts = [100 * number / max(1, sum(numbers)) for number in numbers]
    axes.stairs(parts, edges, fill=True, color=colour, alpha=shade, linewidth=0)
    axes.stairs(parts, edges, color=colour, linewidth=1.5)


def means(axes: Axes, points: Mapping[float, Sequence[float]], look: Style) -> None:
    """A line through the mean at each place, and small hollow marks for single values where there are several."""
    places = sorted(points)
    averages = [fmean(points[place]) for place in places]
    axes.plot(places, averages, color=look.colour, marker=look.marker, linewidth=1.7, markersize=5.5, zorder=4)
    hollow(axes, [(at, one) for at in places if len(points[at]) > 1 for one in points[at]], look, zorder=5)


def svg(
    draw: Callable[[Axes], None],
    unit: str,
    salt: str,
    rounds: bool = True,
    marks: Mapping[float, str] | None = None,
    described: str = "",
    names: int = 0,
) -> str:
    """One picture: axes with fixed margins (so that pictures align), the unit of y above them, drawn by ``draw``.

    Args:
        rounds: whether x counts rounds.
        marks: words at places of the x axis, where its own numbers would say nothing.
        described: what it shows, for those who cannot see it; the unit if empty.
        names: lines of type that must find room beside the plot, which is made higher for them.
    """
    from matplotlib import style as styles
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import MaxNLocator

    settings = {"svg.hashsalt": salt, "svg.fonttype": "none", "font.size": _TYPE, "text.parse_math": False}
    with styles.context(["default", settings]):  # whatever the user's own matplotlibrc says
        plot = max(_HEIGHT - _ABOVE - _BELOW, names * LINE)
        height = plot + _ABOVE + _BELOW
        canvas = Canvas(figsize=(_WIDTH / 72, height / 72), dpi=72)
        axes = canvas.add_axes((0.125, _BELOW / height, 0.855, plot / height))
        axes.patch.set_visible(False)
        axes.margins(0.05, 0.08)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(RULE)
        axes.tick_params(colors=MUTED, length=0, pad=5, labelcolor=MUTED)
        axes.grid(axis="y" if rounds else "both", color=RULE, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.xaxis.label.set_color(MUTED)
        draw(axes)
        lengthen(axes, rounds)
        if marks is None:
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=rounds, min_n_ticks=1 if rounds else 2))
        else:
            axes.set_xticks(list(marks), list(marks.values()))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        # Every tick in full: no part that they have in common is taken out and written over one of them.
        axes.ticklabel_format(axis="y" if marks else "both", useOffset=False, style="plain")
        axes.text(-0.146, 1 + _UNIT / plot, unit, transform=axes.transAxes, color=MUTED, ha="left", va="bottom")
        return _inline(_written(canvas), described or unit, height)


def _written(canvas: Canvas) -> str:
    """Matplotlib's file."""
    buffer = io.StringIO()
    canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return buffer.getvalue()


def _long_enough(low: float, high: float) -> tuple[float, float]:
    missing = max(0.0, _FINEST - (high - low))
    return low - missing / 2, high + missing / 2


def _inline(svg: str, title: str, height: float) -> str:
    """Matplotlib's file as a piece of the page: no prologue, metadata or doubled ids; the page's colours and type."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<g id=\"[^\"]*\"", "<g", svg)
    head = f'<svg viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
    svg = re.sub(r"<svg [^>]*>", lambda _: head, svg, count=1)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)  # up to matplotlib 3.10
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    for stand_in, variable in _STAND_INS.items():
        svg = svg.replace(stand_in, f"var({variable})")
    return re.sub(r"\s*\n\s*", "\n", svg).strip()
