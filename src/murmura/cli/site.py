"""``murmura site``: what a site's owner sees of runs, in the site's own folder. No server is needed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from murmura.experiment.forecast.terms import Terms
    from murmura.report.content import Table

app = typer.Typer(
    suggest_commands=False, no_args_is_help=True, help="What the owner of a site sees of runs, in its folder."
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The site's folder.")]
_DIGEST = 12  # characters of a digest that a table shows
_NARROW = 120
_ROSTER = (
    "compare it with the other owners. Where it is the same at all these sites, they know one another by their own "
    "keys; a site that nobody knows may be played by whoever made the roster"
)


@app.command("init")
def init(folder: Folder) -> None:
    """Make a site's keys, look at its records, and write down what the federation is to know the site by.

    The private keys stay in the folder. Send what is printed to whoever leads the federation, and compare the
    fingerprint with the one that they are shown, so that nobody can replace it on the way.
    """
    from murmura.errors import ConfigError
    from murmura.experiment.federation import introduce
    from murmura.experiment.forecast.terms import terms
    from murmura.runs.names import PUBLIC_KEYS

    found = terms(folder, rostered=False)
    if not found.fitting:
        what = "how many records the site takes part with is not known: the model is not on this machine"
        fix = "Get the model that the experiment names first: murmura models fetch NAME"
        raise ConfigError(what, where=f"site {found.site}", fix=fix)
    member, path = introduce(folder, found.site, found.records), folder / PUBLIC_KEYS
    typer.echo(path.read_text())
    typer.echo(f"This is in {path}. Send it to whoever leads the federation: it is public.", err=True)
    typer.echo(f"Its fingerprint, which `murmura federation add` prints there, too: {member.fingerprint}", err=True)


@app.command("start")
def start(
    folder: Folder,
    again: Annotated[
        bool,
        typer.Option("--again", help="Answer once more than the run plans to ask, for a round that is done again."),
    ] = False,
) -> None:
    """Connect a site with its federation's server, and answer what the run asks, until it is stopped.

    Before that, what the run would ask is printed (`murmura site show`); a run that the owner has not consented to, or
    that [allow] in site.toml rules out, is not answered. Needs Flower: pip install 'murmura[flower]'.
    """
    from murmura.federation.engines.flower import require

    require()
    from murmura.experiment.forecast.terms import terms
    from murmura.experiment.site_process import play

    _print_terms(terms(folder))
    play(folder, again)


@app.command("show")
def show(folder: Folder) -> None:
    """Print what the experiment of a site's federation asks of it, before anything is asked.

    Method and rounds, everything that may leave the site and how it is protected, what is promised for this site's
    records, and whether its owner's limits allow it. No server is needed, and nothing is trained.
    """
    from murmura.experiment.consent import answered, consented, missing_consent
    from murmura.experiment.forecast.terms import terms
    from murmura.experiment.site_file import SiteFile

    found, file = terms(folder), SiteFile.load(folder)
    _print_terms(found)
    reason = found.rejection or missing_consent(folder, file, found.experiment)
    answers = "The site answers it"
    if file.budget.epsilon is not None:
        answers = "Where its budget over all runs, above, lets it, the site answers it"
    if reason:
        typer.echo(f"The site answers nothing of it: {reason}.")
    elif when := consented(folder, found.experiment):
        run = answered(folder, found.experiment)
        alone = "" if run is None else f", for run {run} and no other until `murmura site consent` is given again"
        typer.echo(f"{answers}: its owner consented to it at {when}{alone}.")
        if run is not None and found.budget and found.guarantee:
            typer.echo("What its budget comes to is told for another run of it: what it has answered is spent already.")
    else:
        room = ", as far as they leave room beside runs that it has answered" if found.guarantee else ""
        typer.echo(f"{answers}: it is within its owner's limits{room}, and nobody is asked.")


@app.command("consent")
def consent(
    folder: Folder,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Take back whatever was consented to; then end the site's process.")
    ] = False,
) -> None:
    """Print what ``murmura site show`` prints, and note that the site's owner consents to just this experiment, with
    just this list of what it is measured on, for one run.

    The note has a digest of both, that of what was printed, and the time. A run that is resumed needs no other
    consent; a changed experiment or list does, and so does another run. Without it the server may choose trackers,
    how long a round waits, and what files of public records hold. A process of the site that was started without
    consent reads it when it is restarted.
    """
    from murmura.errors import ConfigError
    from murmura.experiment import consent as consents
    from murmura.experiment.forecast.terms import terms
    from murmura.experiment.site_file import SiteFile

    if withdraw:
        name = SiteFile.load(folder).name
        consents.withdraw(folder)
        typer.echo(f"Noted: the owner of site {name} takes back whatever was consented to.")
        return
    found = terms(folder)
    _print_terms(found)
    if found.rejection is not None:
        fix = "Change [allow] in site.toml, or leave it."
        raise ConfigError(f"nothing is noted: {found.rejection}", where=f"site {found.site}", fix=fix)
    before = consents.answered(folder, found.experiment)
    consents.consent(folder, found.experiment, found.digest)
    typer.echo(f"Noted: the owner of site {found.site} consents to experiment {found.experiment}, for one run.")
    if before is not None:
        typer.echo(
            f"Run {before} was answered by an earlier consent, and goes on without this one, which is for another run."
        )


@app.command("log")
def log(folder: Folder, as_json: Annotated[bool, typer.Option("--json", help="As JSON, in full.")] = False) -> None:
    """Print everything that has ever left a site, and check its journal against the digests in it.

    They are a chain: where a line was changed, moved or taken out, all before it are printed, and it is named.
    """
    from murmura.errors import ConfigError, PrivacyError
    from murmura.federation.site.store import released
    from murmura.runs.names import RELEASED_JOURNAL, SITE_FILE, SITE_JOURNAL

    if not folder.is_dir():
        raise ConfigError("there is no such folder", where=str(folder), fix="Name a site's folder.")
    if not any((folder / name).exists() for name in (SITE_FILE, SITE_JOURNAL, RELEASED_JOURNAL)):
        raise ConfigError("this is no site's folder", where=str(folder), fix=f"Name the one with its {SITE_FILE}.")
    lines, broken = list[dict[str, Any]](), None
    try:
        for line in released(folder):
            lines.append(line)
    except PrivacyError as error:
        broken = error
    if as_json:
        typer.echo(json.dumps(lines, indent=2))
    else:
        _print_log(lines)
    if broken is not None:
        raise broken


def _print_terms(found: Terms) -> None:
    from murmura.report.terminal import draw, facts, wide

    console = wide(_NARROW)
    console.print(f"What is asked of site {found.site}", style="bold", markup=False)
    console.print(facts(_facts(found).items()))
    console.print("\nWhat may leave the site", markup=False)
    console.print(draw(_asked(found)))


def _facts(found: Terms) -> dict[str, str]:
    from murmura.runs.names import PUBLIC_KEYS
    from murmura.units import DASH, count, listing, size

    counted = "" if found.fitting else " as if each fitted the model, which is not on this machine"
    return {
        "experiment": found.experiment,
        "method": found.method,
        "rounds": count(found.rounds),
        "records": f"{count(found.records)}{counted}, of which a round uses {count(found.reads)} at most",
        "made known by": f"its name, its keys and exactly how many records it has ({PUBLIC_KEYS}), before the run",
        "sent in a round": DASH if found.bytes_up is None else f"about {size(found.bytes_up)} at most, a forecast",
        "measures": f"on the site's records: {', '.join(found.measured)}" if found.measured else "on no private record",
        "sums": found.secure or "not secure: the server reads each answer",
        **({"roster": f"{found.fingerprint}\nof {listing(list(found.roster))}: {_ROSTER}"} if found.roster else {}),
        "guarantee": "\n".join(found.guarantee) or "none: no ε is promised for what leaves the site",
        **({"also told": f"{listing(list(found.trackers))}: figures that the run publishes"} if found.trackers else {}),
        **({"over all runs": found.budget} if found.budget else {}),
    }


def _asked(found: Terms) -> Table:
    """The disclosure table before the run, a row a field."""
    from murmura.federation.wire.releases import protection_from_json
    from murmura.report.content import Table

    rows = []
    for one, often in zip(found.fields, found.often, strict=True):
        protection = protection_from_json(one.protection)
        what = f"{one.what}. {one.note}" if one.note else one.what
        rows.append([one.verb, one.field, one.kind, what, protection.words if protection else "none", often])
    return Table(["verb", "field", "kind", "what", "protection", "how often"], rows, text=range(6), unbroken=(0, 1))


def _print_log(lines: Sequence[Mapping[str, Any]]) -> None:
    """A table for each run."""
    from murmura.report.terminal import draw, wide
    from murmura.units import count, size

    console = wide(_NARROW)
    for run in dict.fromkeys(line["run"] for line in lines):
        console.print(f"Run {run}", markup=False)
        console.print(draw(_left([line for line in lines if line["run"] == run])))
        console.print()
    replies = [line["fields"] for line in lines if "fields" in line]
    total = sum(field["bytes"] for fields in replies for field in fields)
    console.print(f"{count(len(replies))} answers have left this site, {size(total)} in all.", markup=False)
    if failed := len(lines) - len(replies):
        what = "ask was" if failed == 1 else "asks were"
        told = f"{count(failed)} {what} answered with the class of an error alone; what it says has stayed here."
        console.print(told, markup=False)


def _left(lines: Sequence[Mapping[str, Any]]) -> Table:
    """What has left in a run, a row a field."""
    from murmura.report.content import Table
    from murmura.units import count

    rows = []
    for line in lines:
        about = [line["at"].removesuffix("+00:00").replace("T", " "), str(line["round"]), line["verb"]]
        if "failed" in line:
            rows.append([*about, line["failed"], "", line["why"], ""])
            continue
        for field in line["fields"]:
            rows.append([*about, _field(field), count(field["bytes"]), _protection(field), field["sha256"][:_DIGEST]])
            about = [""] * len(about)
        if not line["fields"]:
            rows.append([*about, "nothing", "0", "", ""])
    columns = ["when (UTC)", "round", "verb", "field", "bytes", "protection", "SHA-256"]
    return Table(columns, rows, text=(0, 1, 2, 3, 5, 6), unbroken=(0, 2, 6))


def _field(field: Mapping[str, Any]) -> str:
    """A field's name, and what is in a masked one."""
    holds = [f"{one['field']} ({one['kind']})" for one in field.get("holds", ())]
    return f"{', '.join(holds)}, masked" if holds else f"{field['field']} ({field['kind']})"


def _protection(field: Mapping[str, Any]) -> str:
    """How what left was protected, by secure sums and by noise."""
    from murmura.federation.wire.releases import protection_from_json

    found = [protection_from_json(one["protection"]) for one in (field, *field.get("holds", ()))]
    return "; ".join(dict.fromkeys(one.words for one in found if one is not None)) or "none"
