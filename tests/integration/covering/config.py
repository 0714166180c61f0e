from __future__ import annotations

from typing import ClassVar, Literal

from murmura.config import ModelSource
from murmura.federation.method_config import SampledMethodConfig


class CoveringConfig(SampledMethodConfig):
    """Options of the method."""

    implementation: ClassVar[str] = "covering.method:Covering"
    name: Literal["covering"] = "covering"
    rounds: int = 2
    site_encoder: ModelSource = "minilm"
    """Places texts at the sites."""
    server_encoder: ModelSource = "minilm"
    """Places texts at the server."""
    varying: ModelSource = "nobody/masked"
    """The masked model that varies texts at the server."""
