"""What a reader wants to know first, in a sentence or two each: the same on the page, in a terminal and in Markdown.

How good, what leaks, what is guaranteed, what it cost. Nothing here says that one row is better than another: that
takes tests over seeds, which whoever has them hands in (``which``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from typing import Any

from murmura.measure.catalogue import figure
from murmura.measure.gains import MODELS, Gains
from murmura.report.comparison import differences
from murmura.report.content import Answers, Picture
from murmura.report.frontier import GUESSING, Mark, frontier_picture
from murmura.report.guarantee import guarantees
from murmura.report.table import Cell, Row, kinds, runs_of
from murmura.runs.audit import TARGETS
from murmura.units import at_least, bound, decimal, duration, listing, size

GOOD, BETTER, LEAKS, PROMISED, COST, GAINS = (
    "How good is it?",
    "Which is better?",
    "What leaks?",
    "What is guaranteed?",
    "What did it cost?",
    "Does every site gain?",
)
_FEW = 4  # rows that are told one by one; of more, the ends alone
_UTILITY = {"labelled": "accuracy"}
"""By kind of record the figure that says how good a model is; of others the held-out loss."""
_NOTHING = "Nothing: no ε bounds what other attacks could find."


@dataclass(frozen=True, slots=True)
class Standing:
    """What the first screen tells of a row or of an arm.

    Attributes:
        label: its name.
        leakage: AUC of the strongest attack on the model; None where none was carried out.
        ends: of its 95 % interval.
        few: whether so few records were attacked that it says little.
        upload: the same of what one site sends, in words; empty where it was not attacked.
        outside: whether an ε is promised that does not cover what attacks were computed from.
        epsilon: guaranteed; None where none is.
        told: for what that ε is: δ, unit, and whatever it does not count.
        refused: why there is no ε, of runs that promise one.
        sent: bytes that travelled, up and down.
        seconds: of a run; None where that is not told.
        expected: whether the bytes were not counted, but follow from public numbers.
    """

    label: str
    leakage: float | None
    ends: tuple[float, float] | None
    few: bool
    outside: bool
    epsilon: float | None
    told: str
    refused: str
    sent: float | None
    seconds: float | None
    expected: bool = False
    upload: str = ""


def in_short(rows: Sequence[Row], which: Sequence[str] = ()) -> Answers:
    """The first screen of a report.

    Args:
        rows: at least one.
        which: of several rows, which is better, and how sure that is.
    """
    standings = [standing_of(row) for row in rows]
    several = len(rows) > 1
    answers = {BETTER: tuple(which) or _figures(rows)} if several else {GOOD: _good(rows[0])}
    answers[LEAKS] = (*leaks(standings, _apart(rows, "attack_auc")), *_audited(rows))
    answers[PROMISED] = (*promised(standings), *_meaning(rows), *_contradicted(rows))
    answers[COST] = costs(standings, _apart(rows, "wall"))
    if told := _gains(rows):
        answers[GAINS] = told
    return Answers(answers, _picture(rows))


def utility(row: Row) -> str:
    """The key of the figure that says how good its model is."""
    return _UTILITY.get(row.runs[0].kind, "heldout_loss")


def standing_of(row: Row) -> Standing:
    """What is told of a row of the table."""
    cell, last = row.cells["attack_auc"], row.runs[0].last
    privacy = [run.last.privacy for run in row.runs]
    up, down = row.cells["bytes_up"].mean, row.cells["bytes_down"].mean
    refused = next((str(one["refused"]) for one in privacy if one.get("refused")), "")
    return Standing(
        label=row.label,
        leakage=cell.mean,
        ends=cell.ends,
        few=any("says little" in remark for remark in cell.remarks),
        outside=any(privacy),
        epsilon=row.cells["epsilon"].mean,
        told=", ".join(part for part in (promise_of(last.privacy), row.cells["epsilon"].together) if part),
        refused=refused,
        sent=None if up is None and down is None else (up or 0.0) + (down or 0.0),
        seconds=row.cells["wall"].mean,
        expected=any(run.hides_cohorts for run in row.runs),
        upload=uploaded(row.cells["upload_auc"]),
    )


def uploaded(cell: Cell) -> str:
    """``99 (95 %: 77 to 100, and so few records that it says little)``: what was found in single uploads."""
    if cell.mean is None:
        return ""
    few = any("says little" in remark for remark in cell.remarks)
    parts = [] if cell.ends is None else [f"95 %: {_hundred(cell.ends[0])} to {_hundred(cell.ends[1])}"]
    parts += ["so few records that it says little"] if few else []
    more = f" ({', '.join(parts)})" if parts else ""
    return f"{_hundred(cell.mean)}{more}"


def promise_of(privacy: Mapping[str, Any]) -> str:
    """``at δ = 1e-05, for one record (zero-out)``; empty where nothing is promised."""
    if privacy.get("delta") is None:
        return ""
    return f"at δ = {privacy['delta']:g}, for one {privacy['unit']} ({privacy['adjacency']})"


# ---- how good --------------------------------------------------------------------------------------------------------


def _good(row: Row) -> tuple[str, ...]:
    """How its model was before training, and is after."""
    keys = dict.fromkeys([utility(row), "heldout_rouge", "heldout_accuracy"])
    told = [sentence for key in keys if (sentence := _moved(row, key))]
    if not told:
        return ("Not measured.",)
    state = [f"This run is {row.state}."] if row.state else []
    seeds = "One seed: another may come out otherwise."
    if len(row.runs) > 1:
        seeds = f"Means of {len(row.runs)} seeds."
    return (*told, *state, seeds)


def _moved(row: Row, key: str) -> str:
    one, after, before = figure(key), row.cells[key], row.before(key)
    if after.mean is None:
        return ""
    value = one.unit.write(after.mean)
    spread = f" {after.spread(one)}" if after.spread(one) else ""
    guess = [] if after.guess is None else [f"guessing comes to {one.unit.write(after.guess)}"]
    about = "; ".join([*([f"{one.better} is better"] if one.better else []), *guess])
    way = f" ({about})" if about else ""
    if before.mean is None or row.runs[0].last.number == 0:
        return f"{one.title}: {value}{spread}{way}."
    was = one.unit.write(before.mean)
    if was == value:
        return f"{one.title} stayed at {value}{spread}{way}."
    rose = after.mean > before.mean
    worse = rose == (one.better == "lower")
    went = "rose" if rose else "fell"
    return f"{one.title} {went} from {was} before training to {value}{spread}{way}{': worse than before' * worse}."


def _figures(rows: Sequence[Row]) -> tuple[str, ...]:
    """Where nobody has compared them: the figures, and no more."""
    known = kinds(rows)
    if len(known) > 1:
        return (f"They are not compared: they are about different kinds of record ({listing(list(known))}).",)
    one = figure(utility(rows[0]))
    told = [f"{row.label} {row.cells[one.key].value(one)}" for row in rows[:_FEW]]
    more = f" and {len(rows) - _FEW} more" if len(rows) > _FEW else ""
    return (f"{one.title} ({one.better} is better): {', '.join(told)}{more}. Nothing here tests which is better.",)


# ---- what leaks ------------------------------------------------------------------------------------------------------


def leaks(standings: Sequence[Standing], apart: str = "") -> tuple[str, ...]:
    """What the strongest attack has found, in plain words.

    Args:
        apart: why it cannot be compared from row to row, if it cannot.
    """
    known = sorted((one for one in standings if one.leakage is not None), key=lambda one: one.leakage or 0.0)
    if not known:
        return ("Not measured: no attack was carried out.",)
    head = (
        "Of a record that was trained on and one that was not, the strongest attack on the model picks the right one in"
    )
    if len(standings) == 1:
        told = [f"{head} {_cases(known[0])} of 100 cases; guessing is 50.", _reading(known[0])]
    else:
        shown = known if len(known) <= _FEW else [known[0], known[-1]]
        ends = "" if len(known) <= _FEW else f" These are the least and the most of {len(known)}."
        cases = listing([f"{_cases(one)} for {one.label}" for one in shown])
        told = [f"{head}, of 100 cases, {cases}; guessing is 50.{ends}"]
        nothing = [one.label for one in known if _may_be_guessing(one)]
        if nothing:
            told.append(f"Nothing was shown for {listing(nothing)}, which is no proof that nothing leaks.")
        missing = [one.label for one in standings if one.leakage is None]
        told += [f"Not measured for {listing(missing)}."] if missing else []
    if any(one.few for one in known):
        whose = "" if len(standings) == 1 else f" for {listing([one.label for one in known if one.few])}"
        told.append(f"So few records were attacked{whose} that it says little.")
    uploads = [one.upload if len(standings) == 1 else f"{one.upload} for {one.label}" for one in known if one.upload]
    if uploads and len(uploads) <= _FEW:
        told.append(f"In what a single site sends, before it is mixed with the others’: {listing(uploads)}.")
    if apart:
        told.append(f"These cannot be compared with one another: {apart}.")
    if any(one.outside for one in known):
        told.append("No ε covers these figures, which come of private records.")
    return tuple(told)


def _cases(one: Standing) -> str:
    """``62 (95 %: 56 to 69)``."""
    assert one.leakage is not None
    between = "" if one.ends is None else f" (95 %: {_hundred(one.ends[0])} to {_hundred(one.ends[1])})"
    return f"{_hundred(one.leakage)}{between}"


def _hundred(share: float) -> str:
    return decimal(100 * share, 0)


def _may_be_guessing(one: Standing) -> bool:
    """Whether chance explains what was found."""
    low = one.leakage if one.ends is None else one.ends[0]
    return low is not None and low <= GUESSING


def _reading(one: Standing) -> str:
    if _may_be_guessing(one):
        return "That may be guessing: nothing was shown, which is no proof that nothing leaks."
    return "That is more than guessing: the model gives away which records it was trained on."


def _audited(rows: Sequence[Row]) -> list[str]:
    """What an audit's strongest attack has found of whatever gives most away."""
    told = []
    for run in [run for run in runs_of(rows) if run.audit and run.audit.models]:
        assert run.audit is not None
        found = [(one, model) for model in run.audit.models for one in model.attacks if one.attack == model.strongest]
        if not found:
            continue
        one, model = max(found, key=lambda pair: pair[0].auc)
        ends = f"{_hundred(one.low)} to {_hundred(one.high)}"
        whose = f" of {run.name}" if len(runs_of(rows)) > 1 else ""
        told.append(
            f"The audit{whose} found most in {TARGETS[model.target]}: {_hundred(one.auc)} of 100 cases (95 %: {ends}), "
            f"by {one.attack}."
        )
    return told


