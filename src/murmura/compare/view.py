"""A comparison as sections of the page, on the terminal, in Markdown and as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from murmura.compare import audited, linear
from murmura.compare.alike import made_unlike, on_other_records
from murmura.compare.choice import Recommendation
from murmura.compare.comparison import Outcome
from murmura.compare.equal_utility import at_equal_utility
from murmura.compare.outcome import LEAKAGE, UPLOADS, ArmResult, compared, frontier
from murmura.data.records import Kind
from murmura.measure.catalogue import figure
from murmura.measure.figure import GUESSING, SHARE
from murmura.measure.statistics import Difference, Estimate, differences
from murmura.report.caveats import HARDLY
from murmura.report.content import (
    Block,
    Definitions,
    Entry,
    FirstScreen,
    Paragraph,
    Picture,
    ReportSection,
    Span,
    Table,
    entry,
)
from murmura.report.frontier import Level, Mark, frontier_picture, levels_picture
from murmura.report.guarantee import OF_PERSONS, persons_have
from murmura.report.in_short import BETTER, COST, LEAKS, PROMISED, contradicted
from murmura.report.markdown import answered, pipes
from murmura.report.standing import UNATTACKED, RowSummary, cases, costs, leaks, promised
from murmura.report.style import Style, style
from murmura.units import DASH, bound, count, decimal, duration, listing, several, size

_LINEAR = "a linear model"
_BESIDE = (
    f"Beside them a linear model ({linear.WORDS}), which trains in seconds and guarantees nothing, comes to an "
    "accuracy of {}."
)
_DRAWN = 3  # seeds of an interval that is drawn: of two it is 13 standard errors wide either way, and all else a point


def section(outcome: Outcome) -> ReportSection:
    """Which arm to take, how they lie to each other, and every arm's figures."""
    seeds = f"{'seed' if len(outcome.seeds) == 1 else 'seeds'} {listing(list(map(str, outcome.seeds)))}"
    was = "was to be run" if outcome.missing or any(one.lacking for one in outcome.results) else "was run"
    apart = on_other_records([one for one in outcome.results if one.kind == outcome.kind])
    lead = f"Every arm {was} with {seeds}{'' if apart else ', on the same records'}."
    if len(outcome.seeds) > 1:
        lead += (
            " Figures are means over them, with 95 % intervals (Student’s t); differences are paired by seed, and "
            "their p values corrected (Holm) within each column, for how many arms it compares."
        )
    remarks = [Paragraph(remark) for remark in outcome.remarks]
    worth, cost = tables(outcome)
    equal = _at_equal_utility(outcome)
    return ReportSection(
        "", "", [answers(outcome), Paragraph(lead), worth, _terms(outcome), *equal, cost, _TERMS, *remarks]
    )


def _at_equal_utility(outcome: Outcome) -> list[Block]:
    """What arms leak where they are as good as the reference; nothing where rounds were not measured."""
    levels = at_equal_utility(outcome.results, outcome.reference)
    if not levels:
        return []
    looks, known = looks_of(outcome.results), {one.arm: one for one in outcome.results}
    title = _reference(outcome).utility_figure.title
    rows: list[list[Entry | str]] = [
        [
            Entry(arm, _of_seeds(one.difference.estimate.n, known[arm]), look=looks[arm]),
            _cell(one.utility),
            _cell(one.leakage),
            _cell(one.reference),
            _cell(one.difference),
        ]
        for arm, one in levels.items()
    ]
    columns = ["Arm", title, "Leakage (AUC)", f"{outcome.reference} there", "Difference"]
    return [Paragraph(_EQUAL), Table(columns, rows, "What it leaks at equal utility", stacked=True)]


def _terms(outcome: Outcome) -> Definitions:
    """What the columns of the first table mean, in a line each."""
    useful = _reference(outcome).utility_figure
    known = {one.title: one.in_a_line([cast(Kind, outcome.kind)]) for one in (useful, figure(LEAKAGE))}
    return Definitions({**known, f"Against {outcome.reference}": _AGAINST, "On the frontier": _FRONTIER})


