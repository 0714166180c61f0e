"""A dry run as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isnan
from typing import TYPE_CHECKING

from murmura.augment.strategies import strategy
from murmura.experiment.forecast.dry_run import DryRun
from murmura.experiment.forecast.proportions import of_time
from murmura.experiment.forecast.training import STEPS
from murmura.experiment.precision import multiplied_in
from murmura.federation.wire.releases import protection_from_json
from murmura.report.content import Table
from murmura.report.terminal import draw, facts, wide
from murmura.resources import KINDS, PLACES, full_name
from murmura.runs.folder import MARGIN
from murmura.units import DASH, count, duration, size

if TYPE_CHECKING:
    from rich.console import Console

    from murmura.experiment.config import Experiment
    from murmura.experiment.forecast.timing import Timing
    from murmura.federation.forecast import Forecast

_PARTS = {"choosing": "choosing public records"}
_SITES_SHOWN = 20
_LINES_SHOWN, _LINE_WIDTH = 14, 100
_WIDE = 120


def show(dry_run: DryRun, console: Console | None = None, timing: Timing | None = None) -> None:
    """Print a dry run to standard output; in a file or a pipe, lines are folded at a fixed width.

    Args:
        timing: how long the run will take, if that was tried.
    """
    from rich.padding import Padding
    from rich.text import Text

    console, experiment = wide(_WIDE, console), dry_run.experiment
    console.print(Text(f"What the run '{experiment.run.name}' would do. Nothing is trained or written.", style="bold"))
    console.print()
    console.print(facts(figures(dry_run, timing)))
    tables = {
        "Models besides the base": resources(dry_run),
        "Sites": sites(dry_run),
        "What sites would release": releases(dry_run),
    }
    for title, table in tables.items():
        if table is not None:
            console.print(f"\n{title}")
            console.print(draw(table))
    if dry_run.example is not None:
        names, form = _form(experiment)
        told = {"template": f", in the template '{form}'", "patterns": ", in its patterns"}.get(names, "")
        console.print(f"\nThe first held-out record{told}")
        console.print(Padding(Text("\n".join(_first_lines(dry_run.example)), style="dim"), (0, 0, 0, 2)))
    noted = dry_run.notes + (of_time(experiment, timing, len(dry_run.rounds)) if timing else [])
    remarks = {
        "Not known here": dry_run.plan.unknown,
        "To be noted": noted,
        "The run would not start": dry_run.refusals,
    }
    for title, lines in remarks.items():
        if lines:
            console.print(f"\n{title}")
            for text in lines:
                console.print(Padding(Text(f"- {text}"), (0, 0, 0, 2)))


def _form(experiment: Experiment) -> tuple[str, str]:
    """What makes records into text, and which: patterns, a template, or nothing where they are texts already."""
    if patterns := getattr(experiment.method, "patterns", ()):
        return "patterns", " · ".join(patterns)
    if experiment.task.kind == "document":
        return "text", "as it is"
    return "template", experiment.data.template


def figures(dry_run: DryRun, timing: Timing | None = None) -> Iterator[tuple[str, str]]:
    """Names and figures."""
    e = dry_run.experiment
    yield "method", dry_run.plan.method.title
    yield "model", e.model.name + (f", {count(dry_run.model.parameters)} parameters" if dry_run.model else "")
    training, writing = multiplied_in(e)
    yield "precision", f"{training} in training, {writing} in writing"
    yield "run folder", str(e.run.path)
    yield "seed", str(e.run.seed)
    names, form = _form(e)
    yield names, f"{form}, at most {count(e.data.max_length)} tokens a record"
    held_out = f"{_known(None if dry_run.heldout is None else len(dry_run.heldout))} held out"
    if dry_run.plan.records and (validation := dry_run.plan.records.public.validation.records):
        held_out += f" to measure and {count(len(validation))} to validate"
    held_out += "".join(f", {questions}" for questions in _questions(dry_run))
    skipped = f"{_known(dry_run.unused('bad'))} bad ones skipped"
    skipped += f", {count(long)} too long for data.max_length" if (long := dry_run.unused("long")) else ""
    if overlap := dry_run.unused("overlap"):
        skipped += f", and {count(overlap)} held-out ones that a site has too"
    yield "records", f"{held_out}, {skipped}"
    yield "rounds", f"{len(dry_run.rounds)}; sites in each: {_range([r.sites for r in dry_run.rounds])}"
    if dry_run.public:
        yield "public records" if dry_run.plan.pool else "written records", _public(dry_run, dry_run.public)
    if dry_run.plan.sizes is None or dry_run.count(STEPS):
        yield STEPS, f"at most {_each_and_all([r.steps for r in dry_run.rounds])}"
    for one in dry_run.work:
        if one.total and one.what != STEPS:
            often = f", {count(one.times)} times" if one.times > 1 else ""
            yield one.what, f"{'at most ' * one.at_most}{count(one.count)}{often}"
    if dry_run.plan.method.traits.trained_at == "sites":
        yield "trainable", _trainable(dry_run)
    yield "sent down", _each_and_all([r.bytes_down for r in dry_run.rounds], size)
    yield "sent up", _each_and_all([r.bytes_up for r in dry_run.rounds], size)
    yield "guaranteed", dry_run.guarantee or DASH
    yield "memory", _memory(dry_run)
    yield "disk", _disk(dry_run.disk)
    if timing is not None:
        untried = [f"; {one.what}: not tried" for one in dry_run.work if one.attempt is None]
        yield "time", _time(timing) + "".join(untried)


def _disk(needed: int | None) -> str:
    if needed is None:
        return DASH
    return f"{size(needed + MARGIN)} must be free: {size(needed)} for checkpoints and adapters, the rest for all else"


def _questions(dry_run: DryRun) -> list[str]:
    """How many questions of which kind are asked."""
    wanted, asked = dry_run.experiment.evaluation, dry_run.plan.asked
    told = [f"{_known(len(asked.choices) if asked else None)} questions with options"] if wanted.choices else []
    numbers = {one.benchmark.name: len(one.questions) for one in asked.benchmarks} if asked else {}
    names = list(wanted.benchmarks.named) if wanted.benchmarks else []
    if asked and asked.harness:
        numbers |= {name: len(asked.harness.questions_of(name)) for name in asked.harness.tasks}
        names += asked.harness.tasks
    return told + [f"{_known(numbers.get(name))} questions of {name}" for name in names]


def _public(dry_run: DryRun, found: Forecast) -> str:
    options, settings = dry_run.experiment.augment, dry_run.experiment.method
    assert options is not None
    times, title = options.selections(settings.rounds), strategy(options).title
    often = "once" if times == 1 else f"{count(times)} times"
    if dry_run.plan.pool is None:
        return (
            f"at most {count(found.records)} a site, written there {often} ({title}) with at most "
            f"{count(found.tokens)} tokens each time; {size(found.down)} down for all sites"
        )
    up = DASH if isnan(found.up) else size(found.up)
    return (
        f"at most {count(found.records)} a site of {count(len(dry_run.plan.pool))} in the pool, chosen {often} "
        f"({title}); about {size(found.down)} down and {up} up for all sites"
    )


def _time(timing: Timing) -> str:
    bounds = {work.part for work, _ in timing.parts if work.at_most and not work.option}
    names = {work.part: None for work, _ in timing.parts}
    parts = {f"{'at most ' * (name in bounds)}{_PARTS.get(name, name)}": timing.of(name) for name in names}
    shown = " + ".join(f"{duration(seconds)} {name}" for name, seconds in parts.items() if seconds)
    most = "at most" if bounds else "about"
    return f"{most} {duration(timing.total)} on this machine, by a few steps that were tried: {shown}"


def _trainable(dry_run: DryRun) -> str:
    if dry_run.model is None:
        return DASH
    share = 100 * dry_run.model.trainable / dry_run.model.parameters
    return f"{count(dry_run.model.trainable)} parameters a site, {share:.3g} % of the base's"


def _memory(dry_run: DryRun) -> str:
    memory = dry_run.memory
    if memory is None or dry_run.model is None:
        return DASH
    per_slot = "weights, gradients" + (" and the optimiser's moments" if memory.copies > 2 else "")
    base = "frozen base" if dry_run.model.base_bytes else "other copies of the model"
    parts = [
        *([f"{size(memory.libraries)} Python and libraries"] if memory.libraries else []),
        *([f"{size(memory.base)} {base}"] if memory.base else []),
        f"{size(memory.adapters)} for {memory.slots} at a time ({per_slot})",
        f"{size(memory.passing)} activations or keys and values",
        *([f"{size(memory.states)} hidden states of records (run.cache_bytes)"] if memory.states else []),
    ]
    shown = " + ".join(parts)
    if memory.processes > 1:
        shown = f"{memory.processes} processes (the server and workers), each with {shown}"
    if memory.resources:
        shown += f"; and {size(memory.resources)} of other models in all"
    return f"about {size(memory.total)} on {dry_run.model.device_name}, an estimate: {shown}"


def resources(dry_run: DryRun) -> Table | None:
    """A line for each model that the method uses besides the base; None where it uses none."""
    rows = []
    for one in dry_run.plan.supplies:
        asked = one.resource
        rows.append([full_name(one.option), asked.name, KINDS[asked.kind], PLACES[asked.side], _known(one.parameters)])
    return Table(["option", "model", "kind", "where", "parameters"], rows, text=range(4)) if rows else None


def sites(dry_run: DryRun) -> Table | None:
    """A line a site, and their sum; None where the sites are not known."""
    if dry_run.sites is None:
        return None
    columns: dict[str, list[int | None]] = {
        "records": [site.records for site in dry_run.sites],
        "used": [site.used for site in dry_run.sites],
        "labelled": [site.labelled for site in dry_run.sites],
        "shortened": [site.truncated for site in dry_run.sites],
        "dropped": [site.dropped for site in dry_run.sites],
        "steps, round 1": [site.steps for site in dry_run.sites],
    }
    if _form(dry_run.experiment)[0] != "patterns":
        del columns["labelled"]
    rows = [
        [site.site, *(_known(values[place]) for values in columns.values())]
        for place, site in enumerate(dry_run.sites[:_SITES_SHOWN])
    ]
    if len(dry_run.sites) > _SITES_SHOWN:
        rows.append([f"and {len(dry_run.sites) - _SITES_SHOWN} more", *[""] * len(columns)])
    rows.append([f"all {len(dry_run.sites)}", *(_known(_sum(values)) for values in columns.values())])
    return Table(["site", *columns], rows, total=True)


def releases(dry_run: DryRun) -> Table:
    """The disclosure table as far as it is known before a run."""
    rows = []
    for row in dry_run.disclosure:
        protection = protection_from_json(row.protection)
        rows.append([row.verb, row.field, row.what, protection.words if protection else "none", row.note])
    return Table(["verb", "field", "what", "protection", "note"], rows, text=range(5), unbroken=(0, 1))


def _first_lines(text: str) -> list[str]:
    lines = text.splitlines()
    shown = [line if len(line) <= _LINE_WIDTH else line[: _LINE_WIDTH - 1] + "…" for line in lines[:_LINES_SHOWN]]
    return [*shown, "…"] if len(lines) > _LINES_SHOWN else shown


def _known(value: int | None) -> str:
    return DASH if value is None else count(value)


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _range(values: Sequence[int | None], shown: Callable[[float], str] = count) -> str:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return DASH
    low, high = min(known), max(known)
    return shown(low) if low == high else f"{shown(low)} to {shown(high)}"


def _each_and_all(values: Sequence[int | None], shown: Callable[[float], str] = count) -> str:
    total = _sum(values)
    return DASH if total is None else f"{_range(values, shown)} a round, {shown(total)} in all"
