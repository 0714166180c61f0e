"""Options of the FedIT family."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from murmura.config import Section

Algorithm = Literal[
    "fedavg", "fedprox", "scaffold", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "centralised", "local"
]


class FedITConfig(Section):
    """Local training, then a server step; the algorithms differ in one line each."""

    name: Literal["fedit"] = "fedit"
    algorithm: Algorithm = "fedavg"
    """fedavg (McMahan 2017), fedprox (Li 2020), scaffold (Karimireddy 2020), fedavgm (Hsu 2019), fedadam, fedyogi and
    fedadagrad (Reddi 2021), centralised (all records pooled), local (no exchange)."""
    rounds: int = Field(10, ge=1)
    """Rounds of asking and averaging."""
    sites_per_round: int | None = Field(None, ge=1)
    """Sites asked each round, drawn without replacement; all if not given."""
    mu: float = Field(0.01, ge=0)
    """FedProx: μ of the proximal term μ/2·‖w − w_t‖²."""
    server_lr: float = Field(1e-3, gt=0)
    """η of FedAdam, FedYogi and FedAdagrad."""
    tau: float = Field(1e-3, gt=0)
    """τ of FedAdam, FedYogi and FedAdagrad; their second moment starts at τ²."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Momentum of FedAvgM, FedAdam and FedYogi."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """Second-moment decay of FedAdam and FedYogi."""
    second_moment: Literal["delta", "momentum"] = "delta"
    """What FedAdam and FedYogi square: the mean update (Reddi et al.) or its momentum (OpenFedLLM)."""
    damping: bool = True
    """FedAvgM: momentum as a damped mean (OpenFedLLM) or as Hsu et al.'s running sum."""

    @model_validator(mode="after")
    def _options_that_do_nothing(self) -> FedITConfig:
        used = {
            "mu": {"fedprox"},
            "server_lr": {"fedadam", "fedyogi", "fedadagrad"},
            "tau": {"fedadam", "fedyogi", "fedadagrad"},
            "beta1": {"fedavgm", "fedadam", "fedyogi"},
            "beta2": {"fedadam", "fedyogi"},
            "second_moment": {"fedadam", "fedyogi"},
            "damping": {"fedavgm"},
        }
        idle = [option for option, algorithms in used.items() if self.algorithm not in algorithms]
        if self.algorithm == "centralised":
            idle.append("sites_per_round")
        self.refuse_idle(idle, f"with algorithm '{self.algorithm}'")
        return self
