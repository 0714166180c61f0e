"""The pictures of runs, side by side: curves over rounds, leakage against utility, guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite, log10
from typing import TYPE_CHECKING

from murmura.measure.catalogue import CATALOGUE, figure
from murmura.measure.figure import Drawn, Figure, interval
from murmura.privacy.curve import DELTAS
from murmura.report.drawing import INK, MUTED, PAPER, Picture, series, svg
from murmura.report.promise import Promise
from murmura.report.style import style
from murmura.report.table import Cell, Row, kinds
from murmura.runs.record import RunRecord
from murmura.tasks import TASKS
from murmura.units import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Stop = tuple[float, float, float, float]

_FEW = 12  # up to so many rounds every one has its mark


def trade_offs(rows: Sequence[Row]) -> list[Picture]:
    """Leakage against utility, after every round, of the global model."""
    drawn = [
        (
            "Leakage against held-out ROUGE-L",
            _scatter(rows, "heldout_rouge", "held-out ROUGE-L (0 to 1)", better_right=True),
            "Best is the lower right corner: answers well, gives little away.",
        ),
        (
            "Leakage against held-out loss",
            _scatter(rows, "heldout_loss", "held-out loss (nats per token)", better_right=False),
            "Best is the lower left corner: answers well, gives little away.",
        ),
    ]
    return [Picture(title, svg, caption) for title, svg, caption in drawn if svg]


def guaranteed(promises: Sequence[Promise]) -> list[Picture]:
    """ε at every δ, of each guarantee; nothing where none has a bound."""
    lines = [(one, [(bound, log10(delta)) for delta, bound in one.curve.table if isfinite(bound)]) for one in promises]
    if not any(points for _, points in lines):
        return []

    def draw(axes: Axes) -> None:
        for one, points in ((one, points) for one, points in lines if points):
            look = style(one.position)
            epsilons, powers = zip(*points, strict=True)
            [line] = axes.plot(epsilons, powers, color=series(look.colour), marker=look.marker, linewidth=1.6, zorder=3)
            line.set_clip_on(False)  # a mark on the axis is drawn whole
            axes.axhline(log10(one.delta), color=MUTED, linewidth=0.9, zorder=1)
        axes.set_xlabel("ε")
        # Fixed ranges: what an axis is fitted to would tell of it to all digits.
        axes.set_xlim(0, _round_above(max(bound for _, points in lines for bound, _ in points)))
        axes.set_ylim(log10(min(DELTAS)) - 0.5, log10(max(DELTAS)) + 0.5)

    caption = (
        "A guarantee is a whole curve: for every δ another ε. The grey line is the δ of the ε in the table. For one "
        "run of each method."
    )
    return [Picture("ε at every δ", svg(draw, "log₁₀ δ", "guaranteed", rounds=False), caption)]


def held_against(rows: Sequence[Row]) -> list[Picture]:
    """What is claimed, what is guaranteed and what an audit has shown, on one axis; nothing unless there is an ε, and
    something to hold it against."""
    told = [(position, row.label, _bounds(row.runs[0])) for position, row in enumerate(rows)]
    told = [(position, label, known) for position, label, known in told if "guaranteed" in known and len(known) > 1]
    if not told:
        return []
    marks = {"claimed": ("D", "claimed, for a step"), "guaranteed": ("o", "guaranteed"), "shown": (">", "shown")}

    def draw(axes: Axes) -> None:
        for place, (position, label, known) in enumerate(told):
            colour, height = series(style(position).colour), -place
            if "shown" in known:
                axes.plot([known["shown"], known["guaranteed"]], [height] * 2, color=colour, linewidth=5, alpha=0.25)
            for name, value in known.items():
                face = PAPER if name == "claimed" else colour
                marker, word = marks[name]
                axes.plot(value, height, color=colour, marker=marker, markersize=8, markerfacecolor=face, zorder=4)
                level = {"claimed": -0.3, "guaranteed": 0.16, "shown": 0.16}[name]
                # Away from one another, so that words stand apart where figures do not.
                first = value == min(known["guaranteed"], known.get("shown", value))
                side = "center" if name == "claimed" or "shown" not in known else "right" if first else "left"
                axes.text(value, height + level, word, ha=side, va="bottom", color=MUTED, fontsize=9)
            if len(rows) > 1:
                axes.text(0, height + 0.38, label, ha="left", va="bottom", color=INK)
        axes.set_ylim(0.6 - len(told), 0.7)
        axes.set_xlim(0, 1.25 * max(value for *_, known in told for value in known.values()))
        axes.yaxis.set_visible(False)
        axes.set_xlabel("ε")

    title = "ε claimed, guaranteed and shown"
    caption = (
        "The true ε lies between what an audit with canaries has shown (with 95 % confidence) and what is guaranteed; "
        "if what is shown is the larger, do not rely on the guarantee. Claimed is what the paper says of one step. For "
        "one run of each method."
    )
    return [Picture(title, svg(draw, "", title, rounds=False), caption)]


def _bounds(run: RunRecord) -> dict[str, float]:
    """Of one run every finite ε that there is."""
    told = run.last.privacy
    every = {
        "claimed": told.get("claimed_per_step"), "guaranteed": told.get("epsilon"),
        "shown": run.last.values.get("audit_epsilon"),
    }  # fmt: skip
    return {name: float(value) for name, value in every.items() if value is not None and isfinite(value)}


def _round_above(value: float) -> float:
    """The next larger of 1, 2, 5, 10, 20, 50 …"""
    power = 10.0 ** floor(log10(max(value, 1e-3)))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def curves(rows: Sequence[Row]) -> list[Picture]:
    """What the catalogue draws, round by round; a picture of figures that were not measured, or that never moved, is
    left out. Then the calibration of classifiers."""
    pictures = [
        Picture(drawn.title or lines[0].title, _curves(rows, drawn, lines), _caption(rows, drawn, lines))
        for drawn, lines in _measured(rows)
        if any(_moved(rows, one.key) for one in lines)
    ]
    if any(row.runs[0].last.calibration for row in rows):
        pictures.append(Picture("Calibration", _calibration(rows), _calibration_caption(rows)))
    return pictures


def still(rows: Sequence[Row]) -> list[str]:
    """Names of the pictures that ``curves`` leaves out since nothing in them ever moved."""
    return [
        drawn.title or lines[0].title
        for drawn, lines in _measured(rows)
        if not any(_moved(rows, one.key) for one in lines)
    ]


def _measured(rows: Sequence[Row]) -> list[tuple[Drawn, list[Figure]]]:
    """The pictures of the catalogue with their figures: the one whose picture it is, filled and solid, which must have
    been measured, and one beside it at most, hollow and dashed."""
    return [
        (one.drawn, [one, *(other for other in CATALOGUE if other.drawn and other.drawn.beside == one.key)])
        for one in CATALOGUE
        if one.drawn and not one.drawn.beside and any(row.series(one.key) for row in rows)
    ]


def _moved(rows: Sequence[Row], key: str) -> bool:
    """Whether a figure was measured, and differs between rounds as it is written. One round alone is worth a picture,
    which says how it lies to others'."""
    write = figure(key).unit.write
    series = [[write(point.cell.mean or 0.0) for point in row.series(key)] for row in rows]
    return any(len(values) == 1 or len(set(values)) > 1 for values in series)


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
        for position, row in enumerate(rows):
            for one, hollow in zip(lines, (False, True), strict=False):
                _line(axes, row, one.key, position, hollow)
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
        for position, row in enumerate(rows):
            look, bins = style(position), row.runs[0].last.calibration
            colour = series(look.colour)
            said, right = [one[0] for one in bins], [one[1] for one in bins]
            axes.plot(said, right, color=colour, marker=look.marker, linewidth=1.6, zorder=3)
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


