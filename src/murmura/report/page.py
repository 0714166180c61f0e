"""The page: everything is put into words here, so that the template only arranges it."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from murmura.measure import catalogue
from murmura.measure.catalogue import exposure_by_chance, measured
from murmura.measure.figure import Figure
from murmura.report import about, audited, augmented, cost, evolved, pictures
from murmura.report.comparison import differences
from murmura.report.confusion import confusions
from murmura.report.disclosure import partly, released
from murmura.report.noted import noted
from murmura.report.promise import promises_of, terms
from murmura.report.style import Style, style
from murmura.report.table import OUTSIDE, Cell, Row, alone, columns, kinds, promises_privacy, secrets, table
from murmura.report.unsaved import unsaved
from murmura.report.writing import replacing
from murmura.runs.record import RunRecord
from murmura.tasks import TASKS
from murmura.units import DASH, at_least, bound, count, decimal, duration, listing

T = TypeVar("T")
_COUNTED = ("Records", "Used", "Shortened", "Dropped")  # of each site
_MANY_SITES = 12
ATTACKED = ("attack_auc", "upload_auc", "memorisation")
_MANY_EVENTS = 12


def write(records: Sequence[RunRecord], out: Path) -> Path:
    """Write one self-contained HTML page about one or several runs, side by side.

    Args:
        records: As ``runs.read_all`` gives them.
        out: The page. It is replaced in one step, so that a reader never sees half of it.

    Raises:
        CheckpointError: The page cannot be written, or a run is about an unknown kind of record.
    """
    page = render(records)
    with replacing(out, "the page", "--out") as stream:
        stream.write(page)
    return out


def render(records: Sequence[RunRecord]) -> str:
    """The page as text: the same records give the same characters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("murmura.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawing"] = Markup  # only ever applied to our own SVG
    rows = table(records)
    releases, differing = released(rows), differences(rows)
    promised = promises_of(rows)
    return environment.get_template("page.html.j2").render(
        dash=DASH,
        several=len(rows) > 1,
        head=_head(rows, records),
        columns=[(figure.title, figure.meant(kinds(rows))) for figure in columns(rows)],
        differing=[(one.words, one.figures) for one in differing],
        incomparable={title for one in differing for title in one.figures},
        attacked=any(row.series(key) for row in rows for key in ATTACKED),
        whole=" or ".join(TASKS[kind].whole for kind in kinds(rows)),
        noted=noted(rows),
        rows=[_row(row, style(position), columns(rows)) for position, row in enumerate(rows)],
        many_seeds=any(len(row.runs) > 1 for row in rows),
        trade_offs=pictures.trade_offs(rows),
        curves=pictures.curves(rows),
        still=pictures.still(rows),
        confusions=confusions(rows),
        releases=releases,
        without_dp=_positions(one.rows for one in releases if one.entries is not None and not one.differential),
        with_dp=_positions(one.rows for one in releases if one.differential),
        partly=partly(rows, releases),
        alone=alone(rows),
        secrets=secrets(rows),
        outside=[one.title for one in columns(rows) if any(OUTSIDE in row.cells[one.key].remarks for row in rows)],
        guarantees=_distinct((run for run in records if run.last.privacy), _guarantee),
        terms=terms(records),
        meanings=[(one.label, one.words) for one in promised],
        promising=[one.position for one in promised],
        guaranteed=[*pictures.guaranteed(promised), *pictures.held_against(rows)],
        augmented=augmented.augmented(records),
        augmented_meaning=augmented.MEANING,
        compared=augmented.compared(records),
        evolved=evolved.evolved(records),
        evolved_meaning=evolved.MEANING,
        by_texts=evolved.curves(rows),
        cost=cost.cost(rows),
        cost_meaning=cost.MEANING,
        audits=audited.audits(records),
        audit_meaning=audited.MEANING,
        sites=_distinct(records, _sites),
        runs=[about.overview(run) for run in records],
        events=[(run.name, when, event) for run in records for when, event in _events(run)],
        many_events=_MANY_EVENTS,
        configs=_distinct(records, lambda run: run.config),
        environments=_distinct(records, about.environment),
    )


