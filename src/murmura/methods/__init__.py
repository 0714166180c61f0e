"""The methods. A new one is a folder here and one line below; nothing else is edited."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from murmura.config import Elsewhere, Section
from murmura.data.records import Kind
from murmura.errors import ConfigError, nearest

if TYPE_CHECKING:
    from murmura.aggregation.config import AggregationConfig
    from murmura.federation.method import Method

# name in [method] -> class in the folder's method.py, class in its config.py
METHODS = {
    "lpfl": ("LPFL", "LPFLConfig"),
    "dpfedavg": ("DPFedAvg", "DPFedAvgConfig"),
    "dpftrl": ("DPFTRL", "DPFTRLConfig"),
    "dplora": ("DPLoRA", "DPLoRAConfig"),
    "fedit": ("FedIT", "FedITConfig"),
    "fewfedpit": ("FewFedPIT", "FewFedPITConfig"),
    "fewfedweight": ("FewFedWeight", "FewFedWeightConfig"),
    "pretext": ("Pretext", "PretextConfig"),
}


def parse_config(
    table: Mapping[str, Any], where: str, base: Path | None = None, elsewhere: Elsewhere | None = None
) -> Section:
    """The method's options from the ``[method]`` table, whose ``name`` says which method.

    Args:
        elsewhere: keys of other tables; see ``Section.parse``.

    Raises:
        ConfigError: no such method, or an option that it does not have.
    """
    name = table.get("name")
    if name is None:
        raise ConfigError("method.name is missing", where=where, fix=nearest("", METHODS))
    return section(name, where).parse(
        table, where, base, lambda: {**(elsewhere() if elsewhere else {}), **_keys_of_others(name)}
    )


def section(name: Any, where: str | None = None) -> type[Section]:
    """The options of method ``name``.

    Raises:
        ConfigError: there is no such method.
    """
    if name not in METHODS:
        raise ConfigError(f"there is no method '{name}'", where=where, fix=nearest(str(name), METHODS, _algorithms()))
    return _section(name)


def _section(name: str) -> type[Section]:
    config: type[Section] = getattr(import_module(f"murmura.methods.{name}.config"), METHODS[name][1])
    return config


_CHOICES = ("algorithm", "variant")
"""Options by which one method stands for several that papers give names of their own."""


def choices() -> list[tuple[str, str, str]]:
    """Method, option and value of all that methods stand for besides their names; first, what each does anyway."""
    found = [
        (name, option, value, value == field.default)
        for name in METHODS
        for option in _CHOICES
        if (field := _section(name).model_fields.get(option))
        for value in get_args(field.annotation)
    ]
    return [(name, option, value) for name, option, value, _ in sorted(found, key=lambda one: not one[3])]


def _algorithms() -> dict[str, str]:
    """What somebody may take for a method's name, by how an experiment file asks for it."""
    return {f"'{name}' with {option} = '{value}'": value for name, option, value in choices()}


def _keys_of_others(name: str) -> dict[str, str]:
    """Options of the methods that are not called ``name``, by whose they are."""
    return {f"method.{key} of '{one}'": key for one in METHODS if one != name for key in _section(one).model_fields}


def kinds(config: Any) -> tuple[Kind, ...]:
    """The kinds of record that a method works with, by its options, the usual one first; instructions unless they say
    otherwise."""
    found: tuple[Kind, ...] = getattr(type(config), "kinds", ("instruction",))
    return found


def rounds(config: Any) -> int:
    """How many rounds a run of the method has, by its options."""
    found: int = getattr(config, "all_rounds", None) or config.rounds
    return found


def training(config: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The ``[training]`` table with what a preset of the method fills in; what is given stays.

    Args:
        config: the method's options.
        given: the table as it stands in the file.
    """
    implied = dict(getattr(config, "training", {}))
    if "epochs" in given:  # the other way to say how long a round is
        implied.pop("max_steps", None)
    return implied | dict(given)


def data(config: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The ``[data]`` table with what the method fills in, which is how an experiment is written down.

    Args:
        config: the method's options.
        given: the table as it stands in the file.
    """
    found = dict(given)
    if found.get("kind") is None:
        found["kind"] = kinds(config)[0]
    if found["kind"] == "document" and found.get("opening") is None:
        found["opening"] = getattr(config, "opening", "tokenizer")
    return found


def build(config: Any, aggregation: AggregationConfig | None = None) -> Method:
    """The method that a config belongs to, with its aggregation.

    Raises:
        ConfigError: the method cannot work with that.
    """
    module = import_module(f"murmura.methods.{config.name}.method")
    if aggregation is None:
        return getattr(module, METHODS[config.name][0])(config)
    from murmura.aggregation.rules import rule

    method: Method = getattr(module, METHODS[config.name][0])(config, rule(aggregation))
    if objection := method.objection(method.rule.config):
        raise ConfigError(objection[0], where=_where(method.rule.config), fix=objection[1])
    if method.rule.config.secure and method.needs_replies:
        raise ConfigError(
            f"{method.label} does not work with sums alone: {method.needs_replies}", where="aggregation.secure",
            fix="Leave it out, or take another method.",
        )  # fmt: skip
    return method


def _where(aggregation: AggregationConfig) -> str:
    """The options of an aggregation that are not plain averaging's."""
    plain = {"rule": "mean", "local": "plain", "server": "plain"}
    named = {
        f"aggregation.{key}": getattr(aggregation, key) for key in plain if getattr(aggregation, key) != plain[key]
    }
    return ", ".join(f"{key} = '{value}'" for key, value in named.items()) or "aggregation.ranks"
