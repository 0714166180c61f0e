"""Which public records sites were given, in words and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from murmura.report.content import (
    Block,
    Details,
    Entry,
    Picture,
    Pictures,
    ReportSection,
    Table,
    capital,
    note,
    shortened,
)
from murmura.report.drawing import MUTED, PAPER, dots, means, shares, svg
from murmura.report.style import Style, style
from murmura.report.table import Row, each_run, runs_of
from murmura.runs.augment import CentresGuarantee, Given, PublicSelection
from murmura.runs.record import RunRecord
from murmura.units import DASH, bound, count, decimal, listing, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAD = (
    "Beside their own records sites trained on public ones, which the server chose for them from a pool and sent them. "
    "Coverage is the mean, over the pool’s records of the sites’ domain, of the largest cosine to a record of that "
    "domain that some site was given: 1 is all of it."
)
_CENTRES = (
    "A centre of a single record is that record’s vector, and one of few is nearly theirs; much of a text can be read "
    "off its vector (Morris et al. 2023)."
)
_NOTHING_ELSE = (
    "It covers the centres and nothing else: what sites uploaded after training, and whatever else they sent, has no "
    "ε, and so the run has none."
)
_WITHOUT_PRIVATE = (
    "Private records were left out of the pool: whoever has it and the files that it is made of can tell which."
)
Options = tuple[tuple[str, str], ...]
"""Names and values."""

_MANY_SITES = 12
_COLUMNS = 5  # domains with a column of their own


def augmentation(rows: Sequence[Row]) -> ReportSection | None:
    """Of those runs in which sites were given something."""
    augmented = [run for run in runs_of(rows) if run.augment]
    compared = coverage(augmented)
    blocks: list[Block] = [Pictures(compared)] if compared else []
    blocks += each_run(rows, augmented, lambda run: _blocks(run, run.augment[-1]))
    return ReportSection("Public records for the sites", _LEAD, blocks) if blocks else None


def _blocks(run: RunRecord, last: PublicSelection) -> list[Block]:
    """What the sites of a run were given, as it was chosen last."""
    looks = {domain: style(place) for place, domain in enumerate(_domains(last))}
    pictures = [one for one in (_map(last, looks), _histogram(last, looks)) if one]
    blocks: list[Block] = [*map(note, _sentences(run, last))]
    if pictures:
        blocks.append(Pictures(pictures, [Entry(domain, look=look) for domain, look in looks.items()], lines=False))
    blocks.append(Details("What each site was given", [_given(last)], opened=len(last.sites) <= _MANY_SITES))
    if last.examples:
        columns = ("Site", "Domain", last.scored_by or "Score", "Public record", "Why")
        lines = [(one.site, one.domain, _score(one.similarity), shortened(one.text), one.why) for one in last.examples]
        table = Table(columns, lines, text=(0, 1, 3, 4), stacked=True, css="examples")
        blocks.append(Details("Some of it, and why", [table]))
    return blocks


def _domains(chosen: PublicSelection) -> list[str]:
    """Those of which something was given, the most frequent first; then others that are in a picture."""
    return list(dict.fromkeys([*chosen.by_domain, *(point.domain for point in chosen.points)]))


# ---- words -----------------------------------------------------------------------------------------------------------


def _sentences(run: RunRecord, last: PublicSelection) -> list[str]:
    found = [_what(run, last)]
    if last.private:
        found.append(f"What the strategy reads of private records: {last.private}.")
    if last.without_private:
        found.append(_WITHOUT_PRIVATE)
    if last.guarantee is not None:
        found.append(_guaranteed(last.guarantee))
        if not run.finished:
            found.append("The run is unfinished: centres that it sent after its last saved round are not in that ε.")
    elif any(one.centres for one in run.augment):
        alone = [one.alone for one in run.augment if one.alone is not None]
        sent = sum(one.centres or 0 for one in run.augment)
        told = f" Of the {count(sent)} that sites sent in all, {count(sum(alone))} are of one." if alone else ""
        found.append(_CENTRES + told)
    return found


def _what(run: RunRecord, last: PublicSelection) -> str:
    rounds = [count(one.round) for one in run.augment]
    when = f"round{'s' * (len(rounds) > 1)} {listing(rounds)}"
    latest = ", of which the last is shown here" if len(rounds) > 1 else ""
    asked = f", {count(last.records)} asked for each site" if last.records is not None else ""
    whom = f"{count(len(last.sites))} site{'s' * (len(last.sites) != 1)}"
    text = (
        f"{last.strategy}: {count(last.rows)} records ({size(sum(one.bytes for one in last.sites.values()))}) for "
        f"{whom}{asked}, chosen at the beginning of {when}{latest}."
    )
    if last.domain is not None and last.rows:
        share = 100 * last.by_domain.get(last.domain, 0) / last.rows
        text += f" {share:.0f} % of them are of the domain “{last.domain}”"
        text += f", which they cover by {decimal(last.coverage)}." if last.coverage is not None else "."
    return text


def _guaranteed(told: CentresGuarantee) -> str:
    if told.epsilon is None:
        return f"The centres were made noisy, and have no ε all the same: {told.refused}."
    return (
        f"The centres of a site are covered by ε = {bound(told.epsilon)} at δ = {told.delta:g} for one record of it "
        f"({told.adjacency}), by the ledgers of what sites really did: {told.plan}. {_NOTHING_ELSE}"
    )


def _given(last: PublicSelection) -> Table:
    """What was given, site by site and to all together."""
    shown = list(last.by_domain)[:_COLUMNS]
    more = ["other domains"] if len(last.by_domain) > _COLUMNS else []
    scored = any(one.similarity for one in last.sites.values())
    scores = [last.scored_by or "score", "least to most"] if scored else []

    def line(name: str, one: Given, mean: float | None, ends: str) -> list[str]:
        parts = [one.by_domain.get(domain, 0) for domain in shown]
        parts += [one.rows - sum(parts)] if more else []
        cells = [name, count(one.rows), *map(count, parts), count(one.missing), size(one.bytes)]
        return cells + ([_score(mean), ends] if scored else [])

    lines = []
    for name, one in last.sites.items():
        found = one.similarity
        ends = f"{_score(found.least)} to {_score(found.most)}" if found else DASH
        lines.append(line(name, one, found.mean if found else None, ends))
    missing, sent = sum(one.missing for one in last.sites.values()), sum(one.bytes for one in last.sites.values())
    lines.append(line("All sites", Given(last.rows, missing, sent, last.by_domain), last.mean_similarity, DASH))
    return Table(["Site", "Records", *shown, *more, "Fewer than asked", "Size", *scores], lines)


def _score(value: float | None) -> str:
    return DASH if value is None else decimal(value)


# ---- pictures --------------------------------------------------------------------------------------------------------


def _map(last: PublicSelection, looks: dict[str, Style]) -> Picture | None:
    if not last.points:
        return None

    def draw(axes: Axes) -> None:
        pool = [point for point in last.points if point.kind == "pool"]
        faint = {"marker": ".", "markeredgewidth": 0, "alpha": 0.45}
        dots(axes, [(point.x, point.y) for point in pool], MUTED, 3.2, zorder=2, **faint)
        edge = {"markeredgecolor": PAPER, "markeredgewidth": 0.4}
        for domain, look in looks.items():
            own = [point for point in last.points if point.kind == "fetched" and point.domain == domain]
            dots(axes, [(point.x, point.y) for point in own], look.colour, 4.4, marker=look.marker, zorder=3, **edge)
        axes.grid(False)
        axes.spines["bottom"].set_visible(False)
        axes.xaxis.set_visible(False)
        axes.yaxis.set_visible(False)

    of = f"the domain “{last.domain}”" if last.domain is not None else "the pool"
    caption = (
        f"Grey: some of the pool’s records of {last.domain if last.domain is not None else 'all domains'}. Coloured: "
        "some of those that sites were given. Neighbours are alike; distances between what is far apart mean little "
        "(t-SNE, of each run by itself)."
    )
    title = f"{capital(of)}, and what was fetched"
    return Picture(title, svg(draw, "", f"map {last.strategy}", rounds=False), caption)


def _histogram(last: PublicSelection, looks: dict[str, Style]) -> Picture | None:
    found = last.histogram
    if found is None:
        return None

    def draw(axes: Axes) -> None:
        for domain, numbers in found.counts.items():
            colour = looks[domain].colour if domain in looks else MUTED
            shares(axes, found.edges, numbers, colour, 0.16)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(last.scored_by)

    caption = "Of each domain’s records by themselves; one that several sites were given counts each time."
    title = "How alike what was fetched is"
    return Picture(title, svg(draw, "% of a domain’s records", title, rounds=False), caption)


# ---- several runs ----------------------------------------------------------------------------------------------------


def coverage(records: Sequence[RunRecord]) -> list[Picture]:
    """Coverage against how many records were fetched, and against ξ, where runs differ in these. Runs that differ in
    any other option of ``[augment]`` have lines of their own: only what a seed tells apart is a repetition."""
    known = [
        (run.augment[-1], _options(run)) for run in records if run.augment and run.augment[-1].coverage is not None
    ]
    every = [
        _against(known, "records asked for each site", lambda one: one.records, lambda one: ("ξ", one.clusters)),
        _against(known, "clusters at each site (ξ)", lambda one: one.clusters, lambda one: ("records", one.records)),
    ]
    return [one for one in every if one]


def _options(run: RunRecord) -> Options:
    """What a run's ``[augment]`` says beside what is drawn or named anyway."""
    section = run.options.get("augment", {})
    named = ("strategy", "domain", "records", "clusters")
    return tuple(sorted((name, str(value)) for name, value in section.items() if name not in named))