def _head(rows: Sequence[Row], records: Sequence[RunRecord]) -> dict[str, Any]:
    labels = list(dict.fromkeys(row.runs[0].label for row in rows))
    title = listing(labels) if len(labels) <= 4 else f"{len(labels)} methods"
    seeds = sorted({run.seed for run in records if run.seed is not None})
    experiments = [(run, tomllib.loads(run.config)) for run in records]
    engines = [str(told.get("run", {}).get("engine", "local")) for _, told in experiments]
    facts = [
        ("Methods", listing(labels) if len(labels) > 4 else ""),
        ("Model", _unique(run.model for run in records)),
        ("Other models", about.resources(records)),
        ("Data", _unique(about.records(run, told) for run, told in experiments)),
        ("Sites", _unique(_sited(run, told) for run, told in experiments)),
        ("Held-out records", _unique(about.heldout(run, told) for run, told in experiments)),
        ("Read as", _unique(about.shown_as(run, told) for run, told in experiments)),
        ("Records left out", _unique(_left_out(run) for run in records)),
        ("Canaries", _unique(_canaries(run) for run in records) if any(map(_canaries, records)) else ""),
        ("Rounds", _unique((count(run.last.number) for run in records), ", ")),
        ("Options changed", "; ".join(text for run in records for text in _changes(run, len(records) > 1))),
        ("Seed" if len(seeds) < 2 else "Seeds", _unique(seeds, ", ")),
        ("Started", about.started(records)),
        ("Trained", _unique(about.trained(run) for run in records)),
        ("Precision", _unique(about.precision(run) for run in records)),
        ("Engine", _unique(engines, ", ") if set(engines) != {"local"} else ""),
        ("Machine", _unique(about.machine(run) for run in records)),
        ("Software", _unique(about.software(run) for run in records)),
    ]
    facts = [fact for fact in facts if fact[1]]
    return {
        "title": title,
        "facts": facts,
        "unfinished": [run.name for run in records if not run.finished],
        "unsaved": unsaved(records),
        "audited": [run.name for run in records if _canaries(run)],
    }


def _sited(run: RunRecord, experiment: Mapping[str, Any]) -> str | None:
    """How many sites there are, and how the records became theirs."""
    number = "" if run.sites is None else count(len(run.sites))
    return ", ".join(part for part in (number, about.shared_out(experiment)) if part) or None


def _canaries(run: RunRecord) -> str | None:
    """How many random secrets an audit wrote into the sites' records, and what chance gives; None where it wrote
    none."""
    found = sum(one.canaries for one in run.sites or ())
    if not found:
        return None
    told = f"{count(found)} random secrets among the sites’ records"
    candidates = tomllib.loads(run.config).get("audit", {}).get("candidates")
    if not candidates:
        return told
    chance = f"{decimal(exposure_by_chance(candidates), 2)} of {decimal(math.log2(candidates), 2)} bits"
    return f"{told}, each one of {count(candidates)} that it could be: by chance, exposure is {chance}"


def _row(row: Row, look: Style, shown: Sequence[Figure]) -> dict[str, Any]:
    """A row of the table with all that belongs to the same method further down the page."""
    cells = []
    for figure in shown:
        cell, before = row.cells[figure.key], row.before(figure.key)
        small = [
            cell.spread(figure),
            *cell.interval().split(", "),
            cell.together,
            cell.guessing(figure),
            f"{cell.n} of {len(row.runs)} seeds" if 0 < cell.n < len(row.runs) else "",
            "" if figure.total or before.mean is None else f"before {before.value(figure)}",
            "expected" if any(figure.key in run.last.expected for run in row.runs) else "",
        ]
        cells.append({"title": figure.title, "value": cell.value(figure), "small": [text for text in small if text]})
    return {
        "label": row.label,
        "remark": row.remark,
        "state": row.state,
        "look": look,
        "cells": cells,
        "phases": _phases(row),
        "counts": _counts(row),
        "answers": _answers(row),
        "numbers": [_numbers(run) for run in row.runs],
    }