_AGAINST = (
    "By how much it is larger, seed by seed; differences with p of 0.05 or less count as shown. Where the "
    "sentences above say that an arm leaks less, an AUC below 0.5 counts as 0.5; in these columns it does not."
)
_FRONTIER = (
    "Of arms that have both figures of each seed: no other is as good in both utility and leakage and better in one, "
    "by their means; an AUC below 0.5 counts as 0.5."
)
_EQUAL = (
    "A method that has learnt less leaks less. So here each arm is compared with the reference at the best utility "
    "that both reached, where each first reached it, seed by seed; between measured rounds a straight line is taken."
)
_TERMS = Definitions(
    {
        "ε, with the search": "How much one record, or one site, can change what was sent at most, in one run and "
        "in the search for its rate together. A dash: nothing is guaranteed.",
        "Travels": "Bytes that all sites send and are sent in a run, for the method itself.",
        "Time of a run": "The mean over seeds. A dash: it is not told, where ε counts on nobody knowing it.",
        "Steps of all sites": "Optimiser steps in a run; arms with more have trained more. A dash: the server trains, "
        "or they would tell how many records sites have, where ε counts on nobody knowing it.",
        "Rate": "The learning rate of the runs, and those it was chosen from.",
    }
)


def tables(outcome: Outcome) -> list[Table]:
    """An arm a row: what it is worth, and what it costs."""
    looks = looks_of(outcome.results)
    utility = _reference(outcome).utility_figure
    useful_far = compared(outcome.results, outcome.reference, utility.key)
    leaking_far = compared(outcome.results, outcome.reference, LEAKAGE)
    front = frontier(outcome.results, outcome.kind)
    worth: list[list[Entry | str]] = []
    cost: list[list[Entry | str]] = []
    for one in outcome.results:
        name = Entry(one.arm, tuple(_marks(one, outcome.choice, front)), look=looks[one.arm])
        useful = [_cell(one.utility), _cell(useful_far.get(one.arm))]
        leaking = [_cell(one.leakage), _cell(leaking_far.get(one.arm))]
        if one.kind != outcome.kind:  # the column's title is not about it
            own = f"{one.utility_figure.title.lower()}, of {one.kind} records"
            useful[0] = replace(useful[0], small=(*useful[0].small, own))
        if one.utility_figure.unit is SHARE:
            useful[0] = replace(useful[0], span=_span(one.utility, None))
        leaking[0] = replace(leaking[0], span=_span(one.leakage, GUESSING))
        worth.append([name, *useful, *leaking])
        promise = entry(DASH, one.unguaranteed) if one.epsilon is None else entry(bound(one.epsilon), one.promise)
        wall = DASH if one.wall is None else duration(one.wall)
        steps = DASH if one.steps is None else count(one.steps)
        travels = entry(size(one.bytes), "expected" if one.hides_cohorts else "")
        cost.append([Entry(one.arm, look=looks[one.arm]), promise, travels, wall, steps, _rate(one)])
    if simple := _linear(outcome):
        named, far = Entry(_LINEAR, (linear.WORDS,)), _linearly(outcome)
        worth.append([named, _cell(simple), _cell(far), _cell(None), _cell(None)])
    against = f"against {outcome.reference}"
    return [
        Table(["Arm", utility.title, against, "Leakage (AUC)", against], worth, "What it is worth", stacked=True),
        Table(
            ["Arm", "ε, with the search", "Travels", "Time of a run", "Steps of all sites", "Rate"],
            cost,
            "What it promises and costs",
            stacked=True,
        ),
    ]


def _linear(outcome: Outcome) -> Estimate | None:
    return Estimate.of(list(outcome.linear.values()), 0.0, 1.0) if outcome.linear else None


def _linearly(outcome: Outcome) -> Difference | None:
    """How the linear model differs from the reference; it is no arm, so their p values do not correct each other."""
    reference = _reference(outcome)
    return differences({_LINEAR: outcome.linear}, reference.values(reference.utility_figure.key)).get(_LINEAR)


def _reference(outcome: Outcome) -> ArmResult:
    return next(one for one in outcome.results if one.arm == outcome.reference)


