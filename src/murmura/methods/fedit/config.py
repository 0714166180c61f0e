"""Options of the FedIT family."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from murmura.aggregation.config import SERVER_OPTIONS, AggregationConfig, Local, ServerStep
from murmura.data.records import Kind
from murmura.errors import ConfigError
from murmura.federation.method_config import SampledMethodConfig

Algorithm = Literal[
    "fedavg", "fedprox", "scaffold", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "centralised", "local"
]


class FedITConfig(SampledMethodConfig):
    """Local training, then a server step. An algorithm says how sites train, or what step the server takes; the other
    part, and how uploads are put together, can be said in [aggregation]."""

    kinds: ClassVar[tuple[Kind, ...]] = ("instruction", "document")
    implementation: ClassVar[str] = "murmura.methods.fedit.method:FedIT"
    name: Literal["fedit"] = "fedit"
    algorithm: Algorithm = "fedavg"
    """fedavg (McMahan 2017), fedprox (Li 2020), scaffold (Karimireddy 2020), fedavgm (Hsu 2019), fedadam, fedyogi and
    fedadagrad (Reddi 2021), centralised (all records pooled), local (no exchange)."""
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
        used = {"mu": {"fedprox"}, **SERVER_OPTIONS}
        idle = [option for option, algorithms in used.items() if self.algorithm not in algorithms]
        if self.algorithm == "centralised":
            idle.append("sites_per_round")
        self.refuse_idle(idle, f"with algorithm '{self.algorithm}'")
        return self

    def aggregation(self, given: AggregationConfig | None = None) -> AggregationConfig:
        """The parts that the algorithm stands for, with those that ``[aggregation]`` names.

        Raises:
            ConfigError: both say how sites train, or what step the server takes; or the parts do not go together.
        """
        given, own = given or AggregationConfig(), dict[str, Any]()
        for part, names in (("local", get_args(Local)), ("server", get_args(ServerStep))):
            if self.algorithm not in names:
                continue
            if getattr(given, part) != "plain":
                raise ConfigError(
                    f"algorithm '{self.algorithm}' and aggregation.{part} = '{getattr(given, part)}' say the same part "
                    "twice", where="method.algorithm", fix="Remove one of them.",
                )  # fmt: skip
            own[part] = self.algorithm
            own |= {option: getattr(self, option) for option in _options_of(self.algorithm)}
        return AggregationConfig.parse({**given.model_dump(), **own}, f"method.algorithm = '{self.algorithm}'")


def _options_of(algorithm: str) -> list[str]:
    return (
        ["mu"] if algorithm == "fedprox" else [option for option, steps in SERVER_OPTIONS.items() if algorithm in steps]
    )
