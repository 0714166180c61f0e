"""What single sites gain, by the global model and by one of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from murmura.measure.gains import summary
from murmura.report.content import Block, Entry, Listing, Picture, Pictures, ReportSection, Table, folded
from murmura.report.drawing import MUTED, PAPER, RULE, dots, svg
from murmura.report.style import style
from murmura.report.table import Row, each_run, runs_of
from murmura.runs.record import RunRecord
from murmura.runs.schema import PersonalModel
from murmura.units import count, decimal, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MANY = 12
_COLUMNS = ("Site", "Records", "Before training", "Global model", "Own model", "Own − global")
_LOOKS = (style(0), style(1))


def personal(rows: Sequence[Row]) -> ReportSection | None:
    """None where no site has told of a model of its own."""
    runs = [run for run in runs_of(rows) if run.personal]
    if not runs:
        return None
    lead = (
        "Does every site gain, or does one pay? After the last round each site has trained the global model further on "
        "its own records, and keeps the result. Losses (nats, lower is better) are on records of the site’s own, set "
        "apart before the first round: few, so a single site’s figures are uncertain. The losses have left the "
        "sites, and no ε covers them."
    )
    return ReportSection("Single sites", lead, each_run(rows, runs, _blocks))


def _blocks(run: RunRecord) -> list[Block]:
    models = run.personal
    number = len(models) if len(models) > _MANY else 0
    own, public = (_table(models, prefix) for prefix in ("", "public_"))
    looks = [Entry(name, look=look) for name, look in zip(("global model", "own model"), _LOOKS, strict=True)]
    caption = "A line for each site: grey before training; the further left, the better the model is for it."
    picture = Picture(
        "Loss at each site",
        svg(partial(_draw, models=models), "", f"sites {run.name}", rounds=False, described=summary(models)[0]),
        caption,
    )
    return [
        Listing(summary(models)),
        Pictures([picture], looks),
        *folded([own], f"All {number} sites, one by one" * bool(number)),
        *folded([public], "The same on the public held-out records"),
    ]


def _table(models: Sequence[PersonalModel], prefix: str) -> Table:
    rows = []
    for one in models:
        before, shared, own = (getattr(one, f"{prefix}{name}") for name in ("before", "shared", "personal"))
        told = [decimal(before), decimal(shared), decimal(own), signed(own - shared)]
        rows.append([one.site, *([] if prefix else [count(one.records)]), *told])
    columns = [name for name in _COLUMNS if not (prefix and name == "Records")]
    return Table(columns, rows, css="sites")


def _draw(axes: Axes, models: Sequence[PersonalModel]) -> None:
    """From top to bottom in the order of the run; so many that names would overlap have none."""
    for place, one in enumerate(models):
        losses = (one.before, one.shared, one.personal)
        axes.plot([min(losses), max(losses)], [-place, -place], color=RULE, linewidth=1.4, zorder=1)
        dots(axes, [(one.before, -place)], MUTED, 4.5, zorder=2)
        for loss, look in zip(losses[1:], _LOOKS, strict=True):
            dots(axes, [(loss, -place)], look.colour, 6.5, marker=look.marker, markeredgecolor=PAPER, zorder=3)
        if len(models) <= _MANY:
            axes.annotate(
                one.site[:24], (max(losses), -place), (7, 0), textcoords="offset points", va="center", color=MUTED
            )
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.margins(0.18 if len(models) <= _MANY else 0.05, 0.08)
    axes.set_xlabel("loss on the site’s own held-out records (nats)")
