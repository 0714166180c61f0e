"""Figures round by round, and the calibration of classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from murmura.measure.catalogue import CATALOGUE
from murmura.measure.figure import Drawn, Figure, interval
from murmura.report.content import Block, Picture, Pictures, ReportSection, note
from murmura.report.drawing import FEW, MUTED, PAPER, svg
from murmura.report.table import Cell, Row, kinds, legend, moved, of_seeds
from murmura.tasks import TASKS
from murmura.units import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def rounds(rows: Sequence[Row]) -> ReportSection | None:
    """What the catalogue draws; a picture of figures that were not measured, or that never moved, is left out."""
    pictures: list[Picture] = []
    still: list[str] = []
    for drawn, lines in _measured(rows):
        title = drawn.title or lines[0].title
        if any(moved(rows, one.key) for one in lines):
            pictures.append(Picture(title, _curves(rows, drawn, lines), _caption(rows, drawn, lines)))
        else:
            still.append(title)
    if any(row.runs[0].last.calibration for row in rows):
        pictures.append(Picture("Calibration", _calibration(rows), _calibration_caption(rows)))
    if not pictures and not still:
        return None
    spread = of_seeds(rows, "Lines are means over the seeds, bands one standard deviation each way. ")
    lead = f"{spread}All figures of all rounds stand in tables under “Numbers of every round”."
    blocks: list[Block] = [Pictures(pictures, legend(rows))]
    if still:
        blocks.append(note(f"No picture, since nothing moved: {', '.join(still)}."))
    return ReportSection("Round by round", lead, blocks)


def _measured(rows: Sequence[Row]) -> list[tuple[Drawn, list[Figure]]]:
    """The pictures of the catalogue with their figures: the one whose picture it is, filled and solid, which must have
    been measured, and one beside it at most, hollow and dashed."""
    return [
        (one.drawn, [one, *(other for other in CATALOGUE if other.drawn and other.drawn.beside == one.key)])
        for one in CATALOGUE
        if one.drawn and not one.drawn.beside and any(row.series(one.key) for row in rows)
    ]


def _caption(rows: Sequence[Row], drawn: Drawn, lines: Sequence[Figure]) -> str:
    """What is what in a picture of two lines, and which way is better."""
    shown = [one for one in lines if any(row.series(one.key) for row in rows)]
    parts = []
    if len(shown) > 1:
        told = [one.drawn.shows for one in shown if one.drawn]
        parts.append(f"Filled, solid: {told[0]}. Hollow, dashed: {told[1]}.")
    sizes = {row.series(lines[0].key)[-1].cell.texts for row in rows if row.series(lines[0].key)} - {None}
    if sizes:
        parts.append(f"n = {', '.join(count(size or 0) for size in sorted(sizes, key=lambda size: size or 0))}.")
    if any(point.cell.ends and point.cell.sd is None for row in rows for point in row.series(lines[0].key)):
        parts.append("Bands are 95 % intervals.")
    level = _guess(rows, lines[0])
    if level is not None:
        parts.append(f"The line across is what guessing comes to: {lines[0].unit.write(level)}.")
    return " ".join(part for part in [*parts, drawn.note, lines[0].direction] if part)


def _guess(rows: Sequence[Row], one: Figure) -> float | None:
    """What a figure comes to without skill, where that is the same for all rows."""
    levels = {row.cells[one.key].guess for row in rows if one.key in row.cells}
    return levels.pop() if len(levels) == 1 else None


def _curves(rows: Sequence[Row], drawn: Drawn, lines: Sequence[Figure]) -> str:
    """Lines over rounds: the first figure filled and solid, a second one hollow and dashed; a band is one sd each way
    over several seeds, and else the 95 % interval of a figure that has one."""

    def draw(axes: Axes) -> None:
        for row in rows:
            for one, hollow in zip(lines, (False, True), strict=False):
                _line(axes, row, one.key, hollow)
        for level in (drawn.level, _guess(rows, lines[0])):
            if level is None:
                continue
            axes.axhline(level, color=MUTED, linewidth=0.9, zorder=1)
        axes.set_xlabel("round (0 is before training)")

    axis = drawn.axis.format(per=" or ".join(dict.fromkeys(TASKS[kind].per for kind in kinds(rows))))
    return svg(draw, axis, f"{axis}{lines[0].key}")


def _calibration(rows: Sequence[Row]) -> str:
    """Accuracy against confidence, bin by bin with 95 % intervals, of each row's first run."""

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, zorder=1)
        for row in rows:
            colour, bins = row.look.colour, row.runs[0].last.calibration
            said, right = [one[0] for one in bins], [one[1] for one in bins]
            axes.plot(said, right, color=colour, marker=row.look.marker, linewidth=1.6, zorder=3)
            for confidence, accuracy, n in bins:
                axes.plot([confidence] * 2, interval(accuracy, n), color=colour, linewidth=0.9, alpha=0.6, zorder=2)
        axes.set_xlabel("confidence")

    return svg(draw, "accuracy", "calibration", rounds=False)


def _calibration_caption(rows: Sequence[Row]) -> str:
    sizes = [[count(n) for _, _, n in row.runs[0].last.calibration] for row in rows]
    told = [
        f"{row.label}, n = {', '.join(own)}" if len(rows) > 1 else f"n = {', '.join(own)}"
        for row, own in zip(rows, sizes, strict=True)
        if own
    ]
    return (
        "After the last round: how often the model is right, by how confident it is. On the line it is as confident "
        "as it should be; below it, overconfident. Thin bars are 95 % intervals; texts at each mark, from left to "
        f"right: {'; '.join(told)}."
    )


def _line(axes: Axes, row: Row, key: str, hollow: bool) -> None:
    points, colour = row.series(key), row.look.colour
    if not points:
        return
    rounds, means = [point.round for point in points], [point.cell.mean or 0.0 for point in points]
    low, high = zip(*(_band(point.cell) for point in points), strict=True)
    if low != high:
        axes.fill_between(rounds, low, high, color=colour, alpha=0.08 if hollow else 0.14, linewidth=0, zorder=2)
    dashed: dict[str, Any] = {"linewidth": 1.3, "linestyle": (0, (4, 3)), "markerfacecolor": PAPER, "zorder": 3}
    look: dict[str, Any] = dashed if hollow else {"linewidth": 1.9, "zorder": 4}
    marks: dict[str, Any] = {"marker": row.look.marker, "markersize": 5.0, "markeredgewidth": 1.1}
    axes.plot(rounds, means, color=colour, markevery=max(1, len(rounds) // FEW), **look, **marks)


def _band(cell: Cell) -> tuple[float, float]:
    """What is drawn around a mark."""
    mean = cell.mean or 0.0
    if cell.sd is None and cell.ends:
        return cell.ends
    return mean - (cell.sd or 0.0), mean + (cell.sd or 0.0)
