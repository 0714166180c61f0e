"""``murmura init``: an experiment file to start from."""

from __future__ import annotations

from typing import Annotated

import typer

from murmura.cli.methods import methods as list_methods
from murmura.errors import ConfigError


def init(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A method, or what a paper calls it: fedavg, feddca; an experiment of a paper: flowertune-finance; or "
            "compare. Without a name, all are listed.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every option, with what it means.")] = False,
) -> None:
    """Print an experiment file with the lines that you need, for editing: murmura init fewfedpit > my.toml."""
    from murmura import methods
    from murmura.experiment.names import names
    from murmura.experiment.presets import preset, presets

    if every and (name is None or name == "compare" or name in presets()):
        what = f"'{name}' has no list of every option" if name else "no method is named, whose options these are"
        raise ConfigError(what, where="--all", fix="murmura init METHOD --all has those of an experiment.")
    if name == "compare" or name in presets():
        from murmura.compare.starter import STARTER

        typer.echo((STARTER if name == "compare" else preset(name)).encode(), nl=False)
        return
    if name is not None:
        from murmura.experiment.starter import starter

        typer.echo(starter(name, every=every).encode(), nl=False)  # bytes: TOML is UTF-8 wherever it is made
        return
    list_methods()
    others = ", ".join(one for one in names() if one not in methods.METHODS)
    typer.echo(f"\nThese names will do too: {others}.")
    typer.echo(f"\nExperiments of papers: {', '.join(presets())}.")
    typer.echo("\nFor example: murmura init fewfedpit > my.toml; or several of them: murmura init compare > my.toml")
