"""Many sites on one machine: each gets a folder with its share of the records, and an engine plays them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from os.path import realpath
from pathlib import Path
from typing import Any

import tomli_w

from murmura import atomic
from murmura.errors import explaining
from murmura.experiment import worker
from murmura.experiment.config import Experiment
from murmura.experiment.context import ProcessContext
from murmura.experiment.placement import count_workers, gpus_for
from murmura.experiment.site_side import open_sites
from murmura.federation.engines import ENGINES, Engine
from murmura.federation.method import Method
from murmura.federation.site.answer import Host
from murmura.federation.site.identity import write_roster
from murmura.progress import say
from murmura.runs.folder import RunFolder
from murmura.runs.names import EXPERIMENT, FEDERATION, ROSTER, SITE_DATA, SITE_FILE, site_folder


def simulate(
    context: ProcessContext, method: Method, records: Mapping[str, Sequence[Any]], folder: RunFolder
) -> Engine:
    """Sites with these records, as ``run.engine`` says.

    Args:
        context: of this process, whose model sites in this process share with the server.
        method: of the run, likewise.
        records: of each site, in the order of the run.
        folder: what sites keep is in it, each in a place of its own.

    Raises:
        DataError: a site cannot take part with its records.
        CheckpointError: what a site has kept is damaged, or its folder cannot be written.
        RunError: a worker process could not be set up.
    """
    experiment = context.experiment
    gpus = gpus_for(experiment.model.device)
    workers = min(count_workers(experiment, gpus), len(records))
    devices = [experiment.model.device]
    if experiment.run.engine != "local" and gpus:
        devices = [f"cuda:{place % gpus}" for place in range(workers)]
    if experiment.run.workers and workers < experiment.run.workers:
        say(f"run.workers is {experiment.run.workers}, and there are {len(records)} sites: {workers} workers start")
    folders = {name: folder.private / site_folder(name) for name in records}
    try:
        if folder.site_adapters.exists():
            atomic.make_private(folder.site_adapters)
        share_out(experiment, records, folders, folder.site_adapters, devices)
        if experiment.aggregation.secure:  # sites that are elsewhere make their keys themselves
            write_roster(_federation(folders) / ROSTER, folders)
        simulated = Simulated(folders, workers, (context, method), protected=method.protects == "site")
        start = ENGINES.load(experiment.run.engine)
        with ENGINES.guarded(experiment.run.engine, "cannot be started"):
            engine: Engine = start(simulated)
        return engine
    finally:
        _take_back(folders)


@dataclass(frozen=True)
class Simulated:
    """The sites of a run that are played on this machine, as an engine is told of them.

    Args:
        folders: of each site, in the order of the run: all that whoever plays it is told.
        workers: most processes to play them in.
        shared: model and method of this process, whose server has them too.
        protected: whether the run's ε is of whole sites, so that none may keep another's answer out of a sum.
    """

    folders: Mapping[str, Path]
    workers: int
    shared: tuple[ProcessContext, Method]
    protected: bool = False

    @property
    def program(self) -> Sequence[str]:
        """What Python runs in a process that plays sites, with the file descriptor of a pipe as its last argument."""
        return worker.PROGRAM

    def open(self, folders: Sequence[Path]) -> Host:
        """Play the sites of these folders in this process, over the server's own model."""
        return open_sites(folders, self.shared)


def share_out(
    experiment: Experiment,
    records: Mapping[str, Sequence[Any]],
    folders: Mapping[str, Path],
    results: Path | None,
    devices: Sequence[str],
    *,
    simulated: bool = True,
) -> None:
    """Give each site a folder with its records and its owner's file, and all of them the experiment.

    Args:
        records: of each site.
        folders: of each site, to be made beside one another; only their owners may look into them.
        results: where sites leave adapters of their own; None: in their own folders.
        devices: on which sites compute, in turn.
        simulated: so says each owner's file; else somebody owns each folder, and is asked for consent.

    Raises:
        CheckpointError: one cannot be written.
    """
    federation = _federation(folders)
    budget = experiment.budget.model_dump(exclude_none=True)
    if experiment.budget.folder is not None:
        budget["folder"] = realpath(experiment.budget.folder)
    common: dict[str, Any] = {"records": SITE_DATA, "federation": f"../{FEDERATION}"}
    if simulated:
        common["simulated"] = True
    elif experiment.data.records_per_user:
        common["user"] = ""  # these records are bounded
    if results is not None:
        common["results"] = realpath(results)
    with explaining("the records cannot be shared out to the sites' folders", federation.parent):
        for number, (name, folder) in enumerate(folders.items()):
            file = {"name": name, **common, "device": devices[number % len(devices)], "budget": dict(budget)}
            if not simulated and "folder" in budget:
                file["budget"]["folder"] = str(Path(budget["folder"]) / site_folder(name))
            atomic.make_private(folder)
            _write(folder / SITE_DATA, _lines(records[name]))
            _write(folder / SITE_FILE, [tomli_w.dumps(file)])
        atomic.make_private(federation)
        _write(federation / EXPERIMENT, [experiment.dump()])


def _take_back(folders: Mapping[str, Path]) -> None:
    """Remove what sites have read; they find it again when the run goes on. The roster stays with their keys."""
    federation = _federation(folders)
    for path in (federation / EXPERIMENT, *(own / name for own in folders.values() for name in (SITE_DATA, SITE_FILE))):
        path.unlink(missing_ok=True)
    with suppress(OSError):  # it may hold the roster, or not be there
        federation.rmdir()


def _federation(folders: Mapping[str, Path]) -> Path:
    """Where what the members hand round lies: beside their folders."""
    return next(iter(folders.values())).parent / FEDERATION


def _write(path: Path, lines: Iterable[str]) -> None:
    with atomic.replacing(path, private=True, synced=False) as stream:
        stream.writelines(line.encode() for line in lines)


def bytes_of(records: Mapping[str, Sequence[Any]]) -> int:
    """Bytes on disk of sites' records."""
    return sum(len(line) for own in records.values() for line in _lines(own))


def _lines(records: Sequence[Any]) -> Iterator[str]:
    return (f"{json.dumps(asdict(record))}\n" for record in records)
