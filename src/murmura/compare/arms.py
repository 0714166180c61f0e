"""The arms of a comparison, each an experiment, out of the files that a user names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from murmura.compare.config import RATE, Arm, CompareConfig
from murmura.config import leaves, shown
from murmura.errors import ConfigError
from murmura.experiment.config import COMPARE, Experiment, override, read_table
from murmura.experiment.validate import method_of
from murmura.progress import say
from murmura.units import listing

_READ = ("kind", "opening", "fields", "heldout_fields", "template")
"""Options of [data] that may differ between kinds of record: how they are read."""
_OF_THE_COMPARISON = {
    "run.seed": "Choose seeds with --seeds.",
    "run.folder": "Choose where its runs are with --out.",
    "run.name": "Name an arm in [[compare.arms]].",
}
_LONGEST = 180  # bytes of an arm's name in those of folders, which may have 255


@dataclass(frozen=True)
class Candidate:
    """One arm.

    Attributes:
        name: how tables call it.
        experiment: what is run; seed, folder and rate are the comparison's.
        rates: learning rates to choose from; one alone is taken as it is.
        file: where it stands.
        rate_of: the arm whose rate is taken in place of these; empty where it has its own.
    """

    name: str
    experiment: Experiment
    rates: tuple[float, ...]
    file: str
    rate_of: str = ""

    @property
    def slug(self) -> str:
        """Its name as a part of folders' names."""
        kept = "".join(one if one.isalnum() or one in "-.=" else "-" for one in self.name)
        slug = "-".join(part for part in kept.split("-") if part) or "arm"
        return slug.encode()[:_LONGEST].decode(errors="ignore")


def load(
    files: Sequence[Path],
    changes: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
) -> tuple[CompareConfig, list[Candidate]]:
    """Read what is to be compared.

    Args:
        files: experiment files, each an arm; or one with a table ``[compare]``, whose arms it has.
        changes: options of all arms, by dotted key.
        options: of the comparison, in place of those in a file.
        limits: of it, likewise.

    Raises:
        ConfigError: a file or an option is wrong; two arms are the same, have different records, model or measurements,
            or the reference is no arm.
    """
    tables = [(str(file), read_table(file), file.parent) for file in files]
    comparisons = [(where, table) for where, table, _ in tables if COMPARE in table]
    if len(comparisons) > 1:
        fix = "Put all arms into one of them."
        raise ConfigError(f"[{COMPARE}] stands in {comparisons[0][0]} too", where=comparisons[1][0], fix=fix)
    where, asked = (comparisons[0][0], comparisons[0][1][COMPARE]) if comparisons else (str(files[0]), {})
    if not isinstance(asked, Mapping):
        raise ConfigError(f"'{COMPARE}' is not a table", where=where, fix="Write [compare] and [[compare.arms]].")
    own = asked.get("limits", {})
    bounds = {**own, **(limits or {})} if isinstance(own, Mapping) else own
    config = CompareConfig.parse({**asked, **(options or {}), "limits": bounds}, f"{where} [{COMPARE}]")
    found = [one for where, table, base in tables for one in _arms(table, where, base, config, changes or {})]
    _require_heeded(changes or {}, found)
    found = _named(found)
    _require_comparable(found)
    if config.limits.max_epsilon is not None:
        _require_same_delta(found)
    own = [one.name for one in found if not one.rate_of]
    for asked_for, key, names in [
        (config.reference or "", "reference", [one.name for one in found]),
        *((one.rate_of, "arms.rate_of", own) for one in found),
    ]:
        if asked_for and asked_for not in names:
            what = f"there is no arm '{asked_for}'" + " with a rate of its own" * (key != "reference")
            fix = f"Arms: {', '.join(names)}." if names else "Leave rate_of out of one of them."
            raise ConfigError(what, where=f"{COMPARE}.{key}", fix=fix)
    return config, found


def _arms(
    table: Mapping[str, Any], where: str, base: Path, config: CompareConfig, changes: Mapping[str, Any]
) -> Iterator[Candidate]:
    """The arms of one file."""
    common = {key: value for key, value in table.items() if key != COMPARE}
    listed = config.arms if COMPARE in table else []
    for place, arm in enumerate(listed or [Arm()]):
        told = f"{where}: {COMPARE}.arms, {arm.name or f'number {place + 1}'}" if listed else where
        grid = {**(config.grid if COMPARE in table else {}), **arm.grid}
        _require_said_once(arm, grid, told)
        made = []
        for values in product(*grid.values()):
            combination = dict(zip(grid, values, strict=True))
            mine = {**arm.changes, **combination}
            own = _changed(common, {**mine, **changes}, told)
            experiment = Experiment.of(own, where=told if mine else where, base=base)
            plain = len(config.arms) == 0 and not combination
            name = arm.name or (experiment.run.name if plain and "run" in common else method_of(experiment).title)
            rates = tuple(config.rates if arm.rates is None else arm.rates) or (experiment.training.lr,)
            if RATE in mine and (arm.rate_of or rates != (experiment.training.lr,)):
                fix = "Leave it out, or give the arm rates = [ONE], which is taken as it is."
                raise ConfigError(f"{RATE} is given, and another rate would be taken", where=told, fix=fix)
            words = ", ".join(f"{key.rpartition('.')[2]} = {value}" for key, value in combination.items())
            made.append((words, Candidate(name, experiment, rates, told, arm.rate_of or "")))
        titled = listed and not arm.name and len({one.name for _, one in made}) == len(made)  # titles tell them apart
        for words, one in made:
            yield one if titled or not words else replace(one, name=f"{one.name}, {words}")


