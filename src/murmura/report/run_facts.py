"""What runs were made with, in words: model, data, machine, versions, times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from math import log2
from pathlib import PurePath
from typing import Any

from murmura.measure.catalogue import exposure_by_chance
from murmura.report.table import Row, runs_of
from murmura.resources import full_name
from murmura.runs.record import RunRecord
from murmura.runs.schema import DEPLOYED, Environment, OtherModel
from murmura.units import DASH, count, decimal, listing, several

_IN_TITLE = 4  # labels at most


def facts(rows: Sequence[Row]) -> dict[str, str]:
    """The head of the page, by name; what no run tells is left out."""
    runs = runs_of(rows)
    labels = list(dict.fromkeys(row.runs[0].label for row in rows))
    seeds = sorted({run.seed for run in runs if run.seed is not None})
    machines = [run.environment for run in runs if run.environment]
    others = list(dict.fromkeys(_resource(one) for told in machines for one in told.resources))
    engines = dict.fromkeys(str(run.options.get("run", {}).get("engine", "local")) for run in runs)
    every = {
        "Methods": listing(labels) if len(labels) > _IN_TITLE else "",
        "Model": _unique(run.model for run in runs),
        "Other models": listing(others) if others else "",
        "Data": _unique(map(records, runs)),
        "Sites": _unique(map(_sites, runs)),
        "Held-out records": _unique(map(heldout, runs)),
        "Read as": _unique(map(_shown_as, runs)),
        "Records left out": _unique(map(_left_out, runs)),
        "Canaries": _unique(map(canaries, runs)) if any(map(canaries, runs)) else "",
        "Rounds": _unique((count(run.last.number) for run in runs), ", "),
        "Options changed": "; ".join(text for run in runs for text in _changes(run, len(runs) > 1)),
        "Seed" if len(seeds) < 2 else "Seeds": _unique(seeds, ", "),
        "Started": _started(machines),
        "Trained": _unique(map(_trained, machines)),
        "Precision": _unique(map(_precision, machines)),
        "Engine": ", ".join(engines) if set(engines) != {"local"} else "",
        "Machine": _unique(map(machine, machines)),
        "Software": _unique(map(software, machines)),
    }
    return {name: value for name, value in every.items() if value}


def title(rows: Sequence[Row]) -> str:
    """The methods, or how many they are."""
    labels = list(dict.fromkeys(row.runs[0].label for row in rows))
    return listing(labels) if len(labels) <= _IN_TITLE else f"{len(labels)} methods"


def _unique(values: Iterable[object], separator: str = "; ") -> str:
    """The different values, in order; a dash where there is none."""
    known = dict.fromkeys(str(value) for value in values if value is not None)
    return separator.join(known) if known else DASH


def _sites(run: RunRecord) -> str | None:
    """How many sites there are, which of them answered nothing, and how the records became theirs."""
    number = "" if run.sites is None else count(len(run.sites))
    if number and run.silent:
        there = count(len(run.sites or ()) - len(run.silent))
        number = f"{there} of {number} took part; {listing(list(run.silent))} answered nothing"
    return ", ".join(part for part in (number, _shared_out(run)) if part) or None


def canaries(run: RunRecord) -> str | None:
    """How many random secrets an audit wrote into the sites' records, and what chance gives; None where it wrote
    none."""
    found = sum(one.canaries for one in run.sites or ())
    if not found:
        return None
    told = f"{count(found)} random secrets among the sites’ records"
    candidates = run.options.get("audit", {}).get("candidates")
    if not candidates:
        return told
    chance = f"{decimal(exposure_by_chance(candidates), 2)} of {decimal(log2(candidates), 2)} bits"
    return f"{told}, each one of {count(candidates)} that it could be: by chance, exposure is {chance}"


def _left_out(run: RunRecord) -> str | None:
    """Records used neither for training nor for measuring; None where that was not recorded or is not told."""
    found = run.exclusions
    if found is None:
        return None
    numbers = {
        "bad": found.bad,
        "also at a site": found.overlap,
        "held-out ones too long": found.heldout,
        "too long to be shared out": found.train,
    }
    told = [f"{count(number)} {name}" for name, number in numbers.items() if number]
    return ", ".join(told) or (None if found.bad is None else "none")


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


def environment(run: RunRecord) -> list[tuple[str, str]] | None:
    """All of it, by name; None where it was not written."""
    if run.environment is None:
        return None
    lines: list[tuple[str, str]] = []
    for key, value in asdict(run.environment).items():
        if key == "resources":
            lines.extend((full_name(one["option"]), str(one["source"])) for one in value)
        elif isinstance(value, Mapping):
            lines.extend((str(name), str(inner)) for name, inner in value.items())
        else:
            lines.append((str(key).replace("_", " "), DASH if value is None else str(value)))
    return [line for line in lines if line[0] != "started"]  # differs between runs that are otherwise alike


def _resource(told: OtherModel) -> str:
    """A model that is used besides the base, and where."""
    size = f"{count(told.parameters)} parameters, " if told.parameters else ""
    return f"{told.name} ({told.kind}, {size}{told.place})"


def records(run: RunRecord) -> str:
    """Which records the sites have: the name of a file, a folder or a data set; of a path its end, which says enough
    for people."""
    train = run.options.get("data", {}).get("train")
    return place(train) if train else DASH


def _shared_out(run: RunRecord) -> str:
    """How these became sites; empty where sites are on machines of their own, which only they know."""
    if run.options.get("run", {}).get("engine") == DEPLOYED:
        return ""
    sites = run.options.get("data", {}).get("sites", {})
    match sites.get("by"):
        case "file":
            how = "a file each"
        case "column":
            how = f"by the column ‘{sites.get('column')}’"
        case "partition" if sites.get("scheme") == "iid":
            how = "shared out at random"
        case "partition":
            how = f"shared out by a Dirichlet distribution, α = {sites.get('alpha'):g}"
        case _:
            return ""
    most = sites.get("records")
    return f"{how}, {count(most)} records at most" if most else how


def heldout(run: RunRecord) -> str:
    """On which records the model is measured."""
    data = run.options.get("data", {})
    drawn = data.get("heldout_records")
    number = run.measured.heldout.count if run.measured else drawn
    told = f"{count(number)} of {place(data['heldout'])}" if number and data.get("heldout") else ""
    told = told or (f"{count(number)} taken out of {records(run)}" if number else "")
    told = told or (place(data["heldout"]) if data.get("heldout") else DASH)
    return f"{told}, drawn with seed {run.seed}" if drawn else told


def nonmembers(run: RunRecord) -> str:
    """With which records attacks compare members."""
    own = run.options.get("data", {}).get("nonmember_records")
    if not own:
        return heldout(run)
    return f"{count(own)} taken out of {records(run)}, drawn with seed {run.seed}"


def questions(run: RunRecord) -> str:
    """How many questions of other kinds were asked."""
    return DASH if run.measured is None else count(run.measured.questions.count)


def _shown_as(run: RunRecord) -> str:
    """As what text, and how much of it, the model sees a record."""
    data = run.options.get("data", {})
    if "max_length" not in data:
        return DASH
    most = f"{count(data['max_length'])} tokens at most"
    return f"template ‘{data.get('template')}’, {most}" if run.kind in ("instruction", "preference") else most


def place(source: str) -> str:
    """A path's last two names, which say enough for people; an id of a data set has no more."""
    return "/".join(PurePath(source).parts[-2:])