# ---- what is guaranteed ----------------------------------------------------------------------------------------------


def promised(standings: Sequence[Standing]) -> tuple[str, ...]:
    """Which ε holds for whom, and for whom none does."""
    having = [one for one in standings if one.epsilon is not None]
    if len(standings) == 1:
        one = standings[0]
        if one.epsilon is not None:
            return (f"{_epsilon(one)}, whatever the attack.",)
        return (f"Nothing: the ε that was promised is refused ({one.refused}).",) if one.refused else (_NOTHING,)
    if not having:
        refused = [f"{one.label}: {one.refused}" for one in standings if one.refused]
        return (_NOTHING, *([f"Refused: {'; '.join(refused)}."] if refused else []))
    told = [f"{one.label}: {_epsilon(one)}, whatever the attack." for one in having]
    none = [f"{one.label}{f' ({one.refused})' if one.refused else ''}" for one in standings if one.epsilon is None]
    return (*told, *([f"Nothing for {listing(none)}."] if none else []))


def _epsilon(one: Standing) -> str:
    """``ε = 7.900 at δ = 1e-05, for one record (zero-out)``."""
    return f"ε = {bound(one.epsilon or 0.0)}{f' {one.told}' if one.told else ''}"


def _meaning(rows: Sequence[Row]) -> list[str]:
    """Of a single row, what its ε leaves any attack."""
    return [one.words[0] for one in guarantees(rows)] if len(rows) == 1 else []


