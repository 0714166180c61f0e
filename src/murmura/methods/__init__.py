"""The methods. A new one is a folder here and one line below, or an entry point of another package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from murmura.config import Elsewhere
from murmura.errors import ConfigError, nearest
from murmura.federation.method_config import MethodConfig
from murmura.registry import Registry, imported

if TYPE_CHECKING:
    from murmura.aggregation.config import AggregationConfig
    from murmura.federation.method import Method

METHODS = Registry(
    "murmura.methods",
    {
        "lpfl": "murmura.methods.lpfl.config:LPFLConfig",
        "dpfedavg": "murmura.methods.dpfedavg.config:DPFedAvgConfig",
        "dpftrl": "murmura.methods.dpftrl.config:DPFTRLConfig",
        "dplora": "murmura.methods.dplora.config:DPLoRAConfig",
        "fedit": "murmura.methods.fedit.config:FedITConfig",
        "centralised": "murmura.methods.fedit.config:CentralisedConfig",
        "local": "murmura.methods.fedit.config:LocalConfig",
        "fewfedpit": "murmura.methods.fewfedpit.config:FewFedPITConfig",
        "fewfedweight": "murmura.methods.fewfedweight.config:FewFedWeightConfig",
        "pretext": "murmura.methods.pretext.config:PretextConfig",
    },
)
"""By name in ``[method]``: the options, which name the method's class."""


def parse_config(
    table: Mapping[str, Any],
    where: str,
    base: Path | None = None,
    elsewhere: Elsewhere | None = None,
    former: Mapping[str, str] | None = None,
) -> MethodConfig:
    """The method's options from the ``[method]`` table, whose ``name`` says which method.

    Args:
        elsewhere, former: see ``Section.parse``.

    Raises:
        ConfigError: no such method, or an option that it does not have.
    """
    name = table.get("name")
    if name is None:
        raise ConfigError("method.name is missing", where=where, fix=nearest("", METHODS))
    others = lambda: {**(elsewhere() if elsewhere else {}), **_keys_of_others(name)}  # noqa: E731
    return section(name, where).parse(table, where, base, others, former)


def section(name: Any, where: str | None = None) -> type[MethodConfig]:
    """The options of method ``name``.

    Raises:
        ConfigError: there is no such method.
    """
    if name not in METHODS:
        raise ConfigError(f"there is no method '{name}'", where=where, fix=nearest(str(name), METHODS, _algorithms()))
    found: type[MethodConfig] = METHODS.load(name)
    return found


def method_class(config: MethodConfig) -> type[Method]:
    """The class of the method that a config belongs to, which needs torch."""
    found: type[Method] = imported(config.implementation)
    return found


_CHOICES = ("algorithm", "variant")
"""Options by which one method stands for several that papers give names of their own."""


def choices() -> list[tuple[str, str, str]]:
    """Method, option and value of all that methods stand for besides their names; first, what each does anyway."""
    found = [
        (name, option, value, value == field.default)
        for name in METHODS
        for option in _CHOICES
        if (field := section(name).model_fields.get(option))
        for value in get_args(field.annotation)
    ]
    return [(name, option, value) for name, option, value, _ in sorted(found, key=lambda one: not one[3])]


def _algorithms() -> dict[str, str]:
    """What somebody may take for a method's name, by how an experiment file asks for it."""
    return {f"'{name}' with {option} = '{value}'": value for name, option, value in choices()}


def _keys_of_others(name: str) -> dict[str, str]:
    """Options of the methods that are not called ``name``, by whose they are."""
    return {f"method.{key} of '{one}'": key for one in METHODS if one != name for key in section(one).model_fields}


def build(config: MethodConfig, aggregation: AggregationConfig | None = None) -> Method:
    """The method that a config belongs to, with its aggregation; whether it can work with that, says
    ``experiment.validate``."""
    from murmura.aggregation.rules import rule

    return method_class(config)(config, rule(aggregation) if aggregation else None)
