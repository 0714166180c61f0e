"""``murmura serve``: lead a run whose sites are on machines of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmura.cli.of_run import Resume, StartOver, changes_of, require_one, show_result


def serve(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The federation's folder (`murmura federation new`).")
    ],
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="Where to listen; IPv6 in brackets. Default: every address of this machine, of the kind that the "
            "federation's address is of, and the federation's port.",
        ),
    ] = None,
    quorum: Annotated[
        int | None, typer.Option(min=1, help="Begin once this many sites are there; others join later. Default: all.")
    ] = None,
    wait: Annotated[float, typer.Option(min=1, help="Hours to wait for the sites.")] = 24,
    patience: Annotated[float, typer.Option(min=1, help="Seconds that a site may be out of reach in a round.")] = 120,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override an option of the server's own, e.g. run.folder=runs/a."
        ),
    ] = None,
    resume: Resume = False,
    go_on: Annotated[
        bool,
        typer.Option(
            "--go-on",
            help="Begin the run, resume it where the folder has it, and do nothing once it is finished: for services.",
        ),
    ] = False,
    overwrite: StartOver = False,
) -> None:
    """Lead the run of a federation's experiment: wait for its sites, train, measure, and write a report.

    Sites may come and go between rounds. Flower (pip install 'murmura[flower]') carries what is asked and answered;
    only sites whose keys are known can connect, by TLS. Stop it with Ctrl-C, and continue with --resume.
    """
    from murmura.errors import ConfigError
    from murmura.federation.engines.flower import require

    require()
    from murmura.experiment.deployment import Deployment
    from murmura.experiment.federation import Federation
    from murmura.experiment.resume import is_over
    from murmura.experiment.run import run
    from murmura.experiment.verbs import fingerprint
    from murmura.federation.address import split
    from murmura.runs import RunFolder
    from murmura.runs.schema import DEPLOYED

    require_one({"--resume": resume, "--overwrite": overwrite, "--go-on": go_on})
    changes = changes_of(override)
    if "run.workers" in changes:  # the experiment may have it, for a simulation
        what = "sites on machines of their own have no workers"
        raise ConfigError(what, where="--set run.workers", fix="Leave it out.")
    federation = Federation.load(folder, {"run.engine": DEPLOYED, **changes})
    if federation.experiment.run.engine != DEPLOYED:  # what a network shows would be checked for as in a simulation
        what = f"sites on machines of their own are reached by '{DEPLOYED}'"
        raise ConfigError(what, where="--set run.engine", fix="Leave it out.")
    if fingerprint(federation.experiment) != fingerprint(Federation.load(folder).experiment):
        fix = "Make a new federation of the changed experiment: `murmura federation new`."
        raise ConfigError("--set changes what the sites have agreed on", where="--set", fix=fix)
    kept = RunFolder(federation.experiment.run.path)
    if go_on and is_over(kept, federation.experiment):  # to resume would drop what it has come to since
        typer.echo(f"{kept.path}: the run is finished, and there is nothing to do. Report: {kept.report}")
        return
    _, port = split(federation.address)
    deployment = Deployment(federation, split(listen, port) if listen else None, quorum, wait * 3600, patience)
    resume = resume or (go_on and kept.holds_run)
    show_result(run(federation.experiment, resume=resume, overwrite=overwrite, deployment=deployment).folder)
