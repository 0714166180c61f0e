"""Every option of an experiment under what it means, written from the sections themselves: it cannot fall behind."""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from murmura.config import Section, sections_in, toml
from murmura.data.records import Kind
from murmura.experiment.config import Experiment
from murmura.federation.method_config import MethodConfig

WIDTH = 100
_PROCESSES = {"run.engine": "processes"}
_SHARED = {"data.sites.by": "partition"}
NEEDS: Mapping[str, Mapping[str, Any]] = {
    "run.workers": _PROCESSES,
    "run.answer_seconds": _PROCESSES,
    "data.nonmember_records": {"data.heldout": "FILE"},
    "data.heldout_fields": {"data.heldout": "FILE"},
    "data.user": {"data.records_per_user": 10},
    "data.records_per_user": {"data.user": "COLUMN"},
    "data.few_shot": {**_SHARED, "data.sites.count": 10},
    "data.opening": {"data.kind": "document"},
    "data.sites.column": {"data.sites.by": "column"},
    "data.sites.count": _SHARED,
    "data.sites.label": {**_SHARED, "data.sites.count": 10, "data.sites.scheme": "dirichlet"},
    "augment": {"augment.pool": "FOLDER"},
    "augment.less_sample": {"augment.strategy": "less"},
    "augment.writer": {"augment.strategy": "self-instruct", "augment.pool": None},
    "evaluation.benchmarks": {"evaluation.benchmarks.tasks": ["arc_easy"]},
    "budget.epsilon": {"budget.folder": "FOLDER"},
    "tracking.folder": {"tracking.to": ["tensorboard"]},
    "tracking.project": {"tracking.to": ["mlflow"]},
    "tracking.mlflow_uri": {"tracking.to": ["mlflow"]},
    "method.noise_multiplier": {"method.epsilon": None},
    "method.noise.bands": {"method.noise.kind": "banded", "method.sites_per_round": 10, "method.noise.honaker": None},
    "method.substitute_label": {"method.substitute": "FILE"},
    "method.survivors": {"method.selection": "rank"},
    "method.endpoint_key": {"method.endpoint": "URL"},
}
"""What else must be set for an option, or a table, that has no value by default; None where another must go for it."""

REQUIRED = "  # this table needs it"
OF_INSTRUCTIONS = ("augment", "evaluation.choices", "evaluation.benchmarks")
"""Tables that are refused with records of another kind."""
OF_DOCUMENTS = ("data.opening",)
"""Options that are."""
_Suited = Mapping[str, tuple[Any, str]]


def tables(options: type[MethodConfig], given: Mapping[str, Any], suited: _Suited) -> Iterator[str]:
    """The lines of all tables.

    Args:
        options: of the method.
        given: values that the file must have, by dotted key.
        suited: values that are better than the defaults, and what they suit.
    """
    every = _Every(options, given, suited)
    for name, field in Experiment.model_fields.items():
        section = options if name == "method" else section_of(field)
        live = field.default is not None or any(key.startswith(f"{name}.") for key in given)
        yield from every.table(name, section, live=live)


class _Every:
    def __init__(self, options: type[MethodConfig], given: Mapping[str, Any], suited: _Suited) -> None:
        self._options, self._given, self._suited = options, given, suited
        self._all_needs = needs(options)
        self._kinds: tuple[Kind, ...] = options.kinds
        self._examples = {
            "data.kind": self._kinds[0],
            "method.threshold": 0.9,
            "augment.less_sample": 20_000,
            "augment.every": 2,
        }

    def table(self, path: str, section: type[Section], *, live: bool) -> Iterator[str]:
        """The lines of one table and of those inside it; in one that is not live all are comments."""
        if path in OF_INSTRUCTIONS and "instruction" not in self._kinds:
            return
        mark = "" if live else "# "
        yield from comment(section.__doc__)
        yield f"{mark}[{path}]{'' if live else self._needs(path, path)}"
        inner = {name: field for name, field in section.model_fields.items() if sections_in(field.annotation)}
        for name, field in section.model_fields.items():
            if name not in inner:
                yield from self._option(path, name, field, mark)
        yield ""
        for name, field in inner.items():
            below, below_live = sections_in(field.annotation), live and field.default is not None
            if len(below) == 1:
                yield from self.table(f"{path}.{name}", below[0], live=below_live)
            else:
                yield from self._choice(f"{path}.{name}", field, below, live=below_live)

    def _choice(self, path: str, field: FieldInfo, sections: list[type[Section]], *, live: bool) -> Iterator[str]:
        """The lines of a table whose options depend on its ``kind``: those of one kind, and the others as comments."""
        kind = self._given.get(path, default_kind(field))
        mark = "" if live else "# "
        yield from comment(field.description)
        yield f"{mark}[{path}]{'' if live else self._needs(path, path)}"
        told = [one for section in sections for one in kinds_of(section)]
        yield from comment(f"One of {', '.join(toml(one) for one in told)}.")
        yield f"{mark}kind = {toml(kind)}{'' if live else REQUIRED}"
        chosen = next(section for section in sections if kind in kinds_of(section))
        for name, option in chosen.model_fields.items():
            if name != "kind":
                yield from self._option(path, name, option, mark)
        others = {name: option for section in sections for name, option in section.model_fields.items()}
        for name in [name for name in others if name not in chosen.model_fields]:
            yield from self._option(path, name, others[name], "# ", with_needs=True)
        yield ""

    def _option(self, path: str, name: str, field: FieldInfo, mark: str, *, with_needs: bool = False) -> Iterator[str]:
        key = f"{path}.{name}"
        if key in OF_DOCUMENTS and "document" not in self._kinds:
            return
        default = default_of(field)
        value, remark = self._given.get(key, default), ""
        if key in self._suited:
            value, whom = self._suited[key]
            remark = f" This value suits the {whom}; the default is {'none' if default is None else toml(default)}."
        yield from comment(_description(field) + remark)
        if value is not None:
            yield f"{mark}{name} = {toml(value)}{self._needs(key, path) if with_needs else ''}"
        else:
            example = toml(self._examples[key]) if key in self._examples else _placeholder(field)
            needed = REQUIRED if field.is_required() and not with_needs else self._needs(key, path)
            yield f"# {name} = {example}{needed}"

    def _needs(self, key: str, path: str) -> str:
        """A comment on what else must be set, as far as that is not so already."""
        found = {other.removeprefix(f"{path}."): value for other, value in self.needed(key).items()}
        kept = " and ".join(f"{one} = {toml(value)}" for one, value in found.items() if value is not None)
        gone = " and ".join(one.rpartition(".")[2] for one, value in found.items() if value is None)
        told = [f"with {kept}"] * bool(kept) + [f"in place of {gone}"] * bool(gone)
        return f"  # {', '.join(told)}" if told else ""

    def needed(self, key: str) -> dict[str, Any]:
        """What of ``NEEDS`` the method has, and is not so by default."""
        return {other: value for other, value in self._all_needs.get(key, {}).items() if self._is_open(other, value)}

    def _is_open(self, other: str, value: Any) -> bool:
        table, _, name = other.rpartition(".")
        if other == "data.kind" and value == self._kinds[0]:
            return False
        if table != "method":
            return other not in self._given or self._given[other] != value
        field = self._options.model_fields.get(name)
        return field is not None and (value is not None or default_of(field) is not None)