def _phases(row: Row) -> list[dict[str, str]]:
    """Seconds of each phase, longest first; ``other`` is what the phases leave of the wall time."""
    totals = _mean_totals(row, lambda one: one.seconds)
    wall = row.cells["wall"].mean
    other = (wall or 0.0) - sum(totals.values())
    if totals and wall and other > 0.005 * wall:
        totals["other"] = other
    whole = sum(totals.values())
    order = sorted(totals, key=lambda name: (name == "other", -totals[name]))
    return [
        {"name": name, "value": duration(totals[name]), "share": f"{100 * totals[name] / whole:.1f}" if whole else "0"}
        for name in order
    ]


def _counts(row: Row) -> list[tuple[str, list[dict[str, str]]]]:
    """Counts by reason, most frequent first, under the part of the key before the first dot."""
    totals = _mean_totals(row, lambda one: one.counts)
    groups: dict[str, dict[str, float]] = {}
    for key, value in totals.items():
        head, _, reason = key.partition(".")
        groups.setdefault(head, {})[(reason or head).replace("_", " ")] = value
    return [
        (
            head.replace("_", " "),
            [
                {"name": name, "value": count(value), "share": f"{100 * value / max(1.0, *group.values()):.1f}"}
                for name, value in sorted(group.items(), key=lambda item: -item[1])
            ],
        )
        for head, group in groups.items()
    ]


def _answers(row: Row) -> list[tuple[str, list[dict[str, str]]]]:
    """Of each benchmark how many answers met which rejection after the last round, in means over the runs."""
    told = [run.last.answers for run in row.runs]
    return [
        (catalogue.figure(name).name, _bars(_means([one[name] for one in told if name in one])))
        for name in dict.fromkeys(name for one in told for name in one)
    ]


