"""Weighted means of states, one contribution at a time.

However many sites reply, only one float64 accumulator is held: a reply can be dropped as soon as it has been added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import torch

from murmura.errors import RunError
from murmura.finite import is_finite

if TYPE_CHECKING:
    from murmura.training.adapter import State

# Weights are example counts or shares. Within these bounds weight * float32 neither overflows nor vanishes in float64.
LEAST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100

FURTHEST = 2.0**10
"""Most by which training makes a tensor longer (L2): honest adapters stay far below. A product B·A of two such is below
2²⁰. Three of these meet in an MLP with a gate, 2⁶⁰, and a norm squares what comes out, 2¹²⁰: float32, which ends at
2¹²⁸, has just room left for scale and activations. With an adapter far beyond, no site can go on, and nobody would know
through whom. A site that sends less, or somewhat too much in each round, can still spoil what is averaged; against it
there are robust rules."""

_SHARE = 1 / 64
"""Of its length, by which a tensor that is long already may grow, as embeddings of some whole models are."""

PER_NUMBER = 8.0
"""The same of each number (in the mean square), where something of the order of a gradient is told, such as a control
variate: AdamW's step is three times the rate at most, and so is what is taken off it."""


def too_long(state: State, sent: State, per_number: float = 0.0) -> str | None:
    """Why an upload cannot be averaged, in words: a tensor of it is too long, or not finite; None where none is.

    Args:
        sent: what training began with, of the same shapes.
        per_number: how far each number may go in the mean, where that is more than ``FURTHEST`` for a tensor.
    """
    for name, tensor in state.items():
        before = _norm(sent[name])
        furthest = max(FURTHEST, before * _SHARE, per_number * tensor.numel() ** 0.5)
        if not _norm(tensor) <= before + furthest:  # one that overflows in float32 is an infinity
            return f"'{name}' is longer than training makes it, unless training.lr is far too high"
    return None


def _norm(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.detach().float()))


class StateSum:
    """A running sum of states in float64, which refuses a contribution that does not fit the others.

    Args:
        like: A state whose tensor names and shapes every contribution must have. By default the first contribution.
    """

    def __init__(self, like: State | None = None) -> None:
        self._shapes = None if like is None else shapes(like)
        self.tensors: dict[str, torch.Tensor] = {}
        """The sum so far, float64; in the order of the names in `like` or in the first contribution."""
        self.count = 0
        """How many contributions were added."""

    def add(self, state: State, factor: float = 1.0) -> Self:
        """Adds `factor * state`. A refused contribution leaves the sum as it was.

        Raises:
            RunError: A tensor is missing, unexpected, of another shape, or holds a NaN or an infinity.
        """
        expected = shapes(state) if self._shapes is None else self._shapes
        check(state, expected, self.count + 1)
        self._shapes = expected
        for name in expected:
            # Multiply, then add: `add_(alpha=)` may fuse the two and round differently in vector and scalar lanes.
            term = state[name].detach().to(torch.float64).contiguous() * factor
            # The first term is stored, not added to zero, which would lose the sign of -0.0.
            self.tensors[name] = self.tensors[name].add_(term) if name in self.tensors else term
        self.count += 1
        return self


class WeightedMean:
    """The mean `Σ w_k W_k / Σ w_k` of states (McMahan et al. 2017), element by element, accumulated in float64.

    One contribution alone, whatever its weight, comes back bit for bit.

    Args:
        like: A state whose tensor names and shapes every contribution must have. By default the first contribution.
        uniform: Every contribution counts alike. Weights are still checked, but not used.
    """

    def __init__(self, like: State | None = None, *, uniform: bool = False) -> None:
        self._sum = StateSum(like)
        self._uniform = uniform
        self._weight = 0.0

    def add(self, state: State, weight: float) -> Self:
        """Adds one contribution. A refused contribution leaves the mean as it was.

        Args:
            state: Tensors by name; not kept, not changed.
            weight: A positive number, for instance the site's number of examples.

        Raises:
            RunError: The weight is not a positive finite number (or not within 1e-100 ... 1e100); a tensor is missing,
                unexpected, of another shape, or holds a NaN or an infinity.
        """
        if not LEAST_WEIGHT <= weight <= LARGEST_WEIGHT:
            what = f"the weight {weight} is not a positive finite number"
            fix = "A site without examples must be left out of the mean."
            raise RunError(what, where=f"contribution {self._sum.count + 1}", fix=fix)
        share = 1.0 if self._uniform else float(weight)
        self._sum.add(state, share)
        self._weight += share
        return self

    @property
    def count(self) -> int:
        """How many contributions were added."""
        return self._sum.count

    def result(self, dtype: torch.dtype = torch.float32) -> State:
        """The mean, as new tensors of `dtype`. More contributions may follow.

        Raises:
            RunError: Nothing was added.
        """
        if not self._sum.count:
            raise RunError("there is nothing to average", fix="At least one site must reply in each round.")
        return {name: (total / self._weight).to(dtype) for name, total in self._sum.tensors.items()}


def shapes(state: State) -> dict[str, torch.Size]:
    """The shape of each tensor."""
    return {name: tensor.shape for name, tensor in state.items()}


def check(state: State, expected: Mapping[str, torch.Size], number: int) -> None:
    """See that a contribution fits the others.

    Args:
        expected: The shape of each tensor.
        number: Of the contribution, counted from 1.

    Raises:
        RunError: A tensor is missing, unexpected, of another shape, or holds a NaN or an infinity.
    """
    where = f"contribution {number}"
    odd = next((name for name in [*expected, *state] if (name in expected) != (name in state)), None)
    if odd is not None:
        what = "is missing" if odd in expected else "is not expected"
        raise RunError(f"the tensor '{odd}' {what}", where=where, fix="All sites must train the same tensors.")
    for name, tensor in state.items():
        if tensor.shape != expected[name]:
            what = f"the tensor '{name}' has shape {tuple(tensor.shape)}, expected {tuple(expected[name])}"
            raise RunError(what, where=where, fix="All sites must use the same model and the same adapter rank.")
        if not is_finite(tensor):
            fix = "Training has diverged there: lower the learning rate."
            raise RunError(f"the tensor '{name}' holds a NaN or an infinity", where=where, fix=fix)
