"""What a reader wants to know first, in a sentence or two each: the same on the page, in a terminal and in Markdown.

How good, what leaks, what is guaranteed, what it cost. Nothing here says that one row is better than another: that
takes tests over seeds, which whoever has them hands in (``which``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, nan

from murmura.measure.catalogue import figure, utility_of
from murmura.measure.gains import MODELS, Gains
from murmura.report.comparison import apart
from murmura.report.content import FirstScreen, Picture
from murmura.report.frontier import Mark, frontier_picture
from murmura.report.guarantee import guarantees, interrupted, is_contradicted, last_audited, of_persons, unsaved
from murmura.report.standing import (
    ITS_KIND,
    KNOWN_BEFORE,
    LITTLE,
    TOLD,
    UNATTACKED,
    RowSummary,
    cases,
    costs,
    leaks,
    promise_of,
    promised,
    untried,
)
from murmura.report.table import ATTACKED, Row, as_measured, kinds, runs_of
from murmura.runs.audit import TARGETS
from murmura.runs.record import RunRecord
from murmura.units import at_least, count, decimal, listing, signed

GOOD, BETTER, LEAKS, PROMISED, COST, GAINS = (
    "How good is it?",
    "Which is better?",
    "What leaks?",
    "What is guaranteed?",
    "What did it cost?",
    "Does every site gain?",
)
_UNCOVERED = "No ε covers that: sites tell it of their own records."


def in_short(rows: Sequence[Row], which: Sequence[str] = ()) -> FirstScreen:
    """The first screen of a report.

    Args:
        rows: at least one.
        which: of several rows, which is better, and how sure that is.
    """
    standings = [standing_of(row) for row in rows]
    several = len(rows) > 1
    answers = {BETTER: tuple(which) or _figures(rows)} if several else {GOOD: _good(rows[0])}
    found, audited = _found(rows), _audited(rows)
    attacked = found != (UNATTACKED,)
    more = untried(runs_of(rows)) if attacked else ()
    answers[LEAKS] = (*(found if attacked or not audited else ()), *audited, *more)
    meaning = (*of_persons(rows), *_meaning(rows))
    answers[PROMISED] = (*promised(standings), *meaning, *interrupted(rows), *contradicted(runs_of(rows)))
    answers[COST] = costs(standings, apart(rows, "wall"))
    if told := _gains(rows):
        answers[GAINS] = told
    return FirstScreen(answers, _picture(rows))


def standing_of(row: Row) -> RowSummary:
    """What is told of a row of the table."""
    leakage, uploads, epsilon = (row.cells[key] for key in ("attack_auc", "upload_auc", "epsilon"))
    up, down = row.cells["bytes_up"].mean, row.cells["bytes_down"].mean
    privacy = [run.last.privacy for run in row.runs]
    return RowSummary(
        label=row.label,
        runs=row.runs,
        leakage=leakage.mean,
        ends=leakage.ends,
        epsilon=epsilon.mean,
        told=promise_of(privacy[0]),
        together=epsilon.together,
        refused=next((str(one["refused"]) for one in privacy if one.get("refused")), ""),
        sent=None if up is None and down is None else (up or 0.0) + (down or 0.0),
        seconds=row.cells["wall"].mean,
        upload=cases(uploads.mean, uploads.ends),
        by_ledgers=epsilon.mean is None and any(unsaved(run) for run in row.runs),
    )


# ---- how good --------------------------------------------------------------------------------------------------------


def _good(row: Row) -> tuple[str, ...]:
    """How its model was before training, and is after."""
    keys = dict.fromkeys([utility_of(row.runs[0].kind), "heldout_rouge", "heldout_accuracy"])
    then = as_measured(row, [*keys])
    told = [sentence for key in keys if (sentence := _moved(then, key))]
    if not told:
        return ("Not measured.",)
    told[1:1] = _fall(then)
    told += _earlier([row], [then], "measured")
    state = [f"This run is {row.state}."] if row.state else []
    seeds = "One seed: another may come out otherwise."
    if len(row.runs) > 1:
        seeds = f"Means of {len(row.runs)} seeds."
    return (*told, *state, seeds)


def _moved(row: Row, key: str) -> str:
    one, after, before = figure(key), row.cells[key], row.before(key)
    lost = sum(not isfinite(run.last.values.get(key, 0.0)) for run in row.runs)
    if after.mean is None:
        return f"{one.title} is not finite: training has diverged." if lost else ""
    if lost:
        seeds = f"{lost} of {len(row.runs)} seeds"
        return f"{one.title} is not finite with {seeds}, where training has diverged: the mean of others is too good."
    value = one.unit.write(after.mean)
    spread = f" {after.spread(one)}" if after.spread(one) else ""
    spread += f" (95 %: {decimal(after.ends[0])} to {decimal(after.ends[1])})" if after.ends else ""
    guess = [] if after.guess is None else [f"guessing comes to {one.unit.write(after.guess)}"]
    about = "; ".join([*([f"{one.better} is better"] if one.better else []), *guess])
    way = f" ({about})" if about else ""
    if before.mean is None or row.runs[0].last.number == 0:
        return f"{one.title}: {value}{spread}{way}."
    was = one.unit.write(before.mean)
    if was == value:
        return f"{one.title} stayed at {value}{spread}{way}."
    rose = after.mean > before.mean
    chance = after.ends is not None and after.ends[0] <= before.mean <= after.ends[1]
    worse = rose == (one.better == "lower") and not chance
    went = "rose" if rose else "fell"
    return f"{one.title} {went} from {was} before training to {value}{spread}{way}{': worse than before' * worse}."


def _earlier(rows: Sequence[Row], then: Sequence[Row], what: str) -> list[str]:
    """Of which round that is told, where it is not the last one that was saved.

    Args:
        then: the rows ``as_measured``.
        what: was done in that round, and not since.
    """
    told = [(row, old.runs[0].last.number) for row, old in zip(rows, then, strict=True) if old is not row]
    return [
        f"That{f' of {row.label}' if len(rows) > 1 else ''} was after round {number}, the last that was {what}; "
        f"round {row.runs[0].last.number} is the last that was saved."
        for row, number in told
    ]


def _fall(row: Row) -> list[str]:
    """How sure the records make that the held-out loss has moved at all."""
    cell = row.cells["heldout_fall"]
    if cell.mean is None or cell.ends is None or cell.texts is None:
        return []
    low, high = cell.ends
    chance = ", so that it may be chance" if low <= 0 <= high else ""
    over = [f"{count(cell.texts)} held-out records", *[f"{len(row.runs)} seeds"] * (len(row.runs) > 1)]
    ends = f"95 %: {signed(-high)} to {signed(-low)}"
    return [f"Over the {listing(over)} the change is {signed(-cell.mean)} ({ends}){chance}."]


def _figures(rows: Sequence[Row]) -> tuple[str, ...]:
    """Where nobody has compared them: the figures, and no more."""
    known = kinds(rows)
    if len(known) > 1:
        return (f"They are not compared: they are about different kinds of record ({listing(list(known))}).",)
    one = figure(utility_of(rows[0].runs[0].kind))
    if why := apart(rows, one.key):
        return (f"That cannot be told: {one.title.lower()} was not measured alike ({why}).",)
    told = [f"{row.label} {row.cells[one.key].value(one)}" for row in rows[:TOLD]]
    more = f" and {len(rows) - TOLD} more" if len(rows) > TOLD else ""
    return (f"{one.title} ({one.better} is better): {', '.join(told)}{more}. Nothing here tests which is better.",)


# ---- what leaks, and what is guaranteed ------------------------------------------------------------------------------


def _found(rows: Sequence[Row]) -> tuple[str, ...]:
    """What attacks found when each row was last attacked."""
    then = [as_measured(row, ATTACKED) for row in rows]
    found = leaks([standing_of(row) for row in then], apart(then, "attack_auc"))
    return (*found, *_earlier(rows, then, "attacked"))


def _audited(rows: Sequence[Row]) -> list[str]:
    """What an audit's strongest attack has found of whatever gives most away."""
    told = []
    for run in [run for run in runs_of(rows) if run.audit and run.audit.models]:
        assert run.audit is not None
        found = [(one, model) for model in run.audit.models for one in model.best]
        if not found:
            continue
        one, model = max(found, key=lambda pair: pair[0].auc)
        few = f" {LITTLE}" * model.says_little
        whose = f" of {run.name}" if len(runs_of(rows)) > 1 else ""
        told.append(
            f"The audit{whose} found most in {TARGETS[model.target]}: {cases(one.auc, (one.low, one.high))} of 100 "
            f"pairs, by {one.attack}{f'; but {KNOWN_BEFORE}' * run.audit.unlike}.{f' {ITS_KIND}' * model.of_sites}{few}"
        )
    return told


