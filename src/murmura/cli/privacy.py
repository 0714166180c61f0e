"""``murmura privacy``: the ε of some noise and the noise of some ε, before anything is trained; and what was spent."""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from murmura.cli.planned import of_votes, plan_of, sampler_of
from murmura.privacy.parts import check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from murmura.privacy.accounting import Epsilon
    from murmura.privacy.odometer import Total
    from murmura.privacy.plan import PrivacyPlan

Found = TypeVar("Found")
app = typer.Typer(
    suggest_commands=False,
    no_args_is_help=True,
    help="Compute ε from noise, the noise that an ε needs, or what runs have spent.",
)

ChosenAmong = Annotated[
    float | None,
    typer.Option(
        "--chosen-among",
        metavar="MEAN",
        help="The result was chosen among this many runs on average, their number was drawn at random, and nothing of "
        "the others is known to anybody.",
    ),
]
Shape = Annotated[
    float, typer.Option("--shape", help="With --chosen-among, how the number was drawn: 1 geometric, inf Poisson.")
]
Steps = Annotated[int, typer.Option("--steps", help="Noisy steps in the whole run.")]
Delta = Annotated[float, typer.Option("--delta", help="δ, in (0, 1); less than 1 / number of units.")]
Rate = Annotated[float, typer.Option("--sampling-rate", help="Poisson rate: expected batch / number of units.")]
Batch = Annotated[
    int | None, typer.Option("--batch", help="With --of: batches of this many units, drawn without replacement.")
]
Of = Annotated[int | None, typer.Option("--of", help="With --batch: the number of units.")]
Adjacency = Annotated[
    Literal["zero-out", "replace-one"],
    typer.Option("--adjacency", help="Neighbours differ by a unit blanked, or by a unit replaced."),
]
Clipping = Annotated[
    Literal["example", "batch"],
    typer.Option("--clipping", help="Each unit's contribution is clipped, or the gradient of a batch's mean loss."),
]
Groups = Annotated[int, typer.Option("--tensor-groups", help="Groups of tensors, each clipped to the norm by itself.")]
Restart = Annotated[int | None, typer.Option("--restart-every", help="Tree noise, with trees over this many steps.")]
Bands = Annotated[int | None, typer.Option("--bands", help="Banded noise, correlated over this many steps.")]
Apart = Annotated[
    int | None,
    typer.Option("--apart", help="With --bands: steps after which a unit may take part again. Default: that many."),
]
Once = Annotated[bool, typer.Option("--once", help="With trees: no unit is in more than one step of a tree.")]
Votes = Annotated[
    int | None, typer.Option("--votes", metavar="S", help="Sums of votes: each site casts at most S, and is protected.")
]
Kind = Annotated[
    Literal["gaussian", "skellam", "discrete-gaussian"],
    typer.Option("--noise", help="With --votes: the noise that is added to their sums."),
]
Shares = Annotated[
    int | None,
    typer.Option("--shares", metavar="N", help="With discrete Gaussian noise: N sites add a share of it each."),
]
Group = Annotated[
    int, typer.Option("--group", metavar="K", help="For any K units together, such as one person's records.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, with all digits.")]


@app.command("epsilon")
def epsilon(
    noise_multiplier: Annotated[
        float, typer.Option("--noise-multiplier", help="Standard deviation of the noise / clipping norm.")
    ],
    steps: Steps,
    delta: Delta,
    sampling_rate: Rate = 1.0,
    batch: Batch = None,
    of: Of = None,
    adjacency: Adjacency = "zero-out",
    clipping: Clipping = "example",
    tensor_groups: Groups = 1,
    restart_every: Restart = None,
    once: Once = False,
    bands: Bands = None,
    apart: Apart = None,
    votes: Votes = None,
    kind: Kind = "gaussian",
    shares: Shares = None,
    group: Group = 1,
    curve: Annotated[bool, typer.Option("--curve", help="Also print ε at many values of δ.")] = False,
    chosen_among: ChosenAmong = None,
    shape: Shape = 1.0,
    as_json: Json = False,
) -> None:
    """Print ε of noisy sums of clipped contributions or of votes, by every accountant that has a bound, and what it
    means."""
    from murmura.privacy.curve import RATES, Curve
    from murmura.units import bound

    sampler = sampler_of(sampling_rate, batch, of, restart_every, once, bands, apart)
    plan = plan_of(noise_multiplier, steps, delta, sampler, adjacency, clipping, tensor_groups, restart_every, bands)
    plan = of_votes(plan, votes, kind, shares)
    found = _bounds(lambda name: plan.epsilon(accountant=name))
    whole = Curve.of(plan.event(), plan.adjacency)
    more = _more(plan, group, chosen_among, shape)
    if as_json:
        values = {name: _finite(one.value) for name, one in found.items()}
        figures = {
            "noise_multiplier": noise_multiplier,
            "epsilon": values,
            "notes": _notes(found),
            "curve": [{"delta": at, "epsilon": _finite(one)} for at, one in whole.table],
            "true_positives": {f"{rate:g}": whole.true_positives(rate) for rate in RATES},
            "also": {words: _bound(one) for words, one in more.items()},
        }
        _print_json(_asked(plan) | figures)
        return
    _print(plan, {name: (f"ε {bound(one.value, 4)}", one.value) for name, one in found.items()}, _notes(found))
    for words, one in more.items():
        typer.echo(f"{words}: ε {bound(one.value, 4)}, {_about(one)}")
    for sentence in whole.words():
        typer.echo(sentence)
    for at, value in whole.table if curve else ():
        typer.echo(f"δ = {at:<6g} ε {bound(value, 4)}")


