"""The methods. A new one is a folder here and one line below; nothing else is edited."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmura.config import Section
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
}


def parse_config(table: Mapping[str, Any], where: str, base: Path | None = None) -> Section:
    """The method's options from the ``[method]`` table, whose ``name`` says which method.

    Raises:
        ConfigError: no such method, or an option that it does not have.
    """
    name = table.get("name")
    if name is None:
        raise ConfigError("method.name is missing", where=where, fix=nearest("", METHODS))
    return section(name, where).parse(table, where, base)


def section(name: Any, where: str | None = None) -> type[Section]:
    """The options of method ``name``.

    Raises:
        ConfigError: there is no such method.
    """
    if name not in METHODS:
        raise ConfigError(f"there is no method '{name}'", where=where, fix=nearest(str(name), METHODS))
    config: type[Section] = getattr(import_module(f"murmura.methods.{name}.config"), METHODS[name][1])
    return config


def kind(config: Any) -> Kind:
    """The kind of record that a method works with, by its options; instructions unless they say otherwise."""
    found: Kind = getattr(type(config), "kind", "instruction")
    return found


def build(config: Any, aggregation: AggregationConfig | None = None) -> Method:
    """The method that a config belongs to, with its aggregation rule.

    Raises:
        ConfigError: the method has no use for that rule.
    """
    module = import_module(f"murmura.methods.{config.name}.method")
    if aggregation is None:
        return getattr(module, METHODS[config.name][0])(config)
    from murmura.aggregation.rules import rule

    method: Method = getattr(module, METHODS[config.name][0])(config, rule(aggregation))
    if objection := method.objection(aggregation):
        raise ConfigError(objection[0], where=f"aggregation.rule = '{aggregation.rule}'", fix=objection[1])
    return method
