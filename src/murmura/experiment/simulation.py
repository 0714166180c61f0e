"""Many sites on one machine: the engine behind which they are simulated."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from murmura.experiment.config import Experiment
from murmura.experiment.context import ProcessContext
from murmura.experiment.resume import tables
from murmura.experiment.site_side import assemble, told
from murmura.experiment.workers import WorkerProcess
from murmura.federation.engines import Engine
from murmura.federation.engines.local import LocalEngine
from murmura.federation.engines.processes import ProcessesEngine
from murmura.federation.method import Method
from murmura.federation.site.identity import prepare_roster
from murmura.progress import say
from murmura.runs.folder import RunFolder

_WORKERS = 2  # where there is no GPU


def simulate(
    context: ProcessContext, method: Method, records: Mapping[str, Sequence[Any]], folder: RunFolder, run: str
) -> Engine:
    """Sites with these records, as ``run.engine`` says.

    Args:
        context: of this process, whose model sites in this process share with the server.
        method: of the run.
        records: of each site, in the order of the run.
        folder: what sites keep is in it, each in a place of its own.
        run: the run's id.

    Raises:
        DataError: a site cannot take part with its records.
        CheckpointError: what a site has kept is damaged.
        RunError: a worker process could not be set up.
    """
    experiment = context.experiment
    if experiment.aggregation.secure:
        prepare_roster(folder.private, list(records))
    if experiment.run.engine == "local":
        return LocalEngine(
            assemble(context, method, records, run=run, private=folder.private, results=folder.site_adapters)
        )
    gpus = gpus_for(experiment.model.device)
    names, shares = list(records), []
    count = min(count_workers(experiment, gpus), len(names))
    if experiment.run.workers and count < experiment.run.workers:
        say(f"run.workers is {experiment.run.workers}, and there are {len(names)} sites: {count} workers start")
    for k in range(count):
        own = names[k::count]
        message = {
            "experiment": tables(experiment), "sites": told({name: records[name] for name in own}),
            "device": f"cuda:{k % gpus}" if gpus else experiment.model.device, "run": run,
            "private": str(folder.private), "results": str(folder.site_adapters),
        }  # fmt: skip
        shares.append((own, message))
    engine = start(count)
    try:
        engine.set_up(shares, names)
    except BaseException:
        engine.close()
        raise
    return engine


def start(count: int) -> ProcessesEngine:
    """Worker processes that have no sites yet, and share the processor's cores.

    Raises:
        RunError: one could not be started; none is left.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(cores // count, 1)
    with ExitStack() as started:
        workers = []
        for k in range(count):
            workers.append(WorkerProcess(f"worker {k}", threads))
            started.callback(workers[-1].end)
        started.pop_all()
    return ProcessesEngine(workers)


def gpus_for(device: str) -> int:
    """On how many GPUs workers compute that are told this device; 0 for one that is named, or for none."""
    import torch

    return torch.cuda.device_count() if device in ("auto", "cuda") else 0


def count_workers(experiment: Experiment, gpus: int) -> int:
    """As many as asked for, or one for each GPU."""
    return experiment.run.workers or gpus or _WORKERS