def _contradicted(rows: Sequence[Row]) -> list[str]:
    """That an audit has shown more than is guaranteed."""
    told = []
    for run in runs_of(rows):
        shown, epsilon = run.last.values.get("audit_epsilon"), run.last.privacy.get("epsilon")
        if shown is not None and epsilon is not None and shown > epsilon:
            told.append(f"Do not rely on it: an audit of {run.name} has shown that ε is {at_least(shown)} or more.")
    return told


# ---- what it cost ----------------------------------------------------------------------------------------------------


def costs(standings: Sequence[Standing], apart: str = "") -> tuple[str, ...]:
    """Bytes and time of a run.

    Args:
        apart: why times cannot be compared from row to row, if they cannot.
    """
    every = {one.label: _cost(one) for one in standings}
    told: tuple[str, ...]
    if len(set(every.values())) == 1:
        told = (f"{next(iter(every.values()))}{', for each of them' if len(every) > 1 else ''}.",)
    elif len(every) <= _FEW:
        told = (f"{'; '.join(f'{label}: {cost}' for label, cost in every.items())}.",)
    else:
        known = sorted((one for one in standings if one.sent is not None), key=lambda one: one.sent or 0.0)
        ends = [f"{_cost(one)} ({one.label})" for one in (known[0], known[-1])] if known else ["not recorded"]
        told = (f"From {' to '.join(ends)}, by what was sent.",)
    return (*told, *([f"Times cannot be compared with one another: {apart}."] if apart else []))