def needs(options: type[MethodConfig]) -> dict[str, Mapping[str, Any]]:
    """``NEEDS``, and for each option of a table that depends on its ``kind``, a kind that has it; None where an option
    of the usual kind must go."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, field in Experiment.model_fields.items():
        found |= _of_kinds(options if name == "method" else section_of(field), name)
    return found | dict(NEEDS)


def _of_kinds(section: type[Section], path: str) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for name, field in section.model_fields.items():
        below, here = sections_in(field.annotation), f"{path}.{name}"
        usual = next((one for one in below if len(below) > 1 and default_kind(field) in kinds_of(one)), None)
        for one in below:
            found |= _of_kinds(one, here)
            if usual is None or one is usual:
                continue
            live = [key for key, f in usual.model_fields.items() if default_of(f) is not None]
            gone = {f"{here}.{key}": None for key in live if key not in one.model_fields}
            required = {key: f for key, f in one.model_fields.items() if f.is_required() and key != "kind"}
            kept = {f"{here}.{key}": tomllib.loads(f"x = {_placeholder(f)}")["x"] for key, f in required.items()}
            for key in one.model_fields.keys() - usual.model_fields.keys():
                other = {k: value for k, value in kept.items() if k != f"{here}.{key}"}
                found.setdefault(f"{here}.{key}", other | {f"{here}.kind": kinds_of(one)[0]} | gone)
    return found


def kinds_of(section: type[Section]) -> tuple[str, ...]:
    """What ``kind`` may be for a section that depends on it."""
    return get_args(section.model_fields["kind"].annotation)


def default_kind(field: FieldInfo) -> str:
    """Which kind an option is if it is not given; of one that is left out usually, the first."""
    default = default_of(field)
    return default.kind if default is not None else kinds_of(sections_in(field.annotation)[0])[0]


def comment(text: str | None) -> list[str]:
    """A text as comments."""
    return textwrap.wrap(plain(text), WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def plain(text: str | None) -> str:
    """A text on one line."""
    return " ".join((text or "").split())


def _description(field: FieldInfo) -> str:
    """What the option means, and its choices where that does not name them."""
    text, choices = plain(field.description), _choices(field.annotation)
    if len(choices) == 1 or all(str(choice) in text for choice in choices):
        return text
    return f"{text} One of {', '.join(toml(choice) for choice in choices)}.".strip()


def section_of(field: FieldInfo) -> type[Section]:
    """The section that a part of an experiment is."""
    [found] = sections_in(field.annotation)
    return found


def default_of(field: FieldInfo) -> Any:
    """What an option is if it is not given; None where it must be, or is not set."""
    return None if field.is_required() else field.get_default(call_default_factory=True)


def _choices(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [choice for part in get_args(annotation) for choice in _choices(part)]


def _placeholder(field: FieldInfo) -> str:
    """An example of a value for an option that has none."""
    choices = _choices(field.annotation)
    kinds = [getattr(kind, "__origin__", kind) for kind in (field.annotation, *get_args(field.annotation))]
    if choices:
        return toml(choices if list in kinds or tuple in kinds else choices[0])
    if bool in kinds:
        return "true"
    if int in kinds:
        return "10"
    if float in kinds:
        return "0.5" if any(getattr(limit, end, 2) <= 1 for limit in field.metadata for end in ("lt", "le")) else "1.0"
    if list in kinds:
        return '["first", "second"]'
    if dict in kinds:
        return "{}"
    return '"..."'
