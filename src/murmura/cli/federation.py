"""``murmura federation``: what the members of a federation hand round, and who they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmura.units import several

app = typer.Typer(
    suggest_commands=False, no_args_is_help=True, help="Make a federation, and say which sites are in it."
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The federation's folder.")]


@app.command("new")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The experiment file.")],
    out: Annotated[Path, typer.Option(help="The federation's folder; it must not exist yet.")],
    sites: Annotated[
        str | None,
        typer.Option(
            help="Names of the sites, separated by commas; without them the experiment's records are shared out."
        ),
    ] = None,
    address: Annotated[
        str, typer.Option(help="HOST[:PORT] where sites will reach the server; IPv6 in brackets.")
    ] = "127.0.0.1",
) -> None:
    """Make a federation of an experiment: its own certificate authority, and folders for the server and for each site.

    @federation is for all members: the experiment, the authority's certificate, and where the server is. A site's
    folder has site.toml, in which its owner says where the records are and what runs may do. Without --sites it has a
    share of the experiment's records too, as in a simulation. Sites make their private keys themselves.
    """
    from murmura.experiment import Experiment
    from murmura.experiment.federation import found
    from murmura.experiment.prepare import prepare

    experiment = Experiment.load(file)
    names = [name.strip() for name in sites.split(",")] if sites is not None else None
    if names:
        experiment = experiment.without_records()
    folders = found(prepare(experiment), out, address, names)
    shared = "" if names else " Each site's folder has its share of the experiment's records."
    typer.echo(f"{out}: {several(len(folders), 'site')} ({', '.join(folders)}).{shared} What to do next:")
    typer.echo(
        "  1. Give each owner @federation and the site's folder, beside one another. The owner edits site.toml, and"
    )
    typer.echo("     sends back what this prints: murmura site init FOLDER")
    typer.echo(
        f"  2. Make the sites known, and hand round the new roster: murmura federation add {out} PUBLIC.JSON ..."
    )
    typer.echo(f"  3. Start the server: murmura serve {out}")
    typer.echo("  4. At each site, whose owner is to see what the experiment asks: murmura site show FOLDER,")
    typer.echo("     then murmura site consent FOLDER and murmura site start FOLDER")


@app.command("add")
def add(
    folder: Folder,
    introductions: Annotated[
        list[Path], typer.Argument(metavar="PUBLIC.JSON ...", help="What `murmura site init` wrote for each site.")
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the keys of sites that are already known.")
    ] = False,
) -> None:
    """Make sites known by their public keys and the number of records they take part with.

    Of each its fingerprint is printed: it is the one that `murmura site init` has printed for its owner, or somebody
    has put another file in place of theirs.

    The roster in @federation changes with it: hand it round again, since sites go by their own copy.
    """
    from murmura.experiment.federation import admit

    members = admit(folder, introductions, replace)
    for member in members.values():
        typer.echo(f"{member.site}: {several(member.records, 'record')}, fingerprint {member.fingerprint}")


@app.command("remove")
def remove(folder: Folder, site: Annotated[str, typer.Argument(metavar="SITE", help="The site's name.")]) -> None:
    """Remove a site: from the server's next start, its key opens nothing."""
    from murmura.experiment.federation import expel

    typer.echo(f"Left: {', '.join(expel(folder, site)) or 'none'}. Hand round the new roster.")


@app.command("certify")
def certify(
    folder: Folder,
    hosts: Annotated[
        list[str] | None, typer.Argument(metavar="HOST ...", help="Further names and addresses of the server.")
    ] = None,
) -> None:
    """Give the server a new certificate, for where sites reach it and for further names and addresses."""
    from murmura.experiment.federation import certify as certify_server

    typer.echo(f"The server has a new certificate, for {', '.join(certify_server(folder, hosts or ()))}.")
