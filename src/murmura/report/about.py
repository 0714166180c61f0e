"""What a run was made with and how far it is, in words: model, machine, versions, times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import PurePath
from typing import Any

from murmura.resources import full_name
from murmura.runs.record import RunRecord
from murmura.runs.schema import OtherModel
from murmura.units import DASH, count, listing, size


def overview(run: RunRecord) -> dict[str, str]:
    """What a run is called, and how far it is."""
    of = "" if run.planned is None or run.finished else f" of {run.planned}"
    return {
        "name": run.name,
        "label": run.label,
        "seed": DASH if run.seed is None else str(run.seed),
        "model": run.model or DASH,
        "rounds": f"{run.last.number}{of}",
        "state": "finished" if run.finished else "unfinished",
    }


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


def resources(runs: Sequence[RunRecord]) -> str:
    """Models that the runs used besides the base, and where; each once, whatever for."""
    told = [_resource(one) for run in runs if run.environment for one in run.environment.resources]
    return listing(list(dict.fromkeys(told))) if told else ""


def _resource(told: OtherModel) -> str:
    size = f"{count(told.parameters)} parameters, " if told.parameters else ""
    return f"{told.name} ({told.kind}, {size}{told.place})"


def records(run: RunRecord, experiment: Mapping[str, Any]) -> str:
    """Which records the sites have: the name of a file, a folder or a data set; of a path its end, which says enough
    for people."""
    train = experiment.get("data", {}).get("train")
    return _place(train) if train else DASH


def shared_out(experiment: Mapping[str, Any]) -> str:
    """How these became sites."""
    sites = experiment.get("data", {}).get("sites", {})
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


def heldout(run: RunRecord, experiment: Mapping[str, Any]) -> str:
    """On which records the model is measured."""
    data = experiment.get("data", {})
    drawn = data.get("heldout_records")
    number = run.measured.heldout.count if run.measured else drawn
    told = f"{count(number)} of {_place(data['heldout'])}" if number and data.get("heldout") else ""
    told = told or (f"{count(number)} taken out of {records(run, experiment)}" if number else "")
    told = told or (_place(data["heldout"]) if data.get("heldout") else DASH)
    return f"{told}, drawn with seed {run.seed}" if drawn else told


def nonmembers(run: RunRecord, experiment: Mapping[str, Any]) -> str:
    """With which records attacks compare members."""
    own = experiment.get("data", {}).get("nonmember_records")
    if not own:
        return heldout(run, experiment)
    return f"{count(own)} taken out of {records(run, experiment)}, drawn with seed {run.seed}"


def questions(run: RunRecord, _: Mapping[str, Any]) -> str:
    """How many questions of other kinds were asked."""
    return DASH if run.measured is None else count(run.measured.questions.count)


def shown_as(run: RunRecord, experiment: Mapping[str, Any]) -> str:
    """As what text, and how much of it, the model sees a record."""
    data = experiment.get("data", {})
    if "max_length" not in data:
        return DASH
    most = f"{count(data['max_length'])} tokens at most"
    return f"template ‘{data.get('template')}’, {most}" if run.kind == "instruction" else most


def _place(source: str) -> str:
    """A path's last two names; an id of a data set has no more."""
    return "/".join(PurePath(source).parts[-2:])


def machine(run: RunRecord) -> str | None:
    """Device, cores and system."""
    if run.environment is None:
        return None
    cores = run.environment.cpu_count
    parts = [
        run.environment.device,
        f"{cores} CPU core{'' if cores == 1 else 's'}" if cores else "",
        run.environment.platform,
    ]
    return ", ".join(part for part in parts if part)


def trained(run: RunRecord) -> str | None:
    """How much of the model trains, and where; of what sites train, what that saves in bytes sent."""
    if run.environment is None:
        return None
    whole, part = run.environment.parameters, run.environment.trained
    if not part:
        return f"none of {count(whole)} parameters"
    share = 100 * part / whole
    what = f"all {count(whole)} parameters"
    if part < whole:
        what = f"{count(part)} of {count(whole)} parameters ({share:.3g} %)"
    if run.environment.trained_at == "server":
        return f"{what}, at the server"
    return f"{what}, {size(4 * part)} a message" + (f", not {size(4 * whole)}" if part < whole else "")


def precision(run: RunRecord) -> str | None:
    """In which numbers frozen weights were multiplied."""
    if run.environment is None or run.environment.training_precision is None:
        return None
    return f"{run.environment.training_precision} in training, {run.environment.writing_precision} in writing"


def software(run: RunRecord) -> str | None:
    """Versions of Murmura, PyTorch and Python."""
    if run.environment is None:
        return None
    own, torch = run.environment.murmura, run.environment.torch
    return ", ".join(([f"Murmura {own}"] if own else []) + [f"PyTorch {torch}", f"Python {run.environment.python}"])


def started(records: Sequence[RunRecord]) -> str:
    """When, from the first of the runs to the last."""
    times = sorted(run.environment.started for run in records if run.environment)
    if not times:
        return DASH
    first, last = _moment(times[0]), _moment(times[-1])
    return first if first == last else f"{first} to {last}"


def _moment(text: str) -> str:
    """``2025-11-21T09:17:03+00:00`` -> ``21 November 2025, 09:17 UTC``; other texts as they are."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{moment.day} {moment:%B %Y, %H:%M} {moment.tzname() or ''}".strip()
