"""A run folder as one value, checked while it is read."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from os.path import realpath
from pathlib import Path
from typing import Any

from murmura.errors import CheckpointError
from murmura.runs import files, names
from murmura.runs.audit import Audit
from murmura.runs.augment import PublicSelection
from murmura.runs.evolution import CurvePoint, Generation
from murmura.runs.folder import RunFolder
from murmura.runs.judgement import Judgement, Posted
from murmura.runs.previous import previous_of
from murmura.runs.schema import (
    DEPLOYED,
    Disclosure,
    Environment,
    Evaluation,
    Exclusions,
    MeasuredOn,
    PersonalModel,
    Resumption,
    Round,
    SiteReport,
    Summary,
)

_NO_FIGURES = {"round", *(one.name for one in fields(Round))} - {"number", "values"}
"""What a row of ``metrics.jsonl`` holds besides figures."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What one run folder says; ``None`` wherever the run did not record a thing.

    Attributes:
        folder: Where it was read.
        name: The run's name.
        label: The method, as the run names it (``FewFedPIT β=0.5``), and what it was run with: public records chosen by
            a strategy, secure sums, all parameters trained.
        seed: The run's seed.
        model: The base model.
        planned: Rounds that there are to be, also those in which no site is asked.
        finished: False where the run stopped before its last round.
        kind: The kind of record that the run is about: ``instruction``, ``labelled``, ``preference`` or
            ``document``.
        rounds: The rows of ``metrics.jsonl`` in order, at least one.
        totals: ``bytes_up``, ``bytes_down`` (bytes of the whole run), ``at_sites``, ``wall``
            (s), ``peak_memory`` (bytes).
        sites: What became of each site's records.
        exclusions: How many records nobody uses.
        measured: What it was measured on.
        disclosure: What left the sites, on the machine of the run in rounds too that it has not saved.
        environment: What the run was started on.
        config: The resolved experiment as TOML text.
        resumed: What was different each time that the run was resumed, where anything was.
        audit: What an audit has found.
        personal: What single sites gain by the global model and by their own; empty where none was told to find out.
        evaluation: How good its model is on benchmarks, before and after.
        augment: Which public records sites were given, each time that they were chosen; empty where they never were.
        evolution: Of a finished run in which sites voted, the candidates of each round.
        curve: Of a finished run that makes texts, how good its model is by how many of them it was trained on.
        judged: What judges made of its answers.
        posted: To which servers questions and answers were sent, to be judged there.
        chosen_by: Folders of other runs by which options of this one were chosen, where they were when it began.
        beside: Folders of runs that count with it, whether or not it has noted what they had spent.
        silent: Of a finished run, sites that never took part, where that may be told.
    """

    folder: Path
    name: str
    label: str
    seed: int | None
    model: str | None
    planned: int | None
    finished: bool
    kind: str
    rounds: tuple[Round, ...]
    totals: Mapping[str, float]
    sites: tuple[SiteReport, ...] | None
    exclusions: Exclusions | None
    measured: MeasuredOn | None
    disclosure: tuple[Disclosure, ...] | None
    environment: Environment | None
    config: str
    resumed: tuple[Resumption, ...] = ()
    audit: Audit | None = None
    evaluation: Evaluation | None = None
    augment: tuple[PublicSelection, ...] = ()
    personal: tuple[PersonalModel, ...] = ()
    evolution: tuple[Generation, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    judged: tuple[Judgement, ...] = ()
    posted: tuple[Posted, ...] = ()
    chosen_by: tuple[Path, ...] = ()
    beside: tuple[Path, ...] = ()
    silent: tuple[str, ...] = ()

    @property
    def options(self) -> Mapping[str, Any]:
        """The tables of ``config``, to be read and not to be changed."""
        return _options(self.config)

    @property
    def simulated(self) -> bool:
        """Whether all sites were on the run's own machine."""
        return _simulated(self.options)

    @property
    def hides_cohorts(self) -> bool:
        """Whether it is secret which sites, and how many, a round asked: what travelled is then what is to be
        expected."""
        return any(one.expected for one in self.rounds)

    @property
    def unplanned(self) -> list[tuple[str, str]]:
        """What went otherwise than planned, in rounds and where the run was resumed, in that order: when, and what."""
        found = [(one.number, f"round {one.number}", event) for one in self.rounds for event in one.events]
        found += [(one.after, f"after round {one.after}", event) for one in self.resumed for event in one.events]
        return [(when, event) for _, when, event in sorted(found, key=lambda one: one[0])]

    @property
    def last(self) -> Round:
        """The last round that was recorded."""
        return self.rounds[-1]

    @property
    def before(self) -> Round | None:
        """The model before training, if the run looked at it."""
        return self.rounds[0] if self.rounds[0].number == 0 else None


