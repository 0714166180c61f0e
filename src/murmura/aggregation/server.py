"""Server optimisers: how a round's replies become the next global state.

With `Δ_k = W_k − W`, `Δ` the mean of the Δ_k of the sites that replied, and t counting rounds from 0:

==========  ========  =====================================  ======================  ====================
rule        mean      remembers                              step                    defaults
==========  ========  =====================================  ======================  ====================
FedAvgM     weighted  m ← β₁ m + (1−β₁) Δ, at t = 0: m ← Δ   W ← W + m               β₁ = 0.9
FedAdagrad  uniform   v ← v + Δ²                             W ← W + η Δ / (√v + τ)  η = τ = 1e-3, v₀ = τ²
FedYogi     uniform   m; v ← v − (1−β₂) s² sign(v − s²)      W ← W + η m / (√v + τ)  and β₁ = 0.9, β₂ = 0.99
FedAdam     uniform   m; v ← β₂ v + (1−β₂) s²                W ← W + η m / (√v + τ)  and β₁ = 0.9, β₂ = 0.99
==========  ========  =====================================  ======================  ====================

s is Δ (Reddi et al. 2021, arXiv 2003.00295, Algorithm 2; the default) or m (OpenFedLLM). Everything else, the start
of m and the defaults included, is as OpenFedLLM has it. A and B of a LoRA pair are treated element-wise.
The step of plain averaging, W ← W + Δ, is an aggregation rule (`rules.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import torch

from murmura.aggregation.config import Adagrad, Adaptive, AggregationConfig, Momentum, PlainStep, ServerStep
from murmura.aggregation.mean import WeightedMean
from murmura.errors import CheckpointError

if TYPE_CHECKING:
    from murmura.training.adapter import State

Moments = dict[str, torch.Tensor]
"""What a rule remembers of one tensor: "m", "v" or both, float64, of its shape. Empty before the first round."""


class ServerOptimizer(ABC):
    """A rule, its options, and what it remembers between rounds.

    Attributes:
        weighted: Whether sites count by their weight (usually their number of examples) or all alike.
        remembers: The keys of the rule's moments.
    """

    weighted: ClassVar[bool] = False
    remembers: ClassVar[tuple[str, ...]]

    def __init__(self, config: ServerStep) -> None:
        self.config = config
        self.rounds = 0
        """Steps taken: the t of the next one."""
        self._memory: dict[str, Moments] = {}

    def step(self, current: State, updates: Iterable[tuple[State, float]]) -> State:
        """The next global state.

        Args:
            current: W, the state that this round's sites started from, float32.
            updates: (W_k, weight) of each site that replied, W_k with the names and shapes of W. Read once, one at a
                time, so that memory does not grow with the number of sites.

        Returns:
            New float32 tensors in the order of `current`; in between, all arithmetic is float64.

        Raises:
            RunError: Nobody replied; or a reply has other tensors than W, is not finite, or has a weight that is not
                positive. The optimiser is then as it was.
        """
        mean = WeightedMean(like=current, uniform=not self.weighted)
        for state, weight in updates:
            mean.add(state, weight)
        target = mean.result(torch.float64)
        after: State = {}
        for name, old in current.items():
            new, self._memory[name] = self._next(old.double().contiguous(), target[name], self._memory.get(name, {}))
            after[name] = new.float()
        self.rounds += 1
        return after

    @abstractmethod
    def _next(self, old: torch.Tensor, mean: torch.Tensor, past: Moments) -> tuple[torch.Tensor, Moments]:
        """One tensor's next value and moments, from W, the mean of the W_k and the moments so far. Changes nothing."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All that a run needs to resume bit for bit: "rounds" (int64 scalar), "m/NAME" and "v/NAME" (float64)."""
        memory = {f"{key}/{name}": x for name, moments in self._memory.items() for key, x in moments.items()}
        return {"rounds": torch.tensor(self.rounds), **memory}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Resumes from what `state_dict` returned, in this process or an earlier one.

        Raises:
            CheckpointError: Another rule wrote it, or it is not complete.
        """
        memory: dict[str, Moments] = {}
        for path, tensor in state.items():
            key, slash, name = path.partition("/")
            if slash:
                memory.setdefault(name, {})[key] = tensor
        rounds = int(state.get("rounds", -1))
        complete = all(moments.keys() == set(self.remembers) for moments in memory.values())
        if rounds < 0 or not complete or bool(memory) != bool(rounds and self.remembers):
            what = f"the checkpoint does not hold what {type(self).__name__} remembers between rounds"
            fix = "Resume with the server optimiser and the options that the run was started with."
            raise CheckpointError(what, fix=fix)
        self.rounds, self._memory = rounds, memory


class FedAvgM(ServerOptimizer):
    """FedAvgM: server momentum, damped as OpenFedLLM has it, `m ← β₁ m + (1−β₁) Δ`, or not, `m ← β₁ m + Δ` (Hsu et al.
    2019, arXiv 1909.06335), whose steps become up to 1/(1−β₁) times as long."""

    config: Momentum
    weighted = True
    remembers = ("m",)

    def _next(self, old: torch.Tensor, mean: torch.Tensor, past: Moments) -> tuple[torch.Tensor, Moments]:
        c, delta = self.config, mean - old
        new = delta * (1 - c.beta1) if c.damping else delta
        m = c.beta1 * past["m"] + new if past else delta
        return old + m, {"m": m}


class FedAdagrad(ServerOptimizer):
    """FedAdagrad (Reddi et al. 2021, Algorithm 2), without momentum. Coordinates that have moved less than τ hardly
    adapt."""

    config: Adagrad
    remembers = ("v",)

    def _next(self, old: torch.Tensor, mean: torch.Tensor, past: Moments) -> tuple[torch.Tensor, Moments]:
        c, delta = self.config, mean - old
        v = past.get("v", c.tau**2) + delta.square()
        return old + c.lr * delta / (v.sqrt() + c.tau), {"v": v}


class AdaptiveMomentum(ServerOptimizer):
    """What FedYogi and FedAdam share: all but v's update. There is no bias correction; instead m starts at the first Δ.
    Coordinates that have moved less than τ hardly adapt."""

    config: Adaptive
    remembers = ("m", "v")

    def _next(self, old: torch.Tensor, mean: torch.Tensor, past: Moments) -> tuple[torch.Tensor, Moments]:
        c, delta = self.config, mean - old
        m = c.beta1 * past["m"] + (1 - c.beta1) * delta if past else delta
        v = past["v"] if past else torch.full_like(delta, c.tau**2)
        v = self._second(v, (delta if c.second_moment == "delta" else m).square())
        return old + c.lr * m / (v.sqrt() + c.tau), {"m": m, "v": v}

    @abstractmethod
    def _second(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """The next v, from v and s²."""


class FedYogi(AdaptiveMomentum):
    """FedYogi (Reddi et al. 2021, Algorithm 2): v moves towards s² by an amount that does not grow with v."""

    def _second(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        return v - (1 - self.config.beta2) * square * torch.sign(v - square)


class FedAdam(AdaptiveMomentum):
    """FedAdam (Reddi et al. 2021, Algorithm 2): v is a moving average of s²."""

    def _second(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        return self.config.beta2 * v + (1 - self.config.beta2) * square


OPTIMISERS: dict[str, type[ServerOptimizer]] = {
    "fedavgm": FedAvgM,
    "fedadagrad": FedAdagrad,
    "fedyogi": FedYogi,
    "fedadam": FedAdam,
}


def optimizer_of(config: AggregationConfig) -> ServerOptimizer | None:
    """The step that a config names, as before the first round; None for the plain one."""
    if isinstance(config.server, PlainStep):
        return None
    return OPTIMISERS[config.server.kind](config.server)