@app.command("noise")
def noise(
    epsilon: Annotated[float, typer.Option("--epsilon", help="The ε that may be spent in the whole run.")],
    steps: Steps,
    delta: Delta,
    sampling_rate: Rate = 1.0,
    batch: Batch = None,
    of: Of = None,
    adjacency: Adjacency = "zero-out",
    tensor_groups: Groups = 1,
    restart_every: Restart = None,
    once: Once = False,
    bands: Bands = None,
    apart: Apart = None,
    votes: Votes = None,
    kind: Kind = "gaussian",
    shares: Shares = None,
    as_json: Json = False,
) -> None:
    """Print the smallest noise / clipping norm that keeps within ε, by every accountant that has a bound."""
    from murmura.units import bound

    sampler = sampler_of(sampling_rate, batch, of, restart_every, once, bands, apart)
    plan = plan_of(0.0, steps, delta, sampler, adjacency, "example", tensor_groups, restart_every, bands)
    plan = of_votes(plan, votes, kind, shares)
    found = _bounds(lambda name: plan.calibrated(epsilon, name))
    notes = _notes({name: one.epsilon(accountant=name) for name, one in found.items()})
    stds = {name: one.noise.std for name, one in found.items()}
    if as_json:
        _print_json(_asked(plan) | {"epsilon": epsilon, "noise_multiplier": stds, "notes": notes})
    else:
        _print(plan, {name: (f"noise multiplier {bound(std)}", std) for name, std in stds.items()}, notes)


@app.command("spent")
def spent(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, of any methods.")],
    delta: Annotated[
        float | None, typer.Option("--delta", help="δ of every ε. Default: the smallest of the runs' own.")
    ] = None,
    group: Group = 1,
    chosen_among: ChosenAmong = None,
    shape: Shape = 1.0,
    as_json: Json = False,
) -> None:
    """Print what runs have spent together on the records they share: the ε of their ledgers, composed.

    With --group it is that of any K records of one site together, or of any K sites. Sites have the same records if
    they joined with the same digest, whatever they are called. Runs by which options of these were chosen
    (run.chosen_by) count too, as far as they had come then. Without --chosen-among, hyperparameters that were chosen by
    trying are accounted for by giving all the runs that tried.
    """
    from murmura.privacy import composition, odometer, run_ledgers

    _require_choice(chosen_among, shape)
    chosen = None if chosen_among is None else composition.PrivateSelection(chosen_among, shape)
    read = odometer.every([run_ledgers.read(folder) for folder in dict.fromkeys(runs)])
    totals = odometer.totals(read, delta, chosen, group)
    units = sorted({one.unit for one in totals if one.runs < len(read)})
    anywhere = {unit: odometer.anywhere(read, unit, delta, group, chosen) for unit in units}
    if as_json:
        bounds = {unit: found and _bound(found) for unit, found in anywhere.items()}
        _print_json({"group": group, "totals": [_total(one) for one in totals], "anywhere": bounds})
        return
    from murmura.units import bound

    for one in totals:
        typer.echo(_held(one.members))
        unit = one.unit if group == 1 else f"any {group} {one.unit}s together"
        if one.epsilon is None:
            typer.echo(f"  {unit}: no ε; {one.refused}")
        else:
            runs_of = "1 run" if one.runs == 1 else f"{one.runs} runs together"
            typer.echo(f"  {unit}: ε {bound(one.epsilon.value, 4)}, {_about(one.epsilon)}; {runs_of}")
        for remark in one.remarks:
            typer.echo(f"  {remark}")
    for unit, wherever in anywhere.items():
        some = f"A {unit} that was" if group == 1 else f"Any {group} {unit}s that were"
        held = f"{some} at one site of every run" if unit == "record" else f"{some} in every run"
        known = f"at most {bound(wherever.value, 4)}, {_about(wherever)}" if wherever else "none, since a run has none"
        typer.echo(f"Different records by their digests may overlap. {held}: ε {known}")