def looks_of(results: Sequence[ArmResult]) -> dict[str, Style]:
    """One mark and colour an arm."""
    return {one.arm: style(place) for place, one in enumerate(results)}


def _cell(one: Estimate | Difference | None) -> Entry:
    """In words, what they have in brackets below the rest."""
    if one is None:
        return Entry(DASH)
    head, _, rest = one.words.partition(" (")
    return entry(head, rest.replace(")", ""))


def _span(one: Estimate | None, guess: float | None) -> Span | None:
    return Span(*one.ends, one.mean, guess) if one and one.ends else None


def _marks(one: ArmResult, choice: Recommendation, front: Sequence[str]) -> list[str]:
    told = ["chosen"] * (one.arm == choice.arm) + ["on the frontier"] * (one.arm in front)
    seeds = len(one.seeds) - len(one.lacking)
    return [*told, f"{several(seeds, 'seed')}{f' of {len(one.seeds)}' if one.lacking else ''}"]


def _of_seeds(n: int, one: ArmResult) -> tuple[str, ...]:
    """How many of an arm's seeds a row is of, where it is not all."""
    return (f"{several(n, 'seed')} of {len(one.seeds)}",) if n < len(one.seeds) else ()


def _rate(one: ArmResult) -> Entry:
    if one.rate_of:
        return entry(f"{one.rate:g}", f"as {one.rate_of} has it")
    tried = ", ".join(f"{tried.rate:g}{' (came to nothing)' * (tried.utility is None)}" for tried in one.tried)
    return entry(f"{one.rate:g}", f"of {tried}" if tried else "as given", "at the edge" if one.edge else "")


# ---- the first screen ------------------------------------------------------------------------------------------------


def answers(outcome: Outcome) -> FirstScreen:
    """Which to take, what leaks, what is guaranteed and what it cost, beside one picture."""
    own = [_standing(one) for one in outcome.results]
    alike = [told for told, one in zip(own, outcome.results, strict=True) if one.kind == outcome.kind]
    others = [one for one in outcome.results if one.kind != outcome.kind]
    named = listing([one.arm for one in others]) if others else ""
    apart = (f"Read in another way, and so not compared with these: {named}.",) if others else ()
    audits = audited.told({one.arm: list(one.runs.values()) for one in outcome.results if one.kind == outcome.kind})
    leaking = leaks(alike)
    leaking = () if audits and leaking == (UNATTACKED,) else leaking
    beyond = audited.told({one.arm: list(one.runs.values()) for one in others})
    runs = [run for one in outcome.results for run in one.runs.values()]
    simple = _linear(outcome)
    beside = (_BESIDE.format(simple.words),) if simple else ()
    told = {
        BETTER: (*outcome.choice.sentences, *_since_before(outcome), *beside),
        LEAKS: (*leaking, *audits, *apart, *beyond),
        PROMISED: (*promised(own), *_of_persons(outcome.results), *contradicted(runs)),
        COST: costs(own, "not all runs were made alike" if made_unlike(outcome.results) else ""),
    }
    return FirstScreen(told, picture(outcome))


def _since_before(outcome: Outcome) -> list[str]:
    """What the loss was before training, and which arms have hardly moved it."""
    known = [
        (one.arm, one.before, one.utility.mean)
        for one in outcome.results
        if one.kind == outcome.kind and one.before and one.utility and one.utility_figure.key == "heldout_loss"
    ]
    if not known:
        return []
    told = [f"Before training the held-out loss was {decimal(known[0][1])}."]
    if idle := [arm for arm, before, after in known if after > before * (1 - HARDLY)]:
        told.append(f"Hardly better than that, or worse: {listing(idle)}; more rounds, steps or another rate may help.")
    return told


def _of_persons(results: Sequence[ArmResult]) -> list[str]:
    """That an ε of one record is not that of a person with several; how much that is, the ledgers of all runs tell."""
    told: dict[str, list[str]] = {}
    for one in results:
        if most := persons_have(list(one.runs.values())):
            told.setdefault(OF_PERSONS.format(most=most), []).append(one.arm)
    return [f"{listing(arms)}: {what}" for what, arms in told.items()]