def machine(told: Environment) -> str:
    """Device, cores and system."""
    cores = told.cpu_count
    parts = (told.device, several(cores, "CPU core") if cores else "", told.platform)
    return ", ".join(part for part in parts if part)


def _trained(told: Environment) -> str:
    """How much of the model trains, and where; what of that is sent is counted under “What left the sites”."""
    whole, part = told.parameters, told.trained
    if not part:
        return f"none of {count(whole)} parameters"
    some = f"{count(part)} of {count(whole)} parameters ({100 * part / whole:.3g} %)"
    what = some if part < whole else f"all {count(whole)} parameters"
    return f"{what}, at the server" if told.trained_at == "server" else what


def _precision(told: Environment) -> str:
    """In which numbers frozen weights were multiplied."""
    return f"{told.training_precision} in training, {told.writing_precision} in writing"


def software(told: Environment) -> str:
    """Versions of Murmura, of what other packages bring, of PyTorch and Python."""
    own = [f"Murmura {told.murmura}"] if told.murmura else []
    brought = [f"{package} ({what})" for what, package in told.brought.items()]
    return ", ".join([*own, *brought, f"PyTorch {told.torch}", f"Python {told.python}"])


def _started(environments: Sequence[Environment]) -> str:
    """When, from the first of the runs to the last."""
    times = sorted(told.started for told in environments)
    if not times:
        return DASH
    first, last = _moment(times[0]), _moment(times[-1])
    return first if first == last else f"{first} to {last}"


def _moment(text: str) -> str:
    """``2025-11-21T09:17:03+00:00`` -> ``21 November 2025, 09:17 UTC``; a day alone without a time; other texts as they
    are."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    told = f"{moment.day} {moment:%B %Y}"
    return f"{told}, {moment:%H:%M} {moment.tzname() or ''}".strip() if "T" in text else told
