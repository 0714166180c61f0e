"""What an audit has found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from murmura.measure.catalogue import READS
from murmura.report.content import Block, Entry, Picture, Pictures, ReportSection, Table, capital, entry, note
from murmura.report.drawing import MUTED, shares, svg
from murmura.report.standing import ITS_KIND, KNOWN_BEFORE
from murmura.report.style import style
from murmura.report.table import Row, each_run, runs_of
from murmura.runs.audit import (
    CENTRES,
    PROMPTS,
    QUANTILES,
    SYNTHETIC,
    TARGETS,
    AuditedModel,
    Centred,
    CentreShare,
    Extraction,
    Separation,
    Synthetic,
    Written,
)
from murmura.runs.record import RunRecord
from murmura.runs.schema import FEW
from murmura.units import DASH, count, decimal, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAD = (
    "AUC is the chance that a record that the model was trained on looks more like it, to an attack, than one that it "
    "never saw: 0.5 is guessing. “Found at 1 %” is the share of such records that are found where 1 % of the others "
    "are taken for them. Intervals are 95 %, for this run’s models: they say nothing of another seed, nor "
    "of how much uploads differ. That of “found at 1 %” allows for the score beyond which 1 % of all others lie being "
    "known but roughly: with fewer than 368 it may be above them all, and the interval begins at 0. "
    "Which attack is called the strongest was decided on other records, a quarter of all, "
    "so that the choice flatters nobody; on the rest another one may come out ahead by chance. "
    "Attacks that find nothing are no proof: others may find more."
)
_COLUMNS = ("Attack", "AUC", "95 %", "Found at 1 %", "95 %")
_STRONGEST = "strongest"


def audit(rows: Sequence[Row]) -> ReportSection | None:
    """Of those runs that were audited."""
    audited = [run for run in runs_of(rows) if run.audit]
    return ReportSection("Audit", _LEAD, each_run(rows, audited, figures_of)) if audited else None


def figures_of(run: RunRecord) -> list[Block]:
    """All figures of a run's audit, how scores lie, and what else there is to say; empty where there was none."""
    found = run.audit
    if found is None:
        return []
    tables = [*map(_attacked, found.models), *map(_extracted, found.extraction)]
    tables += [_written(found.written)] if found.written else []
    names = dict.fromkeys(one.attack for model in found.models for one in model.attacks)
    reads = "; ".join(f"“{name}”, {READS[name]}" for name in names if name in READS)
    sentences = [f"What attacks go by: {reads}."] if reads else []
    sentences += [f"Attacks may find more than the models give away, or less: {KNOWN_BEFORE}."] * found.unlike
    sentences += [
        f"{capital(TARGETS[one.target])}: {ITS_KIND[0].lower()}{ITS_KIND[1:]}" for one in found.models if one.of_sites
    ]
    sentences += [*found.missing, *filter(None, [found.caveat])]
    pictures = Pictures(list(map(_scores, found.models)))
    made = [table for one in found.synthetic for table in (_near(one), _diverse(one))]
    return [*tables, *map(_centred, found.centres), *made, pictures, *map(note, sentences)]


def _attacked(found: AuditedModel) -> Table:
    numbers = f"{_members(found.members)} against {count(found.others)} others{_few(found.members, found.others)}"
    lines: list[list[Entry | str]] = []
    for one in found.attacks:
        tpr = DASH if one.tpr is None else decimal(one.tpr)
        name, auc = entry(one.attack, _remark(one, found)), decimal(one.auc)
        lines.append([name, auc, _ends(one.low, one.high), tpr, _ends(one.tpr_low, one.tpr_high)])
    return Table(_COLUMNS, lines, f"{capital(TARGETS[found.target])}: {numbers}")


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


def _extracted(found: Extraction) -> Table:
    """Tries, and which share of records they give; of numbers of tries that give the same, the largest alone."""
    among = f"top-k {found.top_k}" if found.top_k else "all tokens"
    title = (
        f"{capital(TARGETS[found.target])}: records that an attacker gets word for word with a probability of "
        f"{found.p:g} or more (temperature {found.temperature:g}, {among}); of "
        f"{_members(found.members)} and {count(found.others)} others{_few(found.members, found.others)}"
    )
    columns = list(zip(found.tries, found.found, found.low, found.high, found.others_found, strict=True))
    lines = [
        (count(tries), decimal(share), _ends(low, high), decimal(others))
        for (tries, share, low, high, others), after in zip(columns, [*columns[1:], None], strict=True)
        if after is None or (share, others) != (after[1], after[4])
    ]
    return Table(("Tries", "The sites’", "95 %", "Others"), lines, title)


