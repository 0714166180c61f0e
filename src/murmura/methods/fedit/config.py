"""Options of the FedIT family."""

from __future__ import annotations

from typing import ClassVar, Literal

from murmura.data.records import Kind
from murmura.federation.method_config import MethodConfig, SampledMethodConfig


class FedITConfig(SampledMethodConfig):
    """FedAvg (McMahan 2017), or with [aggregation] any other way to train at sites, to put uploads together, and to
    take a step at the server: FedProx, SCAFFOLD, FedAvgM, FedAdam, FedYogi, FedAdagrad and more."""

    implementation: ClassVar[str] = "murmura.methods.fedit.method:FedIT"
    kinds: ClassVar[tuple[Kind, ...]] = ("instruction", "document", "preference")
    name: Literal["fedit"] = "fedit"


class CentralisedConfig(MethodConfig):
    """All records in one place: what federation is measured against from above."""

    implementation: ClassVar[str] = "murmura.methods.fedit.method:Centralised"
    kinds: ClassVar[tuple[Kind, ...]] = ("instruction", "document", "preference")
    name: Literal["centralised"] = "centralised"


class LocalConfig(SampledMethodConfig):
    """Each site trains by itself, without any exchange: what federation is measured against from below."""

    implementation: ClassVar[str] = "murmura.methods.fedit.method:LocalOnly"
    kinds: ClassVar[tuple[Kind, ...]] = ("instruction", "document", "preference")
    name: Literal["local"] = "local"