def _require_said_once(arm: Arm, grid: Mapping[str, Any], where: str) -> None:
    """Refuse a grid over what an arm says itself, which would be passed over."""
    given = [key for key, _ in leaves(arm.changes)]
    for key in grid:
        if any(own == key or own.startswith(f"{key}.") for own in given):
            what = f"{key} is given, and a grid would put its own values in place of that"
            instead = f'give the arm a name and grid = {{ "{key}" = [ONE] }}, which wins.'
            raise ConfigError(what, where=where, fix=f"Leave it out. Where [compare.grid] has it, {instead}")


def _require_heeded(changes: Mapping[str, Any], found: Sequence[Candidate]) -> None:
    """Refuse to change an option in all arms that the comparison chooses for each."""
    chosen = dict(_OF_THE_COMPARISON)
    takers = [one.name for one in found if not one.rate_of and one.rates == (one.experiment.training.lr,)]
    if not takers:
        chosen[RATE] = "Choose rates with --rates."
    elif RATE in changes and len(takers) < len(found):
        say(f"--set {RATE} is for {listing(takers)} alone; other arms have a rate that is chosen or given")
    for key in (key for key in changes if key in chosen):
        what = f"a comparison chooses {key} itself, for each of its runs"
        raise ConfigError(what, where="--set", fix=chosen[key])


def _changed(table: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The tables with some options changed; another method begins with its own defaults, and with as many rounds."""
    found = deepcopy(dict(table))
    method = found.get("method")
    other = changes.get("method.name")
    if isinstance(method, Mapping) and other is not None and other != method.get("name"):
        found["method"] = {key: value for key, value in method.items() if key == "rounds"}
    for key, value in changes.items():
        override(found, key, value, where)
    return found


def _named(found: list[Candidate]) -> list[Candidate]:
    """The same, each with a name of its own."""
    seen: dict[str, Candidate] = {}
    for one in found:
        told = repr((_settings(one.experiment), one.rate_of or one.rates))
        if told in seen:
            what = f"'{one.name}' is the same experiment as '{seen[told].name}'"
            raise ConfigError(what, where=one.file, fix="Remove one, or change what should differ.")
        seen[told] = one
    numbered: Counter[str] = Counter()
    named = []
    for one in found:
        numbered[one.name] += 1  # the first is called as it was before there were others, so that its runs are kept
        named.append(replace(one, name=f"{one.name} ({numbered[one.name]})") if numbered[one.name] > 1 else one)
    places: dict[str, Candidate] = {}
    for one in named:
        other = places.setdefault(one.slug.casefold(), one)  # some file systems do not tell cases apart
        if other is not one:
            what = f"'{one.name}' would be kept in the same folder as '{other.name}'"
            raise ConfigError(what, where=one.file, fix="Give it another name, with other letters or digits.")
    return named


def _settings(experiment: Experiment) -> dict[str, Any]:
    """All that its results depend on besides the seed and the rate, which are the comparison's."""
    tables = {key: value for key, value in experiment.tables().items() if key != "run"}
    return tables | {"training": {key: value for key, value in tables["training"].items() if f"training.{key}" != RATE}}


def _require_comparable(found: Sequence[Candidate]) -> None:
    """Refuse arms that would not be run on the same records, with the same model, or not be measured alike."""
    of_kind: dict[str, Candidate] = {}
    for arm in found:
        alike = of_kind.setdefault(arm.experiment.task.kind, arm)
        _require_same(arm, found[0], _shared, "arms must have the same records, model and measurements")
        _require_same(arm, alike, _reading, "arms about one kind of record must read and measure it alike")


def _require_same_delta(found: Sequence[Candidate]) -> None:
    """Refuse arms that promise their ε at different δ: one limit would be several."""
    promising = (one for one in found if method_of(one.experiment).protects is not None)
    known = [(one, one.experiment.method.delta) for one in promising if hasattr(one.experiment.method, "delta")]
    for arm, delta in known:
        first, same = known[0]
        if delta != same:
            what = f"method.delta is {delta:g}, and in '{first.name}' {same:g}: ε at another δ is another ε"
            fix = "Make it the same in all arms that promise an ε, or leave out the limit on ε."
            raise ConfigError(what, where=arm.file, fix=fix)


def _require_same(arm: Candidate, other: Candidate, options: Callable[[Experiment], dict[str, Any]], why: str) -> None:
    own, first = options(arm.experiment), options(other.experiment)
    for key in sorted({*first, *own}):
        if first.get(key) != own.get(key):
            what = f"{key} is {shown(own.get(key))}, and in '{other.name}' {shown(first.get(key))}: {why}"
            raise ConfigError(what, where=arm.file, fix="Make it the same in both.")


def _shared(experiment: Experiment) -> dict[str, Any]:
    """What all arms must have in common, by dotted key."""
    tables = experiment.tables()
    read = {f"data.{key}": value for key, value in tables["data"].items() if key not in _READ}
    measured = {f"evaluation.{key}": value for key, value in tables["evaluation"].items()}
    personal, promises = experiment.personal, method_of(experiment).protects is not None
    return {
        **{f"model.{key}": getattr(experiment.model, key) for key in ("name", "adapter", "quantization")},
        **read,
        **measured,
        "personal.heldout": 0.0 if personal is None else personal.apart(promises=promises),
        "audit.canaries": experiment.audit.canaries,
    }


def _reading(experiment: Experiment) -> dict[str, Any]:
    """What arms about one kind of record must have in common besides."""
    data = experiment.tables()["data"]
    found = {f"data.{key}": data.get(key) for key in _READ}
    # The loss that is measured on preferences is that of training, whose scale this is.
    return found | ({"training.dpo_beta": experiment.training.dpo_beta} if data["kind"] == "preference" else {})