def _written(found: Sequence[Written]) -> Table:
    """ROUGE-L of what models write."""
    title = "What models write: ROUGE-L with the sites’ records (of a text: with the nearest one) and with others"
    lines = []
    for one in found:
        given = f"{TARGETS[one.target]}, {PROMPTS[one.prompt]}"
        figures = (decimal(one.rouge), decimal(one.others_rouge), signed(one.difference))
        known = [count(number) for number in (one.members, one.others) if number is not None]
        number = f"{known[0]} texts" if one.prompt != "record" else f"n = {' and '.join(known)}"
        number += (" others" if one.members is None else "") + _few(one.members, one.others)
        lines.append((entry(given, number), *figures, f"{signed(one.low)} to {signed(one.high)}"))
    return Table(("Given", "The sites’", "Others’", "Difference", "95 %"), lines, title)


def _centred(found: Centred) -> Table:
    """How often what is nearest to a centre is a record of the site itself, by size of the cluster."""
    among = f"{count(found.pool)} of the pool and {_members(found.records)}"
    title = (
        f"{capital(CENTRES[found.kind])}: how often the record that is nearest to one, among {among}, is the site’s "
        f"own (at random: {decimal(found.chance)})"
    )
    lines: list[list[Entry | str]] = []
    for one in found.groups:
        name = entry(_records_in(one), _how_many(one))
        lines.append([name, decimal(one.own), _ends(one.low, one.high), decimal(one.others)])
    return Table(("Records in its cluster", "The site’s own", "95 %", "Another site’s"), lines, title)


def _near(found: Synthetic) -> Table:
    """How close texts come to records."""
    title = (
        f"{capital(SYNTHETIC[found.kind])}: the largest ROUGE-L of each with {_any(found.records)} of the sites’ "
        "(1 is the same words)" + ("" if found.texts is None else f"; {count(found.texts)} texts")
    )
    names = {0.5: "median", 1.0: "largest"}
    lines = [
        (names.get(share, f"{100 * share:.0f} % are below"), decimal(value), "")
        for share, value in zip(QUANTILES, found.near, strict=True)
    ]
    both = "mean, with as many of both" + ("" if found.same is None else f" ({count(found.same)})")
    lines.append((both, decimal(found.rouge), decimal(found.others_rouge)))
    return Table(("Nearness", "The sites’", "Others"), lines, title)


def _any(number: int | None) -> str:
    return "any record" if number is None else f"any of {count(number)} records"


def _diverse(found: Synthetic) -> Table:
    """How diverse texts are, beside as many records."""
    of = "" if found.counted is None else f", of {count(found.counted)} each"
    title = f"{capital(SYNTHETIC[found.kind])}: different words and pairs of words, for each word there is{of}"
    lines = [
        (f"distinct-{n}", decimal(own), decimal(other))
        for n, (own, other) in enumerate(zip(found.distinct, found.records_distinct, strict=True), start=1)
    ]
    return Table(("Diversity", "These texts", "As many records of the sites"), lines, title)


def _records_in(one: CentreShare) -> str:
    if one.most is None:
        return f"{one.least} or more" if one.least else "all"
    return str(one.least) if one.least == one.most else f"{one.least} to {one.most}"


def _how_many(one: CentreShare) -> str:
    if one.centres is None:
        return ""
    return f"{count(one.centres)} centre{'s' * (one.centres != 1)}{_few(one.centres)}"


def _members(number: int | None) -> str:
    """How many, where that is told."""
    return "some of the sites’ records" if number is None else f"{count(number)} of the sites’ records"


def _few(*numbers: int | None) -> str:
    """That one of them says little, of those that are told."""
    return ", too few to say much" if min((one for one in numbers if one is not None), default=FEW) < FEW else ""


def _ends(low: float | None, high: float | None) -> str:
    return DASH if low is None or high is None else f"{decimal(low)} to {decimal(high)}"


def _scores(found: AuditedModel) -> Picture:
    """How members' scores by the strongest attack lie to others'."""
    histogram = found.histogram

    def draw(axes: Axes) -> None:
        lots = ((histogram.others, MUTED, 0.35), (histogram.members, style(0).colour, 0.45))
        for numbers, colour, shade in lots:
            shares(axes, histogram.edges, numbers, colour, shade)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"score by {found.strongest}")

    caption = (
        "Coloured: records that the model was trained on. Grey: others. The further the two lie apart, the more the "
        "model gives away; scores beyond the ends are in the first and the last bin."
    )
    title = f"Scores by {found.strongest}, {TARGETS[found.target]}"
    return Picture(title, svg(draw, "% of the records", title, rounds=False), caption)
