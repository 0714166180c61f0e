"""``murmura federation``: folders of sites, and what the members of a federation hand round."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Folders of sites, and what the members of a federation hand round.")


@app.command("new")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The experiment file.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to; it must not be there yet.")],
) -> None:
    """Share an experiment's records out into a folder for each site, as a simulation does, but to stay.

    Each has site.toml, in which its owner says what runs may do, and the records. Beside them, @federation has the
    experiment and, with secure sums, the roster of all sites' public keys.
    """
    from murmura.errors import ConfigError
    from murmura.experiment import Experiment
    from murmura.experiment.prepare import prepare
    from murmura.experiment.simulation import share_out
    from murmura.runs.schema import site_folder

    if folder.exists():
        raise ConfigError("there is something already", where=str(folder), fix="Name another folder.")
    plan = prepare(Experiment.load(file))
    records = plan.owned or {}
    folder.mkdir(parents=True)
    folders = {name: folder / site_folder(name) for name in records}
    share_out(plan.experiment, records, folders, None, [plan.experiment.model.device], simulated=False)
    for name, own in folders.items():
        typer.echo(f"{own}: {name}, {len(records[name])} records")
