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
        "vanilla-fl": "murmura.methods.dplora.config:VanillaFLConfig",
        "cmfl": "murmura.methods.dplora.config:CMFLConfig",
        "tfedavg": "murmura.methods.dplora.config:TFedAvgConfig",
        "fedit": "murmura.methods.fedit.config:FedITConfig",
        "centralised": "murmura.methods.fedit.config:CentralisedConfig",
        "local": "murmura.methods.fedit.config:LocalConfig",
        "fewfedpit": "murmura.methods.fewfedpit.config:FewFedPITConfig",
        "fedmit": "murmura.methods.fewfedpit.config:FedMITConfig",
        "locit-sg": "murmura.methods.fewfedpit.config:LocITConfig",
        "fewfedweight": "murmura.methods.fewfedweight.config:FewFedWeightConfig",
        "pretext": "murmura.methods.pretext.config:PretextConfig",
    },
)
"""By name in ``[method]``: the options, which name the method's class."""


def parse_config(
    table: Mapping[str, Any], where: str, base: Path | None = None, elsewhere: Elsewhere | None = None
) -> MethodConfig:
    """The method's options from the ``[method]`` table, whose ``name`` says which method.

    Args:
        elsewhere: see ``Section.parse``.

    Raises:
        ConfigError: no such method, or an option that it does not have.
    """
    name = table.get("name")
    if name is None:
        raise ConfigError("method.name is missing", where=where, fix=nearest("", METHODS))
    others = lambda: {**(elsewhere() if elsewhere else {}), **_keys_of_others(name)}  # noqa: E731
    return section(name, where).parse(table, where, base, others)


def section(name: Any, where: str | None = None) -> type[MethodConfig]:
    """The options of method ``name``.

    Raises:
        ConfigError: there is no such method, or the package that brings it has no options of one.
    """
    if not isinstance(name, str):
        raise ConfigError("method.name must be one name in quotes", where=where, fix=nearest(str(name), METHODS))
    if name not in METHODS:
        raise ConfigError(f"there is no method '{name}'", where=where, fix=nearest(name, METHODS))
    found: type[MethodConfig] = METHODS.load(name, MethodConfig)
    with METHODS.guarded(name, "is no name of these options"):
        if get_args(found.model_fields["name"].annotation) != (name,):
            raise TypeError(f'they have to say name: Literal["{name}"]')
    return found


def method_class(config: MethodConfig) -> type[Method]:
    """The class of the method that a config belongs to, which needs torch.

    Raises:
        ConfigError: the package that brings it has no such class, or it is no method.
    """
    from murmura.federation.method import Method

    with METHODS.guarded(config.name, "has no class that can be loaded by its 'implementation'"):
        found: type[Method] = imported(config.implementation, Method)
        return found


def _keys_of_others(name: str) -> dict[str, str]:
    """Options of the methods that are not called ``name``, by whose they are."""
    return {f"method.{key} of '{one}'": key for one in METHODS if one != name for key in section(one).model_fields}


def build(config: MethodConfig, aggregation: AggregationConfig | None = None) -> Method:
    """The method that a config belongs to, with its aggregation; whether it can work with that, says
    ``experiment.validate``.

    Raises:
        ConfigError: as ``method_class``; or it lacks something that a method has, such as ``lead`` or ``traits``.
    """
    from murmura.aggregation.choosing import rule

    chosen = rule(aggregation) if aggregation else None
    with METHODS.guarded(config.name, "cannot be made"):
        return method_class(config)(config, chosen)
