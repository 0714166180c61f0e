"""Leakage against utility, after every round, of the global model."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from murmura.report.content import Picture, Pictures, Section
from murmura.report.drawing import FEW, MUTED, PAPER, dots, hollow, svg
from murmura.report.table import Row, legend, moved, of_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Stop = tuple[float, float, float, float]


def trade_off(rows: Sequence[Row]) -> Section | None:
    """None where leakage or utility was not measured, or nothing moved."""
    seeds = " (mean of the seeds, with one standard deviation each way; small hollow marks are single seeds)"
    lead = (
        "Low leakage alone says little: a model that has learnt nothing gives nothing away. Compare methods at equal "
        f"usefulness. Large marks are the state after the last round{of_seeds(rows, seeds)}; thin lines are the way "
        "there."
    )
    drawn = (
        _scatter(rows, "heldout_rouge", "held-out ROUGE-L", "0 to 1", "right"),
        _scatter(rows, "heldout_loss", "held-out loss", "nats per token", "left"),
    )
    pictures = [one for one in drawn if one]
    return Section("Leakage against utility", lead, [Pictures(pictures, legend(rows))]) if pictures else None


def _scatter(rows: Sequence[Row], key: str, what: str, unit: str, better: str) -> Picture | None:
    """Each row's way through the rounds (thin), its end (large, with one sd each way) and its seeds (small)."""
    paths = [_path(row, key) for row in rows]
    if not any(paths) or not (moved(rows, key) or moved(rows, "attack_auc")):
        return None
    faint = sum(map(len, paths)) > 5 * FEW
    place, arrow = (0.985, "better ↘") if better == "right" else (0.015, "↙ better")

    def draw(axes: Axes) -> None:
        axes.axhline(0.5, color=MUTED, linewidth=0.9, zorder=1)
        for row, path in zip(rows, paths, strict=True):
            if path:
                _trail(axes, row, key, path, faint)
        axes.set_xlabel(f"{what} ({unit})")
        axes.text(place, 0.02, arrow, transform=axes.transAxes, ha=better, va="bottom", color=MUTED)

    drawn = svg(draw, "leakage (AUC of the strongest attack)", f"scatter {key}", rounds=False)
    caption = f"Best is the lower {better} corner: answers well, gives little away."
    return Picture(f"Leakage against {what}", drawn, caption)


def _path(row: Row, key: str) -> list[_Stop]:
    """(utility, leakage, sd of utility, sd of leakage) for the rounds in which both were measured."""
    leakage = {point.round: point.cell for point in row.series("attack_auc")}
    path = []
    for point in row.series(key):
        other = leakage.get(point.round)
        if other is not None and point.cell.mean is not None and other.mean is not None:
            path.append((point.cell.mean, other.mean, point.cell.sd or 0.0, other.sd or 0.0))
    return path


def _trail(axes: Axes, row: Row, key: str, path: list[_Stop], faint: bool) -> None:
    colour, marker = row.look.colour, row.look.marker
    x, y, x_sd, y_sd = path[-1]
    if len(path) > 1:
        us, vs, *_ = zip(*path, strict=True)
        way: dict[str, Any] = {
            "marker": "." if len(path) <= FEW else "",
            "markersize": 3.5,
            "alpha": 0.3 if faint else 0.7,
        }
        axes.plot(us, vs, color=colour, linewidth=1.0, **way)
    if len(row.runs) > 1:
        axes.errorbar([x], [y], xerr=[x_sd], yerr=[y_sd], fmt="none", ecolor=colour, elinewidth=1.2, zorder=3)
        ends = [(run.last.values.get(key), run.last.values.get("attack_auc")) for run in row.runs]
        seen = [(u, v) for u, v in ends if u is not None and v is not None and isfinite(u) and isfinite(v)]
        hollow(axes, seen, row.look, 3.6, zorder=4)
    dots(axes, [(x, y)], colour, 8.5, marker=marker, markeredgecolor=PAPER, zorder=5)
