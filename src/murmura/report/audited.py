"""What an audit has found, in words, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murmura.measure.figure import FEW
from murmura.report.drawing import MUTED, Picture, series, svg
from murmura.runs.record import RunRecord
from murmura.runs.schema import TARGETS, AuditedModel, Separation
from murmura.units import DASH, count, decimal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

HEADINGS = ("Attack", "AUC", "95 %", "Found at 1 %", "95 %")
MEANING = (
    "AUC is the chance that a record that the model was trained on looks more like it, to an attack, than one that it "
    "never saw: 0.5 is guessing. “Found at 1 %” is the share of such records that are found where 1 % of the others "
    "are taken for them. Intervals are 95 % (bootstrap). The strongest attack was chosen on other records, a quarter "
    "of all. Attacks that find nothing are no proof: others may find more."
)
OUTSIDE = "The run’s ε covers none of this: an audit looks at private records, and its figures come without noise."


@dataclass(frozen=True, slots=True)
class Attacked:
    """One model under attack.

    Attributes:
        title: Which model, and how many records.
        lines: A line an attack: the cells under ``HEADINGS``, and a remark.
        picture: How the scores of the strongest attack lie.
    """

    title: str
    lines: list[tuple[tuple[str, ...], str]]
    picture: Picture


@dataclass(frozen=True, slots=True)
class Audited:
    """One run's audit."""

    run: str
    models: list[Attacked]
    sentences: list[str]


def audits(records: Sequence[RunRecord]) -> list[Audited]:
    """Of those runs that were audited."""
    return [
        Audited(run.name, [_attacked(one) for one in run.audit.models], _sentences(run))
        for run in records
        if run.audit is not None
    ]


def show_audit(run: RunRecord, console: Console | None = None) -> None:
    """Print what the audit of a run has found."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = max(120, console.width)
    for audit in audits([run]):
        for model in audit.models:
            table = Table(box=box.SIMPLE_HEAD, show_edge=False, title=model.title, title_justify="left", title_style="")
            for place, heading in enumerate((*HEADINGS, "")):
                table.add_column(heading, justify="right" if 0 < place < len(HEADINGS) else "left")
            for cells, remark in model.lines:
                table.add_row(*cells, remark, style="bold" if remark == _STRONGEST else None)
            console.print(table)
        for sentence in audit.sentences:
            console.print(sentence)


_STRONGEST = "strongest"


def _attacked(found: AuditedModel) -> Attacked:
    few = ", too few to say much" if min(found.members, found.others) < FEW else ""
    numbers = f"{count(found.members)} of the sites’ records against {count(found.others)} others{few}"
    lines = [(_cells(one), _remark(one, found)) for one in found.attacks]
    return Attacked(f"{TARGETS[found.target].capitalize()}: {numbers}", lines, _scores(found))


def _cells(one: Separation) -> tuple[str, ...]:
    def ends(low: float | None, high: float | None) -> str:
        return DASH if low is None or high is None else f"{decimal(low)} to {decimal(high)}"

    found = DASH if one.tpr is None else decimal(one.tpr)
    return one.attack, decimal(one.auc), ends(one.low, one.high), found, ends(one.tpr_low, one.tpr_high)


def _remark(one: Separation, found: AuditedModel) -> str:
    if one.attack == found.strongest:
        return _STRONGEST
    return "for comparison, needs no base model" if one.control else ""


def _sentences(run: RunRecord) -> list[str]:
    assert run.audit is not None
    return [*run.audit.missing, *([OUTSIDE] if run.last.privacy.get("epsilon") is not None else [])]


def _scores(found: AuditedModel) -> Picture:
    """How members' scores by the strongest attack lie to others'."""
    histogram = found.histogram

    def draw(axes: Axes) -> None:
        lots = ((histogram.others, MUTED, 0.35), (histogram.members, series(1), 0.45))
        for numbers, colour, shade in lots:
            shares = [100 * number / max(1, sum(numbers)) for number in numbers]
            axes.stairs(shares, histogram.edges, fill=True, color=colour, alpha=shade, linewidth=0)
            axes.stairs(shares, histogram.edges, color=colour, linewidth=1.5)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"score by {found.strongest}")

    caption = (
        "Coloured: records that the model was trained on. Grey: others. The further the two lie apart, the more the "
        "model gives away; scores beyond the ends are in the first and the last bin."
    )
    title = f"Scores by {found.strongest}, {TARGETS[found.target]}"
    return Picture(title, svg(draw, "% of the records", title, rounds=False), caption)