def _meaning(rows: Sequence[Row]) -> list[str]:
    """Of a single run, what its ε leaves any attack; that of one of several would be too little for the others."""
    return [one.words[0] for one in guarantees(rows)] if len(runs_of(rows)) == 1 else []


def contradicted(runs: Sequence[RunRecord]) -> list[str]:
    """That an audit has shown more than is guaranteed."""
    return [
        f"Do not rely on it: an audit of {run.name} has shown that ε is {at_least(one.values['audit_epsilon'])} or more"
        f"{f' after round {one.number}' * (one is not run.last)}."
        for run in runs
        if (one := last_audited(run)) is not None and is_contradicted(run)
    ]


# ---- who gains, and the picture --------------------------------------------------------------------------------------


def _gains(rows: Sequence[Row]) -> tuple[str, ...]:
    """By the global model, beside the one before training."""
    first, second, _ = MODELS["global"]
    having = [run for run in runs_of(rows) if run.personal]
    if not having:
        return ()
    named = len(runs_of(rows)) > 1
    told = [(run.name, Gains.of(run.personal, first, second).words) for run in having]
    every = [f"{name}: {words}." if named else f"{words}." for name, words in told]
    if len(having) > TOLD:
        every = [f"“Single sites” has it of each of {len(having)} runs."]
    return (*every, *[_UNCOVERED] * any(run.last.privacy for run in having))