@lru_cache(maxsize=256)
def _options(config: str) -> Mapping[str, Any]:
    """A report asks for some of a run's options dozens of times, which takes longer to parse than the rest of it."""
    return tomllib.loads(config)


def read(folder: str | Path) -> RunRecord:
    """Read a run folder. A run without ``summary.json`` is an unfinished one.

    Raises:
        CheckpointError: The folder is missing, is not a run, has recorded no round yet, or holds a file that cannot
            be understood; file and line are named.
    """
    folder = Path(folder)
    require_run(folder)
    summary = files.value(folder / names.SUMMARY, Summary)
    config, experiment = _config(folder / names.CONFIG)
    rounds, live = _rounds(folder / names.METRICS), files.state(folder / names.CHECKPOINTS / names.LIVE)
    run, model, method, data = (_section(experiment, name) for name in ("run", "model", "method", "data"))
    if not isinstance(data.get("kind"), str):
        where = str(folder / names.CONFIG)
        raise CheckpointError("it does not say what a record is (data.kind)", where=where, fix=files.REPAIR)
    named = str(summary.method if summary else method.get("name") or folder.resolve().name)
    augment = files.rows(folder / names.AUGMENT, PublicSelection) or ()
    return RunRecord(
        folder=folder,
        name=str(run.get("name") or folder.resolve().name),
        label=_label(named, experiment, augment),
        seed=_integer(run.get("seed")),
        model=str(model["name"]) if "name" in model else None,
        planned=rounds[-1].number if summary else _integer(live.get("rounds") or method.get("rounds")),
        finished=summary is not None,
        kind=data["kind"],
        rounds=rounds,
        totals=_totals(rounds),
        sites=files.rows(folder / names.SITES, SiteReport),
        exclusions=files.value(folder / names.EXCLUSION_COUNTS, Exclusions),
        measured=files.value(folder / names.MEASURED, MeasuredOn),
        disclosure=_disclosed(folder),
        environment=files.value(folder / names.ENVIRONMENT, Environment),
        config=config,
        resumed=files.rows(folder / names.RESUMED, Resumption) or (),
        audit=files.value(folder / names.AUDIT, Audit),
        evaluation=files.value(folder / names.EVALUATION, Evaluation),
        augment=augment,
        personal=files.rows(folder / names.PERSONAL, PersonalModel) or (),
        evolution=files.rows(folder / names.OUTCOMES / names.EVOLUTION, Generation) or (),
        curve=files.rows(folder / names.OUTCOMES / names.CURVE, CurvePoint) or (),
        judged=_judged(folder / names.JUDGED),
        posted=files.rows(folder / names.ENDPOINTS, Posted) or (),
        silent=summary.silent if summary else (),
        chosen_by=tuple(map(Path, run.get("chosen_by", ()))),
    )


def _judged(folder: Path) -> tuple[Judgement, ...]:
    found = (files.value(file, Judgement) for file in sorted(folder.glob("*.json")))
    return tuple(one for one in found if one is not None)


def _label(method: str, experiment: Mapping[str, Any], augment: Sequence[PublicSelection]) -> str:
    """A method with what was run with it that is no option of its own, so that runs with and without do not look
    alike."""
    strategy = augment[-1].strategy if augment else _section(experiment, "augment").get("strategy")
    secure = _section(experiment, "aggregation").get("secure")
    travel = _section(experiment, "aggregation").get("travel") or "float32"
    whole = _section(experiment, "model").get("trainable") == "all"
    return (
        method
        + (f" + {strategy}" if strategy else "")
        + (", secure sums" if secure else "")
        + (f", travels as {travel}" if travel != "float32" else "")
        + (", all parameters" if whole else "")
    )


