"""Options of the method 'halves'."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from murmura.federation.method_config import MethodConfig


class HalvesConfig(MethodConfig):
    """FedAvg on every other record of each site."""

    implementation: ClassVar[str] = "halves.method:Halves"
    name: Literal["halves"] = "halves"
    first: int = Field(0, ge=0, le=1)
    """The record to begin with."""
