"""What to know before trusting what a comparison has found, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from murmura.compare.alike import made_unlike, on_other_records
from murmura.compare.arms import Candidate
from murmura.compare.config import CompareConfig
from murmura.compare.outcome import ArmResult
from murmura.data.config import DataConfig
from murmura.errors import MurmuraError
from murmura.privacy import odometer, run_ledgers
from murmura.privacy.run_ledgers import RunLedgers
from murmura.report.standing import untried
from murmura.units import listing


def remarks(results: Sequence[ArmResult], kind: str, config: CompareConfig, arms: Sequence[Candidate]) -> list[str]:
    """All that there is to know.

    Args:
        results: arms with a finished run.
        kind: of record that the choice is about.
        config: options of the comparison.
        arms: all of them.
    """
    guaranteed = any(one.epsilon is not None for one in results)
    return [
        *_of_runs(results),
        *_of_records(results, kind),
        *_of_attacks(results, kind),
        *made_unlike(results),
        *_of_rates(results, config, arms),
        *(_outside(arms[0].experiment.data) if guaranteed else ()),
    ]


def _of_runs(results: Sequence[ArmResult]) -> list[str]:
    """Runs that tell too little, are not there, or did not go as planned."""
    told = []
    if behind := [one.arm for one in results if one.epsilon is not None and _is_behind(one)]:
        told.append(
            f"Runs of {listing(behind)} were made before some of what was searched, or by an earlier version: ε on "
            "their own pages and cards counts less than it does here."
        )
    if lacking := [one.arm for one in results if one.lacking]:
        told.append(f"Of {listing(lacking)} some seed came to nothing: its mean may be too good, and it is not chosen.")
    return told + [words for one in results if (words := _unplanned(one))]


def _of_records(results: Sequence[ArmResult], kind: str) -> list[str]:
    """Arms that read other records, or in another way."""
    told = []
    if others := [one.arm for one in results if one.kind != kind]:
        told.append(f"{listing(others)} read records in another way, and so cannot be compared in utility.")
    return told + on_other_records([one for one in results if one.kind == kind])


def _of_attacks(results: Sequence[ArmResult], kind: str) -> list[str]:
    """Which attack leakage is compared by."""
    alike = [one for one in results if one.kind == kind]
    if not any(one.leakage for one in alike):
        return []
    attacks = alike[0].attacks
    uploads = f" (on single uploads {attacks['upload']})" if "upload" in attacks else ""
    by = (
        f"Leakage is compared by one attack on all arms, {attacks['attack']}{uploads}: that which finds most in them"
        " together. What is said to leak above is by the attack that did best in each run on records set apart for"
        " that, and that may find less on the others."
        if "attack" in attacks
        else "No attack is known to have been tried on all arms, so leakage is by the one that did best in each run:"
        " that choice is a part of the differences."
    )
    return [by, *untried([run for one in results for run in one.runs.values()])]


def _of_rates(results: Sequence[ArmResult], config: CompareConfig, arms: Sequence[Candidate]) -> list[str]:
    """Steps that arms took, and how their rates were found."""
    told = []
    if len({one.steps for one in results if one.steps is not None}) > 1:
        told.append("Arms do not take the same number of optimiser steps: see the table.")
    if any(one.tried for one in results):
        told += _of_searches(results, config, arms)
    elif len({one.rate for one in results}) == 1:
        told.append("All arms trained at one rate, which may suit some of them better than others (--rates).")
    return told


def _of_searches(results: Sequence[ArmResult], config: CompareConfig, arms: Sequence[Candidate]) -> list[str]:
    """What rates were chosen by, and whose were not."""
    data = arms[0].experiment.data
    seeds = "one seed that is" if config.search_seeds == 1 else f"{config.search_seeds} seeds that are"
    same = "were the same" if data.heldout and data.heldout_records is None else "come out of the same ones"
    given = [one.arm for one in results if not one.tried]
    besides = f" but {listing(given)}, whose rate was given," if given else ""
    taken = [f"{arm.name} has that of {arm.rate_of}" for arm in arms if arm.rate_of]
    controls = f" {listing(taken)}, whatever suits it." if taken else ""
    told = [
        f"Each arm{besides} trained at the best of {len(config.rates)} rates, by what it came to with {seeds} in "
        f"no figure here.{controls} Held-out records {same}, so that figures are a little too good, for all arms "
        f"alike{' whose rate was searched' * bool(given)}."
    ]
    own = [one for one in results if one.arm not in {arm.name for arm in arms if arm.rate_of}]
    if lost := [f"{one.arm} at {tried.rate:g}" for one in own for tried in one.tried if tried.utility is None]:
        told.append(f"The search came to nothing for {listing(lost)}: that rate was not among those chosen from.")
    if promising := [one.arm for one in results if one.epsilon is not None and not (one.tried or one.searched)]:
        told.append(f"The ε of {listing(promising)} does not count what its rate was found by.")
    return told


def _unplanned(one: ArmResult) -> str:
    """In how many runs of an arm something went otherwise than planned, and what came first."""
    found = [run.unplanned for run in one.runs.values() if run.unplanned]
    if not found:
        return ""
    when, what = found[0][0]
    events = sum(map(len, found))
    return (
        f"{one.arm}: not all went as planned in {len(found)} of {len(one.runs)} runs (events: {events}). What came "
        f"first ({when}): {what}."
    )


def _is_behind(one: ArmResult) -> bool:
    """Whether some run of an arm has not noted all that the runs have spent which count with it."""
    searched = odometer.every([run_ledgers.found(place) for place in one.searched])
    return any(_unnoted(state, run.folder) for run in one.runs.values() for state in searched)


def _unnoted(state: RunLedgers, folder: Path) -> bool:
    """Whether a run has not noted this state of another; of one that cannot be read any more, no state at all."""
    try:
        noted = run_ledgers.noted(folder)
    except MurmuraError:
        return True
    its = [one for one in noted if (one.id == state.id if state.id else one.name == state.name)]
    return not any(state.is_unknown or state.as_far_as == one.as_far_as for one in its)


def _outside(data: DataConfig) -> list[str]:
    """What no ε of a comparison is about."""
    told = [
        "Each ε is for an arm that was fixed beforehand: it covers that arm's search for a rate and one run. Choosing "
        "among arms by their figures uses private records too, and no ε covers that choice."
    ]
    if data.heldout is None:
        told.append(
            "Held-out records were taken out of private ones, different ones for each seed. No ε covers them, nor the "
            "choice of rates and arms by them: for an ε that holds for every record, give public ones (data.heldout)."
        )
    return told
