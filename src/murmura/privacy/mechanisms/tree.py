"""Noise of a tree of partial sums, for DP-FTRL (Kairouz et al. 2021; Honaker 2015).

The tree over n steps has a node for every completed block of 2^h steps: ⌊n / 2^h⌋ of them at height h. A node's sum
moves by as many clipping norms as it has steps with the unit in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar, Self

from murmura.privacy.mechanisms.gaussian import noise_like, released
from murmura.privacy.mechanisms.noise import Noise, PrefixSums, Tensors
from murmura.privacy.observation import Observation, noised
from murmura.privacy.parts import check

if TYPE_CHECKING:
    import torch
    from dp_accounting import DpEvent

    from murmura.privacy.entropy import Entropy
    from murmura.privacy.plan import PrivacyPlan


@dataclass(frozen=True)
class TreeNoise(Noise):
    """Tree aggregation of DP-FTRL (Kairouz et al. 2021): every node of a binary tree over the steps is noisy.

    Args:
        std: standard deviation of a node's noise, in units of the norm.
        restart_every: steps a tree spans.
        honaker: estimate prefix sums from all nodes, not from the fewest (Honaker 2015). Costs no privacy.
    """

    restart_every: int
    honaker: bool = True
    kind: ClassVar[str] = "tree"
    samplers: ClassVar[tuple[str, ...]] = ("full", "once-per-tree")

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.restart_every >= 1, f"restart_every = {self.restart_every}", "A tree spans at least 1 step.")

    def event(self, plan: PrivacyPlan, steps: int, repeated: Sequence[int]) -> DpEvent:
        """Of a step that is done again all nodes that it completes are released again."""
        import dp_accounting as dp

        every_step = plan.sampler.kind == "full"
        squared = squared_sensitivity(steps, self.restart_every, every_step)
        squared += sum(completed_by(step, self.restart_every, every_step) for step in repeated)
        return dp.GaussianDpEvent(plan.noise_multiplier / math.sqrt(squared))

    def prefix_sums(self, norm: float, entropy: Entropy) -> TreeSums:
        return TreeSums(self, norm, entropy)

    def parameters(self) -> dict[str, Any]:
        return {"restart_every": self.restart_every}

    def words(self, amount: str) -> str:
        every = "every step" if self.restart_every == 1 else f"every {self.restart_every} steps"
        return f"tree noise{amount and f'{amount} a node'}, restarted {every}"


def squared_sensitivity(steps: int, restart_every: int, every_step: bool) -> int:
    """Σ over all nodes of all trees of (how far one unit moves it)², in squared sensitivities of one step.

    The Gaussian noises of nodes are independent, so the whole run is one Gaussian release of this squared L2
    sensitivity: also when each step's input depends on what was released before (Denisov et al. 2022). Of a unit that
    takes part again and again, contributions u_i of norm ≤ 1 move the nodes by ``Σ_ij <c_i, c_j> <u_i, u_j>`` with c_i
    the nodes above step i. No <c_i, c_j> is negative, so equal ones are the worst (Choquette-Choo et al. 2023).

    Args:
        every_step: the unit is in every step; otherwise in at most one step of each tree.
    """
    whole, rest = divmod(steps, restart_every)
    one = _every_step if every_step else _once
    return whole * one(restart_every) + one(rest)


def completed_by(step: int, restart_every: int, every_step: bool) -> int:
    """Of the nodes that one step, counted from 1, completes: Σ (how far one unit moves it)².

    A step that is done again completes them again, with other noise. What a unit that is in at most one step of a tree
    does to them depends on which; here it is below all of them, which no unit surpasses.
    """
    within = (step - 1) % restart_every + 1
    heights = (within & -within).bit_length()  # ⌊n / 2^h⌋ grows at step n for the heights h that 2^h divides it
    return sum(1 << 2 * height for height in range(heights)) if every_step else heights


def _every_step(steps: int) -> int:
    # A node at height h sums 2^h steps.
    return sum((steps >> height) << (2 * height) for height in range(steps.bit_length()))


def _once(steps: int) -> int:
    # The first step has an ancestor at every height: ⌊log₂ n⌋ + 1 nodes.
    return steps.bit_length()


class TreeSums(PrefixSums):
    """The noisy sum of all steps since the last restart (Kairouz et al. 2021).

    A block of 2^h steps is a node with its own N(0, (std·norm)²). The prefix up to step t is made of one node for each
    set bit of t. With ``honaker`` (Honaker 2015) a node's noise is averaged with that of the two below it,
    with the weights that minimise variance: from bottom to top 1, 2/3, 4/7 … of it are left, ½ in the limit.

    Only the exact sum and blocks' noise are kept: ⌊log₂ t⌋ + 2 states.
    """

    noise: TreeNoise
    step = 0
    """Steps in the tree so far."""
    _blocks: Sequence[tuple[int, Tensors]] = ()  # height, noise; higher ones first

    def add(self, total: Tensors) -> dict[str, torch.Tensor]:
        if self.step == self.noise.restart_every:
            self.step, self.total, self._blocks = 0, {}, ()
        self.step += 1
        self.total = {name: tensor.double() + self.total.get(name, 0.0) for name, tensor in total.items()}
        self._grow()
        noise = {name: reduce(add, (block[name] for _, block in self._blocks)) for name in total}
        return released(self.total, noise, self.noise.std * self.norm)

    def _grow(self) -> None:
        """A leaf for this step; two neighbouring blocks of one height become a higher one, as digits carry over."""
        self.seen = Observation()
        height, block, blocks = 0, self._fresh(), [*self._blocks]
        self._blocks = ()  # a block is let go as soon as it is part of a higher one
        while blocks and blocks[-1][0] == height:
            _, left = blocks.pop()
            height += 1
            own = 1 / (2 - 2.0**-height) if self.noise.honaker else 1.0
            fresh = self._fresh()
            block = {name: own * fresh[name] + (1 - own) * (left[name] + block[name]) for name in fresh}
        self._blocks = [*blocks, (height, block)]

    def _fresh(self) -> dict[str, torch.Tensor]:
        noise = noise_like(self.total, self.noise.std * self.norm, self.entropy)
        self.seen += noised((tensor.new_zeros(()) for tensor in noise.values()), noise.values(), self.norm)
        return noise

    def state(self) -> dict[str, Any]:
        heights = [height for height, _ in self._blocks]
        blocks = {f"tree.block.{height}": block for height, block in self._blocks}
        return {"tree.step": self.step, "tree.heights": heights, "tree.total": self.total, **blocks}

    def restore(self, state: Mapping[str, Any]) -> Self:
        self.step, self.total = state["tree.step"], state["tree.total"]
        self._blocks = [(height, state[f"tree.block.{height}"]) for height in state["tree.heights"]]
        return self