def _disclosed(folder: Path) -> tuple[Disclosure, ...] | None:
    """What left the sites. A run that stopped may have sent more than it saved: then what its owner's files say."""
    saved = files.rows(folder / names.DISCLOSURE, Disclosure)
    try:
        sent = RunFolder(folder).sent()
        rows = tuple(Disclosure(**row) for row in sent.get("told", sent["ledger"])["rows"] if row["messages"])
    except (LookupError, TypeError, AttributeError):  # not here, or torn by a failure of power
        return saved
    return max(saved or (), rows, key=lambda table: sum(row.messages for row in table))


def read_all(folders: Sequence[str | Path]) -> list[RunRecord]:
    """``read`` for several folders, in order; one that is given twice is read once.

    Runs that have the same name are called by their folders.

    Raises:
        CheckpointError: As ``read``, or no folder is given.
    """
    if not folders:
        raise CheckpointError("no run folder is given", fix="Give one or more folders that `murmura run` wrote.")
    unique = {realpath(folder): folder for folder in folders}
    records = [read(folder) for folder in unique.values()]
    shared = Counter(run.name for run in records)
    return [run if shared[run.name] == 1 else replace(run, name=str(run.folder)) for run in records]


def require_run(folder: Path) -> None:
    """Refuse what is not a run folder, with a hint to the runs that lie inside it.

    Raises:
        CheckpointError: it is none, or none of whose rounds is recorded.
    """
    if not folder.is_dir():
        fix = "Give a folder that `murmura run` wrote."
        raise CheckpointError("there is no such run folder", where=str(folder), fix=fix)
    if (folder / names.METRICS).is_file():
        return
    if (folder / names.SUMMARY).is_file():
        raise CheckpointError(f"{names.METRICS} is missing from the run", where=str(folder), fix=files.REPAIR)
    if (folder / names.CONFIG).is_file():
        raise _without_round(folder)
    inside = sorted(path.parent.name for path in folder.glob(f"*/{names.METRICS}"))
    hint = f"Runs inside it: {', '.join(inside[:5])}{', ...' if len(inside) > 5 else ''}." if inside else ""
    what = f"this is not a run folder (no {names.METRICS}, no {names.SUMMARY})"
    raise CheckpointError(what, where=str(folder), fix=hint or "Give a folder that `murmura run` wrote.")


def resuming(folder: Path) -> str:
    """The command that goes on with a run.

    Args:
        folder: of a run whose ``config.toml`` can be read; of another, a simulation is assumed.
    """
    try:
        _, experiment = _config(folder / names.CONFIG)
    except CheckpointError:
        experiment = {}
    return f"`murmura {'run ...' if _simulated(experiment) else 'serve FEDERATION'} --resume`"


def _without_round(folder: Path) -> CheckpointError:
    previous = f" The previous run is in {previous_of(folder)}." if previous_of(folder).is_dir() else ""
    fix = f"Wait for it, or {resuming(folder)}.{previous}"
    return CheckpointError("the run has not recorded a round yet", where=str(folder), fix=fix)


def _rounds(path: Path) -> tuple[Round, ...]:
    rounds = tuple(_round(row, where) for where, row in files.lines(path))
    if not rounds:
        raise _without_round(path.parent)
    return rounds


def _round(row: Mapping[str, Any], where: str) -> Round:
    """What was not measured is null in the row, and every key that no other field has is a figure."""
    known = {key: value for key, value in row.items() if value is not None}
    figures = {key: known.pop(key) for key in [*known] if key not in _NO_FIGURES}
    return files.made({**known, "values": figures}, Round, where)


def _totals(rounds: Sequence[Round]) -> dict[str, float]:
    """Of the whole run, as far as its rounds recorded it."""
    totals: dict[str, float] = {}
    for key in ("bytes_up", "bytes_down", "at_sites", "wall", "peak_memory"):
        known = [one.values[key] for one in rounds if key in one.values]
        if known:
            totals[key] = max(known) if key == "peak_memory" else sum(known)
    return totals


def _config(path: Path) -> tuple[str, dict[str, Any]]:
    text = files.text(path)
    if text is None:
        raise CheckpointError(f"{path.name} is missing from the run", where=str(path.parent), fix=files.REPAIR)
    return text, files.toml(text, path)


def _section(experiment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = experiment.get(name)
    return section if isinstance(section, Mapping) else {}


def _simulated(experiment: Mapping[str, Any]) -> bool:
    return _section(experiment, "run").get("engine") != DEPLOYED


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