def _cost(one: Standing) -> str:
    sent = "traffic not recorded" if one.sent is None else f"{size(one.sent)} sent{' (expected)' * one.expected}"
    return sent if one.seconds is None else f"{sent}, {duration(one.seconds)}"


# ---- who gains, and the picture --------------------------------------------------------------------------------------


def _gains(rows: Sequence[Row]) -> tuple[str, ...]:
    """By the global model, beside the one before training."""
    first, second, _ = MODELS["global"]
    having = [run for run in runs_of(rows) if run.personal]
    told = [(run.name, Gains.of(run.personal, first, second).words) for run in having]
    return tuple(f"{name}: {words}." if len(rows) > 1 else f"{words}." for name, words in told)


def _apart(rows: Sequence[Row], key: str) -> str:
    """Why a figure cannot be compared from row to row; empty where it can."""
    title = figure(key).title
    return "; ".join(one.what for one in differences(rows) if title in one.figures)


def _picture(rows: Sequence[Row]) -> Picture | None:
    """None where leakage or utility was not measured, or not alike."""
    keys = {utility(row) for row in rows}
    if len(keys) > 1 or any(_apart(rows, key) for key in (*keys, "attack_auc")):
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
    bars = "Upright bars are 95 % intervals over records." + " Small hollow marks are single seeds." * seeds
    return frontier_picture(marks, figure(key), bars)


def _mark(row: Row, key: str) -> Mark | None:
    useful, leaking = row.cells[key], row.cells["attack_auc"]
    if useful.mean is None or leaking.mean is None:
        return None
    ends = [(run.last.values.get(key, nan), run.last.values.get("attack_auc", nan)) for run in row.runs]
    seeds = [(x, y) for x, y in ends if isfinite(x) and isfinite(y)] if len(row.runs) > 1 else []
    return Mark(row.label, row.look, useful.mean, leaking.mean, up=leaking.ends, seeds=seeds)