def _line(axes: Axes, row: Row, key: str, position: int, hollow: bool) -> None:
    points = row.series(key)
    if not points:
        return
    look = style(position)
    colour = series(look.colour)
    rounds = [point.round for point in points]
    means = [point.cell.mean or 0.0 for point in points]
    low, high = zip(*(_band(point.cell) for point in points), strict=True)
    if low != high:
        axes.fill_between(rounds, low, high, color=colour, alpha=0.08 if hollow else 0.14, linewidth=0, zorder=2)
    axes.plot(
        rounds,
        means,
        color=colour,
        linewidth=1.3 if hollow else 1.9,
        linestyle=(0, (4, 3)) if hollow else "solid",
        marker=look.marker,
        markersize=5.0,
        markerfacecolor=PAPER if hollow else colour,
        markeredgewidth=1.1,
        markevery=max(1, len(rounds) // _FEW),
        zorder=3 if hollow else 4,
    )


def _band(cell: Cell) -> tuple[float, float]:
    """What is drawn around a mark."""
    mean = cell.mean or 0.0
    if cell.sd is None and cell.ends:
        return cell.ends
    return mean - (cell.sd or 0.0), mean + (cell.sd or 0.0)


def _scatter(rows: Sequence[Row], key: str, unit: str, better_right: bool) -> str:
    """Each row's way through the rounds (thin), its end (large, with one sd each way) and its seeds (small)."""
    paths = [_path(row, key) for row in rows]
    if not any(paths) or not (_moved(rows, key) or _moved(rows, "attack_auc")):
        return ""
    faint = sum(map(len, paths)) > 5 * _FEW

    def draw(axes: Axes) -> None:
        axes.axhline(0.5, color=MUTED, linewidth=0.9, zorder=1)
        for position, (row, path) in enumerate(zip(rows, paths, strict=True)):
            if path:
                _trail(axes, row, key, path, position, faint)
        axes.set_xlabel(unit)
        axes.text(
            0.985 if better_right else 0.015,
            0.02,
            "better ↘" if better_right else "↙ better",
            transform=axes.transAxes,
            ha="right" if better_right else "left",
            va="bottom",
            color=MUTED,
        )

    return svg(draw, "leakage (AUC of the strongest attack)", f"scatter {key}", rounds=False)


def _path(row: Row, key: str) -> list[_Stop]:
    """(utility, leakage, sd of utility, sd of leakage) for the rounds in which both were measured."""
    leakage = {point.round: point.cell for point in row.series("attack_auc")}
    path = []
    for point in row.series(key):
        other = leakage.get(point.round)
        if other is not None and point.cell.mean is not None and other.mean is not None:
            path.append((point.cell.mean, other.mean, point.cell.sd or 0.0, other.sd or 0.0))
    return path


def _trail(axes: Axes, row: Row, key: str, path: list[_Stop], position: int, faint: bool) -> None:
    look = style(position)
    colour = series(look.colour)
    x, y, x_sd, y_sd = path[-1]
    if len(path) > 1:
        axes.plot(
            [point[0] for point in path],
            [point[1] for point in path],
            color=colour,
            linewidth=1.0,
            marker="." if len(path) <= _FEW else "",
            markersize=3.5,
            alpha=0.3 if faint else 0.7,
        )
    if len(row.runs) > 1:
        axes.errorbar([x], [y], xerr=[x_sd], yerr=[y_sd], fmt="none", ecolor=colour, elinewidth=1.2, zorder=3)
        ends = [(run.last.values.get(key), run.last.values.get("attack_auc")) for run in row.runs]
        seen = [(u, v) for u, v in ends if u is not None and v is not None and isfinite(u) and isfinite(v)]
        axes.plot(
            [u for u, _ in seen],
            [v for _, v in seen],
            linestyle="none",
            marker=look.marker,
            markersize=3.6,
            markerfacecolor=PAPER,
            color=colour,
            markeredgewidth=0.9,
            zorder=4,
        )
    axes.plot(
        [x], [y], linestyle="none", marker=look.marker, markersize=8.5, color=colour, markeredgecolor=PAPER, zorder=5
    )
