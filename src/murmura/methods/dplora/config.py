"""Options of DP-LoRA and its baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from murmura.data.records import Kind
from murmura.federation.method_config import MethodConfig, Rounds

# What a preset fills in where an option is not given.
_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "sound": {"clipping": "per_example", "groups": "flat", "sampler": "poisson", "noise_on": "gradient"},
    "paper": {"clipping": "batch", "groups": "factors", "sampler": "fixed", "noise_on": "gradient"},
}
_NOISE: Mapping[str, Mapping[str, float]] = {"sound": {"epsilon": 8.0}, "paper": {"noise_multiplier": 2.0}}
# What the paper has of [training], as third parties report it; the formulas are those of SGD.
_TRAINING: Mapping[str, Any] = {
    "optimizer": "sgd",
    "lr": 5e-4,
    "schedule": "constant",
    "batch_size": 8,
    "max_steps": 1,
    "clip": 10.0,
}


class EverySiteConfig(MethodConfig):
    """All sites take part in every round, and count alike."""

    kinds: ClassVar[tuple[Kind, ...]] = ("instruction", "document")
    rounds: Rounds = 50
    """Rounds of asking and averaging."""


class VanillaFLConfig(EverySiteConfig):
    """Vanilla FL: federated averaging in which all sites take part in every round and count alike."""

    implementation: ClassVar[str] = "murmura.methods.dplora.baselines:VanillaFL"
    name: Literal["vanilla-fl"] = "vanilla-fl"


class CMFLConfig(EverySiteConfig):
    """CMFL (Wang et al. 2019): sites send an update only where it is relevant. All sites take part in every round and
    count alike."""

    implementation: ClassVar[str] = "murmura.methods.dplora.baselines:CMFL"
    name: Literal["cmfl"] = "cmfl"
    relevance: float = Field(0.8, gt=0, le=1)
    """v_0; in round t an update is sent if more than v_0/√t of its signs are those of the last global update."""


class TFedAvgConfig(EverySiteConfig):
    """T-FedAvg (Xu et al. 2020): ternary weights while training and on the wire. All sites take part in every round and
    count alike."""

    implementation: ClassVar[str] = "murmura.methods.dplora.baselines:TFedAvg"
    name: Literal["tfedavg"] = "tfedavg"
    tolerance: float = Field(0.03, ge=0)
    """How much larger, by share, the held-out loss may be with ternary weights; beyond it the server sends the float
    mean."""


class DPLoRAConfig(EverySiteConfig):
    """DP-LoRA (Liu et al. 2023): every site clips and noises its adapter's gradients, so that what it sends is
    differentially private. The clipping norm C is training.clip, the (expected) batch training.batch_size, the local
    steps of a round training.max_steps. All sites take part in every round and count alike."""

    implementation: ClassVar[str] = "murmura.methods.dplora.method:DPLoRA"
    name: Literal["dplora"] = "dplora"
    preset: Literal["sound", "paper"] = "sound"
    """What options have that are not given: sound has clipping per_example, groups flat, sampler poisson and epsilon 8;
    paper has clipping batch, groups factors, sampler fixed and noise_multiplier 2, and of [training] optimizer sgd, lr
    5e-4, schedule constant, batch_size 8, max_steps 1 (unless epochs are given) and clip 10."""
    epsilon: float | None = Field(None, gt=0)
    """The ε that each site may spend on the whole run; the noise is calibrated to it."""
    noise_multiplier: float | None = Field(None, ge=0)
    """σ instead of epsilon: the noise has σ·C on the clipped sum; 0 for none, and then no ε is printed."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """δ that belongs to every ε."""
    adjacency: Literal["zero-out", "replace-one"] = "zero-out"
    """Which data sets ε compares: zero-out, one record blanked (its place remains, and the number of
    records is public); replace-one, one record exchanged for any other."""
    accountant: Literal["best", "pld", "rdp"] = "best"
    """How ε is composed over the steps: rdp by Rényi divergences, pld by privacy loss distributions (tighter, and some
    seconds slower); best is the least of these and of the closed form."""
    clipping: Literal["per_example", "batch"] | None = None
    """per_example clips each record's gradient; batch the gradient of a batch's mean loss (the paper's letter), whose
    sensitivity is twice as large and is not divided by the batch."""
    groups: Literal["flat", "factors"] | None = None
    """flat clips all factors together to C; factors clips all A's to C and all B's to C, with
    DoRA's magnitudes among these."""
    sampler: Literal["poisson", "fixed"] | None = None
    """poisson takes every record with probability batch_size/records in a step; fixed takes batch_size of them."""
    noise_on: Literal["gradient", "weights"] | None = None
    """gradient; weights adds N(0, σ²) to the uploaded weights instead, the paper's other wording."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, table: Any) -> Any:
        if not isinstance(table, Mapping):
            return table
        preset = table.get("preset", "sound")
        if not isinstance(preset, str) or preset not in _PRESETS:
            return table  # the field's own check says what is wrong
        given = {key: value for key, value in table.items() if value is not None}
        noise = {} if {"epsilon", "noise_multiplier"} & given.keys() else _NOISE[preset]
        return {**_PRESETS[preset], **noise, **given}

    @model_validator(mode="after")
    def _sense(self) -> DPLoRAConfig:
        if not self.private:
            self.refuse_idle(["delta", "adjacency", "accountant"], "without noise")
        if self.epsilon is not None and self.noise_multiplier is not None:
            raise ValueError("'epsilon' and 'noise_multiplier' say the same thing twice; remove one of them")
        if self.epsilon is not None and self.clipping == "batch":
            raise ValueError(
                "noise is not calibrated to an 'epsilon' with clipping = 'batch', where one record can turn the whole "
                "gradient around; set clipping = 'per_example', or give noise_multiplier instead of epsilon"
            )
        if self.epsilon is not None and self.noise_on == "weights":
            raise ValueError("with noise_on = 'weights', give noise_multiplier (the σ of the weights), not 'epsilon'")
        return self

    @property
    def training_defaults(self) -> Mapping[str, Any]:
        """What of ``[training]`` the preset fills in where it is not given."""
        return _TRAINING if self.preset == "paper" else {}

    @property
    def private(self) -> bool:
        """Whether noise is added at all."""
        return self.noise_multiplier != 0
