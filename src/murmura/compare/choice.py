"""Which arm to take under the user's limits, in sentences that say how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose

from murmura.compare.config import Limits
from murmura.compare.outcome import LEAKAGE, ArmResult, better, compared
from murmura.measure.figure import GUESSING
from murmura.measure.statistics import Difference, with_ends
from murmura.privacy.plan import USELESS
from murmura.report.attacks import unlike
from murmura.report.standing import KNOWN_BEFORE
from murmura.units import bound, count, decimal, listing, several, size


@dataclass(frozen=True)
class Recommendation:
    """What to take.

    Attributes:
        arm: its name; None where no arm keeps the limits.
        sentences: that say so, how sure it is, and what else there was.
    """

    arm: str | None
    sentences: tuple[str, ...]


def choose(results: Sequence[ArmResult], limits: Limits, kind: str) -> Recommendation:
    """Of the arms that keep the limits the one with the best utility, by its mean; of several with the very same what
    leaks least, if all were attacked alike, then what sends least, then the first.

    Args:
        results: arms with finished runs.
        kind: of record that the choice is about; arms about another kind have figures of their own.
    """
    measured = [one for one in results if one.kind == kind]
    broken = {one.arm: broken_limits(one, limits) for one in measured}
    within = [one for one in measured if not broken[one.arm]]
    asked = _asked(limits)
    if not within:
        why = "; ".join(f"{arm}: {listing(reasons)}" for arm, reasons in broken.items())
        return Recommendation(None, (f"No arm {f'keeps {asked}' if asked else 'can be chosen'}. {why}.",))
    best = max(map(_worth, within))
    level = [one for one in within if isclose(_worth(one), best, rel_tol=1e-12)]  # as means of the same shares are
    attacked = _attacked_alike(level)
    merits = [(max(one.most_leakage or 0.0, GUESSING) if attacked else 0.0, one.bytes) for one in level]
    taken = level[merits.index(min(merits))]
    told = [f"{'Under ' + asked + ': ' if asked else 'Best: '}{taken.arm}, {described(taken)}."]
    if same := [one.arm for one in level if one is not taken]:
        by = "the least leakage, then the fewest bytes" if attacked else "the fewest bytes"
        told.append(f"Exactly as good: {listing(same)}. What decided: {by}, then the order in the file.")
    told += _doubts(taken, limits, measured)
    if limits.max_epsilon is not None:
        told += _of_epsilon(taken, [one for one in measured if one.epsilon is not None])
    told += _others(taken, measured, broken, same)
    return Recommendation(taken.arm, tuple(told))


def _attacked_alike(level: Sequence[ArmResult]) -> bool:
    """Whether what arms leak can be compared: every run was attacked, and audits attacked the same in the same ways."""
    audits = list(map(_tried, level))
    return all(len(one.attacked) == len(one.runs) for one in level) and all(one == audits[0] for one in audits)


def _tried(one: ArmResult) -> set[tuple[int, str, str]]:
    """What audits attacked of each seed, and how."""
    return {
        (seed, model.target, attack.attack)
        for seed, run in one.runs.items()
        for model in (run.audit.models if run.audit else ())
        for attack in model.attacks
    }


def broken_limits(one: ArmResult, limits: Limits) -> list[str]:
    """Why an arm cannot be chosen, in words: a seed that led to nothing, or a limit; what was not measured or not
    guaranteed is not kept."""
    found = []
    if one.lacking:
        seeds = f"seed{'s' * (len(one.lacking) > 1)} {listing([str(seed) for seed in one.lacking])}"
        found.append(f"with {seeds} it came to no {one.utility_figure.title.lower()}")
    if limits.max_epsilon is not None:
        if one.epsilon is None:
            found.append(f"it guarantees no ε{f' ({one.unguaranteed})' if one.unguaranteed else ''}")
        elif one.epsilon > limits.max_epsilon:
            found.append(f"its {_promised(one)}")
        elif USELESS in one.caveats:
            found.append(f"its ε guarantees nothing, since δ {USELESS}")
    if limits.max_leakage is not None:
        if one.most_leakage is None:
            found.append("its leakage was not measured (evaluation.attacks)")
        elif one.most_leakage > limits.max_leakage:
            by = " (by an audit)" if one.most_leakage in [audit.auc for audit in one.audits] else ""
            found.append(f"its leakage is {_beyond(one.most_leakage, limits.max_leakage)}{by}")
        elif len(one.attacked) < len(one.runs):
            seeds = f"{len(one.attacked)} of {several(len(one.runs), 'seed')}"
            found.append(f"its leakage was measured with {seeds} (evaluation.attacks, or audit the others)")
    if limits.max_bytes is not None and one.bytes > limits.max_bytes:
        alike = size(one.bytes) == size(limits.max_bytes)
        found.append(_travels(one, f"{count(one.bytes)} bytes" if alike else size(one.bytes)))
    return found


def _beyond(value: float, limit: float) -> str:
    """A value that is larger than a limit, with as many digits as show that."""
    return next(
        (told for told in (decimal(value, digits) for digits in range(3, 9)) if float(told) > limit), str(value)
    )


def described(one: ArmResult) -> str:
    """Utility, leakage by what is the strongest on it, guarantee and bytes of an arm, in a line."""
    assert one.utility is not None
    name = one.utility_figure.title.lower()
    promise = "no ε guaranteed" if one.epsilon is None else _promised(one)
    return f"{name} {one.utility.words}, leakage {_leakage(one)}, {promise}, {_travels(one, size(one.bytes))}"


def _leakage(one: ArmResult) -> str:
    """What attacks in its runs have found, or where there were none, audits."""
    attacked = one.by_strongest
    if attacked.leakage is not None:
        return with_ends(attacked.leakage.mean, attacked.widest(LEAKAGE))
    if one.audits:
        most = max(one.audits, key=lambda audit: audit.auc)
        return f"{with_ends(most.auc, (most.low, most.high))} by an audit"
    return "not measured"


def _travels(one: ArmResult, many: str) -> str:
    return f"{many} travel{' (expected)' * one.hides_cohorts}"


def _promised(one: ArmResult) -> str:
    """Its ε, and for what that is."""
    return f"ε is {bound(one.epsilon or 0.0)}{f' {one.promise}' if one.promise else ''}"


def _asked(limits: Limits) -> str:
    told = []
    if limits.max_epsilon is not None:
        told.append(f"ε at most {limits.max_epsilon:g}")
    if limits.max_leakage is not None:
        told.append(f"leakage at most {limits.max_leakage:g}")
    if limits.max_bytes is not None:
        told.append(f"at most {size(limits.max_bytes)}")
    return listing(told) if told else ""


def _worth(one: ArmResult) -> float:
    return better(one.utility_figure) * one.utility.mean if one.utility else float("-inf")


def _doubts(taken: ArmResult, limits: Limits, measured: Sequence[ArmResult]) -> list[str]:
    """What the choice itself is not sure of."""
    told = []
    if len(taken.runs) == 1:
        told.append("One seed cannot show how sure that is: give more (--seeds).")
    most = taken.leakage_at_most
    if limits.max_leakage is not None and most is not None and most > limits.max_leakage:
        reach = _beyond(most, limits.max_leakage)
        whose = " of an audit" if most in [audit.high for audit in taken.audits] else ""
        told.append(f"That its leakage keeps the limit is not certain: the 95 % interval{whose} reaches to {reach}.")
    if limits.max_leakage is not None and unlike(list(taken.runs.values())):
        told.append(f"It may leak more than what was measured, or less: {KNOWN_BEFORE}.")
    own, most = len(taken.audited), max(len(one.audited) for one in measured)
    if limits.max_leakage is not None and own < most:
        was = f"audited with {several(own, 'seed')}, and others with {most}" if own else "not audited, and others were"
        told.append(f"It was {was}: an audit may find more.")
    elif limits.max_leakage is not None and any(_ways(one) - _ways(taken) for one in measured):
        told.append("It was audited by fewer attacks than others: more may be found.")
    if limits.max_bytes is not None and taken.hides_cohorts:
        secret = "ε counts on nobody knowing whom rounds asked"
        told.append(f"Its bytes are what is to be expected, since {secret}: a run may send more.")
    if taken.edge:
        told.append(f"Its rate, {taken.rate:g}, is the last that was tried on its side: one beyond may be better.")
    return told


def _ways(one: ArmResult) -> set[str]:
    """By which attacks audits looked at its models, which limits are about, and not at single uploads."""
    return {attack for _, target, attack in _tried(one) if target != "uploads"}


def _of_epsilon(taken: ArmResult, promising: Sequence[ArmResult]) -> list[str]:
    """What a limit on ε does not see: whom each protects, and what is beside it."""
    told = [f"Of its ε: {taken.caveats}"] if taken.caveats else []
    if len({one.promise for one in promising}) > 1:
        whose = listing([f"{one.arm}’s is {one.promise}" for one in promising])
        told.append(f"The limit is held against ε that are on no common scale: {whose}.")
    return told


def _others(
    taken: ArmResult, measured: Sequence[ArmResult], broken: Mapping[str, list[str]], same: Sequence[str]
) -> list[str]:
    """What is better but not allowed, what cannot be told apart, and what is worse; of those that are exactly the same
    that is told already."""
    against = compared(measured, taken.arm, taken.utility_figure.key, picked=True)
    leaking = compared(measured, taken.arm, LEAKAGE, picked=True, least=GUESSING)
    sign, told, worse = better(taken.utility_figure), [], []
    alike, single = list[str](), list[str]()
    for one in sorted(measured, key=_worth, reverse=True):
        if one.arm in (taken.arm, *same) or one.arm not in against:
            continue
        far = against[one.arm]
        ahead = sign * far.estimate.mean > 0
        if ahead and far.shown:
            told.append(f"{one.arm} is better by {far.size}, but {listing(broken[one.arm])}.")
        elif far.shown:
            worse.append(one.arm)
        else:
            reasons = f"; {listing(broken[one.arm])}" if broken[one.arm] else _leaks_less(leaking.get(one.arm))
            (single if far.p is None else alike).append(f"{one.arm} (difference {far.words}{reasons})")
    if alike:
        why = "Of these p is corrected for all pairs of arms, since the best was picked; intervals are not."
        told.append(f"Not told apart from it: {'; '.join(alike)}. {why}")
    if single:
        told.append(f"Not compared with it, since one seed alone is in common: {'; '.join(single)}.")
    if worse:
        told.append(f"Worse than it: {listing(worse)}.")
    return told


def _leaks_less(far: Difference | None) -> str:
    return f"; leaks less by {far.size}" if far and far.shown and far.estimate.mean < 0 else ""