def _picture(rows: Sequence[Row]) -> Picture | None:
    """None where leakage or utility was not measured, or not alike."""
    keys = {utility_of(row.runs[0].kind) for row in rows}
    if len(keys) > 1 or any(apart(rows, key) for key in (*keys, "attack_auc")):
        return None
    key = keys.pop()
    marks = [mark for row in rows if (mark := _mark(row, key)) is not None]
    if not marks:
        return None
    if len(rows) == 1:
        marks = [replace(marks[0], name="after training")]
    before = {
        (row.before(key).value(figure(key)), row.before("attack_auc").value(figure("attack_auc"))) for row in rows
    }
    first = rows[0].before(key).mean, rows[0].before("attack_auc").mean
    if len(before) == 1 and first[0] is not None and first[1] is not None:
        marks.insert(0, Mark("before training", None, first[0], first[1]))
    seeds = any(mark.seeds for mark in marks)
    wider = any(mark.up and mark.seeds for mark in marks)
    over = "records, or over seeds where that is wider" if wider else "records"
    bars = f"Upright bars are 95 % intervals over {over}." * any(mark.up for mark in marks)
    bars += " Small hollow marks are single seeds." * seeds
    return frontier_picture(marks, figure(key), bars)


def _mark(row: Row, key: str) -> Mark | None:
    useful, leaking = row.cells[key], row.cells["attack_auc"]
    if useful.mean is None or leaking.mean is None:
        return None
    ends = [(run.last.values.get(key, nan), run.last.values.get("attack_auc", nan)) for run in row.runs]
    seeds = [(x, y) for x, y in ends if isfinite(x) and isfinite(y)] if len(row.runs) > 1 else []
    return Mark(row.label, row.look, useful.mean, leaking.mean, up=leaking.ends, seeds=seeds)