def _held(members: Sequence[tuple[str, str]]) -> str:
    """Who had the records: sites by run."""
    sites: dict[str, list[str]] = {}
    for run, site in members:
        sites.setdefault(run, []).append(site)
    return "; ".join(f"{run}: {', '.join(names)}" for run, names in sites.items())


def _about(found: Epsilon) -> str:
    note = f", {found.note}" if found.note else ""
    return f"δ = {found.delta:g} ({found.adjacency}, {found.accountant}{note})"


def _total(total: Total) -> dict[str, Any]:
    found = {} if total.epsilon is None else _bound(total.epsilon)
    members = [{"run": run, "site": site} for run, site in total.members]
    known = {"unit": total.unit, "members": members, "runs": total.runs, "epsilon": None}
    return known | {"refused": total.refused or None, "remarks": list(total.remarks)} | found


def _bound(found: Epsilon) -> dict[str, Any]:
    known = asdict(found)
    return known | {"epsilon": _finite(known.pop("value")), "note": found.note or None}


def _require_choice(chosen_among: float | None, shape: float) -> None:
    what = "--shape needs --chosen-among, the mean of what it describes"
    check(chosen_among is not None or shape == 1, what, "Give both.")


def _bounds(of: Callable[[str], Found]) -> dict[str, Found]:
    """What each accountant finds; those that have no bound of such a plan are left out."""
    from murmura.errors import PrivacyError
    from murmura.privacy.accounting import ACCOUNTANTS

    found, refused = {}, []
    for name in ACCOUNTANTS:
        try:
            found[name] = of(name)
        except PrivacyError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return found


def _more(plan: PrivacyPlan, group: int, chosen_among: float | None, shape: float) -> dict[str, Epsilon]:
    """What else is asked of a plan: ε of a group, and of one result of several."""
    from murmura.privacy.composition import PrivateSelection, ReleasedSteps, composed

    _require_choice(chosen_among, shape)
    found: dict[str, Epsilon] = {}
    release = ReleasedSteps(plan, plan.steps)
    if group != 1:
        found[f"any {group} units together"] = composed([release], plan.delta, plan.adjacency, size=group)
    if chosen_among is not None:
        words, chosen = f"chosen among {chosen_among:g} runs on average", PrivateSelection(chosen_among, shape)
        found[words] = composed([release], plan.delta, plan.adjacency, chosen)
    return found


def _notes(found: Mapping[str, Epsilon]) -> dict[str, str]:
    return {name: one.note for name, one in found.items() if one.note}


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _print(plan: PrivacyPlan, lines: Mapping[str, tuple[str, float]], notes: Mapping[str, str]) -> None:
    least = min(value for _, value in lines.values())
    clipping = "" if plan.clipping.kind == "example" and plan.clipping.groups == 1 else f"{plan.clipping.describe()}; "
    parts = f"{plan.adjacency}; {plan.sampler.describe()}; {clipping}{_noise(plan)}"
    typer.echo(f"{parts}steps: {plan.steps}; δ = {plan.delta:g}")
    for name, (line, value) in lines.items():
        label = name if name == "exact" else name.upper()
        remarks = ["tightest"] * (value == least and len(lines) > 1 and isfinite(value)) + (
            [notes[name]] if name in notes else []
        )
        typer.echo(f"{label:<6} {line}" + (f"   ({'; '.join(remarks)})" if remarks else ""))


def _noise(plan: PrivacyPlan) -> str:
    """Which noise it is, unless it is Gaussian; how much is unknown where that is asked."""
    noise = plan.noise
    if noise.kind == "gaussian":
        return ""
    return f"{noise.describe() if noise.std else noise.words('')}; "


def _asked(plan: PrivacyPlan) -> dict[str, Any]:
    asked = json.loads(plan.to_json())
    return {name: value for name, value in asked.items() if name != "unit"}


def _print_json(figures: dict[str, Any]) -> None:
    from murmura.runs import jsontext

    typer.echo(jsontext.dumps(figures))