def _against(
    known: Iterable[tuple[PublicSelection, Options]],
    axis: str,
    along: Callable[[PublicSelection], int | None],
    other: Callable[[PublicSelection], tuple[str, int | None]],
) -> Picture | None:
    """Coverage along one option, a line for each strategy, domain, value of the other and whatever else is set; None
    where no line has two points."""
    lines: dict[tuple[str, str, str, Options], dict[int, list[float]]] = {}
    for one, options in known:
        place, (name, value) = along(one), other(one)
        if place is not None and one.coverage is not None:
            told = f"{name} = {count(value)}" if value is not None else ""
            key = one.strategy, one.domain or "", told, options
            lines.setdefault(key, {}).setdefault(place, []).append(one.coverage)
    if not any(len(points) > 1 for points in lines.values()):
        return None
    looks = [Entry(label, look=style(place)) for place, label in enumerate(_told_apart(list(lines)))]

    def draw(axes: Axes) -> None:
        for place, points in enumerate(lines.values()):
            means(axes, {float(at): values for at, values in points.items()}, style(place))
        axes.set_xlabel(axis)

    caption = "What was chosen last in each run. Small hollow marks are single runs, lines go through their means."
    title = f"Coverage against {axis}"
    return Picture(title, svg(draw, "coverage", title, rounds=False), caption, looks)


def _told_apart(keys: Sequence[tuple[str, str, str, Options]]) -> list[str]:
    """A label for each line: the strategy, of domain and option what not all lines have in common, and of all else what
    not all lines of the strategy have."""
    varies = [len({key[part] for key in keys}) > 1 for part in range(3)]
    labels = []
    for key in keys:
        alike = [set(other[3]) for other in keys if other[0] == key[0]]
        own = [f"{name} = {value}" for name, value in key[3] if not all((name, value) in one for one in alike)]
        labels.append(", ".join([key[0], *(str(key[part]) for part in (1, 2) if varies[part] and key[part]), *own]))
    return labels