def _means(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    keys = dict.fromkeys(key for one in tables for key in one)
    return {key: Cell.of([one.get(key, 0.0) for one in tables]).mean or 0.0 for key in keys}


def _bars(counts: Mapping[str, float]) -> list[dict[str, str]]:
    """Counts that are not 0, most frequent first, each as its share of all in percent."""
    total = max(1.0, sum(counts.values()))
    return [
        {"name": name, "value": count(value), "share": f"{100 * value / total:.1f}"}
        for name, value in sorted(counts.items(), key=lambda item: -item[1])
        if value
    ]


def _mean_totals(row: Row, part: Callable[[Any], Mapping[str, float]]) -> dict[str, float]:
    """Sum over the rounds, mean over the runs that have the key."""
    sums: dict[str, list[float]] = {}
    for run in row.runs:
        keys = dict.fromkeys(key for one in run.rounds for key in part(one))
        for key in keys:
            sums.setdefault(key, []).append(sum(part(one).get(key, 0.0) for one in run.rounds))
    return {key: Cell.of(values).mean or 0.0 for key, values in sums.items()}


def _numbers(run: RunRecord) -> dict[str, Any]:
    """Every figure of every round: the pictures for those who cannot see them, and what has no picture."""
    shown, promised = measured({key: None for one in run.rounds for key in one.values}), promises_privacy([run])
    return {
        "run": run.name,
        "titles": [
            f"{figure.title} ({OUTSIDE})" if figure.of_members and promised else figure.title for figure in shown
        ],
        "rounds": [(one.number, [figure.words(one.row) for figure in shown]) for one in run.rounds],
    }


def _guarantee(run: RunRecord) -> dict[str, str | None]:
    """What is guaranteed after the last round, in words."""
    told = run.last.privacy
    keys = ("unit", "adjacency", "accountant", "plan", "refused", "caveat")
    words = {key: str(told[key]) for key in keys if told.get(key)}
    writers: dict[str, Callable[[float], str]] = {"epsilon": bound, "delta": "{:g}".format, "claimed_per_step": bound}
    numbers = {key: write(told[key]) for key, write in writers.items() if told.get(key) is not None}
    return {
        **dict.fromkeys(("refused", "caveat", "epsilon", "claimed_per_step", "accountant")),
        **words,
        **numbers,
        "audit": _audit(run),
    }


def _audit(run: RunRecord) -> str | None:
    """The ε that an audit with canaries has shown after the last round, in words; None where there was none."""
    told = run.last.values
    if "audit_epsilon" not in told:
        return None
    least, most = at_least(told["audit_epsilon"]), at_least(told["audit_most"])
    right, guesses, coins = (count(told[f"audit_{name}"]) for name in ("right", "guesses", "coins"))
    words = f"{least} or more by the audit: {right} of {guesses} guesses right, {coins} coins, which can show {most}"
    contradicts = run.last.values.get("epsilon", math.inf) < told["audit_epsilon"]
    return f"{words}. More than is guaranteed: do not rely on it" if contradicts else words


def _sites(run: RunRecord) -> dict[str, Any] | None:
    if run.sites is None:
        return None
    rows = [(one.site, (one.records, one.used, one.truncated, one.dropped)) for one in run.sites]
    known = [(site, [number for number in numbers if number is not None]) for site, numbers in rows]
    if any(len(numbers) < len(_COUNTED) for _, numbers in known):
        return {"named": listing([site for site, _ in known]), "many": len(known) > _MANY_SITES, "count": len(known)}
    return {
        "named": "",
        "rows": [(site, [count(number) for number in numbers]) for site, numbers in known],
        "sums": [count(sum(column)) for column in zip(*(numbers for _, numbers in known), strict=True)],
        "many": len(run.sites) > _MANY_SITES,
    }


def _left_out(run: RunRecord) -> str | None:
    """Records used neither for training nor for measuring, in words; None where that was not recorded or is
    not told."""
    if run.exclusions is None:
        return None
    numbers = asdict(run.exclusions)
    names = {
        "bad": "bad",
        "overlap": "also at a site",
        "heldout": "held-out ones too long",
        "nonmembers": "non-members too long",
    }
    told = [f"{count(numbers[key])} {name}" for key, name in names.items() if numbers[key]]
    return ", ".join(told) or (None if run.exclusions.bad is None else "none")


def _events(run: RunRecord) -> list[tuple[str, str]]:
    """When and what, in the order of the rounds."""
    told = [(one.number, f"round {one.number}", event) for one in run.rounds for event in one.events]
    told += [(one.after, f"after round {one.after}", event) for one in run.resumed for event in one.events]
    return [(when, event) for _, when, event in sorted(told, key=lambda one: one[0])]


def _changes(run: RunRecord, several: bool) -> list[str]:
    """Options that were not the same in all rounds."""
    of = f" of {run.name}" if several else ""
    return [
        f"{key}{of} after round {one.after}, from {_option(before)} to {_option(now)}"
        for one in run.resumed
        for key, (before, now) in one.changed.items()
    ]


def _option(value: Any) -> str:
    return "none" if value is None else str(value)


def _positions(groups: Iterable[tuple[int, ...]]) -> list[int]:
    return sorted({position for group in groups for position in group})


def _unique(values: Iterable[object], separator: str = "; ") -> str:
    """The different values, in order; a dash where there is none."""
    known = dict.fromkeys(str(value) for value in values if value is not None)
    return separator.join(known) if known else DASH


def _distinct(records: Iterable[RunRecord], part: Callable[[RunRecord], T]) -> list[tuple[T, list[str]]]:
    """What runs have in common is shown once: each different value with the names of its runs."""
    found: dict[Hashable, tuple[T, list[str]]] = {}
    for run in records:
        value = part(run)
        found.setdefault(repr(value), (value, []))[1].append(run.name)
    return list(found.values())
