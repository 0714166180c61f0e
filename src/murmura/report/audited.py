"""What an audit has found, in words, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murmura.measure.catalogue import READS
from murmura.measure.figure import FEW
from murmura.report.drawing import MUTED, Picture, series, svg
from murmura.report.sheet import Sheet
from murmura.runs.audit import (
    CENTRES,
    PROMPTS,
    TARGETS,
    Audit,
    AuditedModel,
    Centred,
    CentreShare,
    Extraction,
    Separation,
    Written,
)
from murmura.runs.record import RunRecord
from murmura.units import DASH, count, decimal, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

MEANING = (
    "AUC is the chance that a record that the model was trained on looks more like it, to an attack, than one that it "
    "never saw: 0.5 is guessing. “Found at 1 %” is the share of such records that are found where 1 % of the others "
    "are taken for them. Intervals are 95 %, for this run’s models: they say nothing of another seed, nor "
    "of how much uploads differ. Which attack is called the strongest was decided on other records, a quarter of all, "
    "so that the choice flatters nobody; on the rest another one may come out ahead by chance. "
    "Attacks that find nothing are no proof: others may find more."
)
_HEADINGS = ("Attack", "AUC", "95 %", "Found at 1 %", "95 %")
_STRONGEST = "strongest"


@dataclass(frozen=True, slots=True)
class Audited:
    """One run's audit.

    Attributes:
        run: Its name.
        sheets: All figures.
        pictures: How scores lie.
        sentences: What else there is to say.
    """

    run: str
    sheets: list[Sheet]
    pictures: list[Picture]
    sentences: list[str]


def audits(records: Sequence[RunRecord]) -> list[Audited]:
    """Of those runs that were audited."""
    return [
        Audited(run.name, _sheets(run.audit), [_scores(one) for one in run.audit.models], _sentences(run))
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
    for sheet in _sheets(run.audit) if run.audit else []:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False)
        for place, heading in enumerate((*sheet.headings, "")):
            table.add_column(heading, justify="right" if 0 < place < len(sheet.headings) else "left")
        for cells, remark in sheet.lines:
            table.add_row(*cells, remark, style="bold" if remark.startswith(_STRONGEST) else None)
        console.print(sheet.title)
        console.print(table)
    for sentence in _sentences(run):
        console.print(sentence)


def _sheets(audit: Audit) -> list[Sheet]:
    attacked = [_attacked(one) for one in audit.models]
    extracted = [_extracted(one) for one in audit.extraction]
    centred = [_centred(one) for one in audit.centres]
    return [*attacked, *extracted, *([_written(audit.written)] if audit.written else []), *centred]


def _attacked(found: AuditedModel) -> Sheet:
    few = ", too few to say much" if min(found.members or FEW, found.others) < FEW else ""
    numbers = f"{_members(found.members)} against {count(found.others)} others{few}"
    lines = [(_cells(one), _remark(one, found)) for one in found.attacks]
    return Sheet(f"{_capital(TARGETS[found.target])}: {numbers}", _HEADINGS, lines)


def _cells(one: Separation) -> tuple[str, ...]:
    found = DASH if one.tpr is None else decimal(one.tpr)
    return one.attack, decimal(one.auc), _ends(one.low, one.high), found, _ends(one.tpr_low, one.tpr_high)


def _remark(one: Separation, found: AuditedModel) -> str:
    """Of the strongest, why it is called so: another one may have the higher AUC where it counts, by luck."""
    if one.control:
        return "for comparison, never called the strongest"
    if one.attack != found.strongest:
        return ""
    if one.apart is None:
        return f"{_STRONGEST}: the first, with no records to spare for a choice"
    others = [other.apart for other in found.attacks if not (other is one or other.control or other.apart is None)]
    next_best = f", the next one {decimal(max(others))}" if others else ""
    return f"{_STRONGEST}: {decimal(one.apart)} on the quarter set apart{next_best}"


def _extracted(found: Extraction) -> Sheet:
    """Tries, and which share of records they give; of numbers of tries that give the same, the largest alone."""
    among = f"top-k {found.top_k}" if found.top_k else "all tokens"
    title = (
        f"{_capital(TARGETS[found.target])}: records that an attacker gets word for word with a probability of "
        f"{found.p:g} or more (temperature {found.temperature:g}, {among}); of "
        f"{_members(found.members)} and {count(found.others)} others"
    )
    columns = list(zip(found.tries, found.found, found.low, found.high, found.others_found, strict=True))
    lines = [
        ((count(tries), decimal(share), _ends(low, high), decimal(others)), "")
        for (tries, share, low, high, others), after in zip(columns, [*columns[1:], None], strict=True)
        if after is None or (share, others) != (after[1], after[4])
    ]
    return Sheet(title, ("Tries", "The sites’", "95 %", "Others"), lines)


def _written(found: Sequence[Written]) -> Sheet:
    """ROUGE-L of what models write."""
    title = "What models write: ROUGE-L with the sites’ records (of a text: with the nearest one) and with others"
    lines = []
    for one in found:
        given = f"{TARGETS[one.target]}, {PROMPTS[one.prompt]}"
        figures = (decimal(one.rouge), decimal(one.others_rouge), signed(one.difference))
        known = [count(number) for number in (one.members, one.others) if number is not None]
        number = f"{known[0]} texts" if one.prompt != "record" else f"n = {' and '.join(known)}"
        number += " others" if one.members is None else ""
        lines.append(((given, *figures, f"{signed(one.low)} to {signed(one.high)}"), number))
    return Sheet(title, ("Given", "The sites’", "Others’", "Difference", "95 %"), lines)


def _centred(found: Centred) -> Sheet:
    """How often what is nearest to a centre is a record of the site itself, by size of the cluster."""
    among = f"{count(found.pool)} of the pool and {_members(found.records)}"
    title = (
        f"{_capital(CENTRES[found.kind])}: how often the record that is nearest to one, among {among}, is the site’s "
        f"own (at random: {decimal(found.chance)})"
    )
    lines = [
        ((_records_in(one), decimal(one.own), _ends(one.low, one.high), decimal(one.others)), _how_many(one))
        for one in found.groups
    ]
    return Sheet(title, ("Records in its cluster", "The site’s own", "95 %", "Another site’s"), lines)


def _records_in(one: CentreShare) -> str:
    if one.most is None:
        return f"{one.least} or more" if one.least else "all"
    return str(one.least) if one.least == one.most else f"{one.least} to {one.most}"


def _how_many(one: CentreShare) -> str:
    if one.centres is None:
        return ""
    few = ", too few to say much" if one.centres < FEW else ""
    return f"{count(one.centres)} centre{'s' * (one.centres != 1)}{few}"


def _members(number: int | None) -> str:
    """How many, where that is told."""
    return "some of the sites’ records" if number is None else f"{count(number)} of the sites’ records"


def _ends(low: float | None, high: float | None) -> str:
    return DASH if low is None or high is None else f"{decimal(low)} to {decimal(high)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentences(run: RunRecord) -> list[str]:
    found = run.audit
    if found is None:
        return []
    names = dict.fromkeys(one.attack for model in found.models for one in model.attacks)
    reads = "; ".join(f"“{name}”, {READS[name]}" for name in names if name in READS)
    return [*([f"What attacks go by: {reads}."] if reads else []), *found.missing, *filter(None, [found.caveat])]


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