def _standing(one: ArmResult) -> RowSummary:
    """What is told of an arm: its ε counts the search for a rate too, what it leaks is by what is the strongest on it
    (the tables compare by one attack), and intervals are the wider of two, over seeds and over records in a run."""
    runs, attacked = list(one.runs.values()), one.by_strongest
    leakage, uploads = attacked.leakage, attacked.estimate(UPLOADS)
    searched = ["the search for a rate counted"] if one.tried or one.searched else []
    together = [f"of one run, the most of {len(runs)} seeds"] if len(runs) > 1 else []
    return RowSummary(
        label=one.arm,
        runs=runs,
        leakage=None if leakage is None else leakage.mean,
        ends=attacked.widest(LEAKAGE),
        epsilon=one.epsilon,
        told=", ".join(part for part in [one.promise, *searched, *together] if part),
        refused=one.unguaranteed,
        sent=one.bytes,
        seconds=one.wall,
        upload=cases(uploads.mean, attacked.widest(UPLOADS)) if uploads else "",
    )


# ---- the picture -----------------------------------------------------------------------------------------------------


def picture(outcome: Outcome) -> Picture | None:
    """Utility against leakage, each arm by its mean and its interval, with its name beside it; utility alone where none
    was attacked while it ran. Of arms about the kind of record that the choice is about; None where none of these was
    measured."""
    looks = looks_of(outcome.results)
    alike = [one for one in outcome.results if one.kind == outcome.kind and one.utility]
    if not alike:
        return None
    utility = alike[0].utility_figure
    attacked = [_mark(one, looks[one.arm]) for one in alike if one.leakage]
    if attacked:
        told = _marked(any(mark.across or mark.up for mark in attacked), any(mark.seeds for mark in attacked))
        left = [one.arm for one in alike if not one.leakage]
        told += f" Not attacked while they ran, and so not drawn: {listing(left)}." if left else ""
        attack = "one attack" if "attack" in alike[0].attacks else "the strongest attack"
        return frontier_picture(attacked, utility, told, attack)
    levels = [_level(one, looks[one.arm]) for one in alike]
    if simple := _linear(outcome):
        levels.append(Level(_LINEAR, None, simple.mean, _drawn_ends(simple)))
    told = _marked(any(level.across for level in levels), any(len(level.seeds) > 1 for level in levels))
    return levels_picture(levels, utility, told)


def _marked(bars: bool, seeds: bool) -> str:
    """What bars and hollow marks are, of those that are there."""
    told = ["Bars are 95 % intervals over seeds."] * bars + ["Small hollow marks are single seeds."] * seeds
    return " ".join(told)


def _mark(one: ArmResult, look: Style) -> Mark:
    assert one.utility and one.leakage
    own, leaking = one.values(one.utility_figure.key), one.values(LEAKAGE)
    seeds = [(own[seed], leaking[seed]) for seed in own if seed in leaking] if len(own) > 1 else []
    ends = _drawn_ends(one.utility), _drawn_ends(one.leakage)
    return Mark(one.arm, look, one.utility.mean, one.leakage.mean, *ends, seeds)


def _level(one: ArmResult, look: Style) -> Level:
    assert one.utility
    seeds = list(one.values(one.utility_figure.key).values())
    return Level(one.arm, look, one.utility.mean, _drawn_ends(one.utility), seeds)


def _drawn_ends(one: Estimate) -> tuple[float, float] | None:
    return one.ends if one.n >= _DRAWN else None


# ---- elsewhere -------------------------------------------------------------------------------------------------------


def markdown(told: ReportSection) -> str:
    """The sentences and tables of a comparison's section, for a page of results."""
    parts = []
    for block in told.blocks:
        if isinstance(block, FirstScreen):
            parts.append(answered(block))
        elif isinstance(block, Paragraph):
            parts.append(f"{block.text}\n")
        elif isinstance(block, Table):
            parts.append(pipes(block))
    return "\n".join(parts)
