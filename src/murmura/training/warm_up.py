"""A short training whose optimiser is kept: what LESS compares records by (Xia et al. 2024, arXiv 2402.04333)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from murmura.streams import Stream
from murmura.training.adapter import State, split_residual
from murmura.training.bank import Bank
from murmura.training.batch import Sequenced
from murmura.training.config import LocalTraining
from murmura.training.loop import steps_of, train

_RISING = 0.03  # of all steps, in which the rate rises
_EPS = 1e-8


@dataclass(frozen=True)
class Moments:
    """Adam's running means of the gradient and of its square.

    Attributes:
        mean: m, float32 [P], and ``square`` v; both as the optimiser keeps them, without bias correction.
        betas: with which they were made.
    """

    mean: torch.Tensor
    square: torch.Tensor
    betas: tuple[float, float]

    def direction(self, gradients: torch.Tensor) -> torch.Tensor:
        """Where Adam would go from here for each of some gradients, up to its rate.

        ``Γ = (β₁m + (1−β₁)g) / sqrt(β₂v + (1−β₂)g² + ε)``, as the authors' code has it: ε is inside the root, and no
        bias is corrected.

        Args:
            gradients: float32 [n, P]; it is overwritten.

        Returns:
            ``gradients``.
        """
        first, second = self.betas
        mean, square = self.mean.to(gradients.device), self.square.to(gradients.device)
        for g in gradients:  # row by row: no second buffer of that size
            scale = (second * square).addcmul_(g, g, value=1 - second).add_(_EPS).sqrt_()
            g.mul_(1 - first).add_(mean, alpha=first).div_(scale)
        return gradients


@dataclass(frozen=True)
class Milestone:
    """Where an epoch has come to.

    Attributes:
        state: the adapter, with the residual that it began with, if any.
        moments: of the optimiser.
        rate: η̄, the mean learning rate of the epoch's steps.
    """

    state: State
    moments: Moments
    rate: float


def warm_up(
    bank: Bank, items: Sequence[Sequenced], start: State, training: LocalTraining, stream: Stream
) -> list[Milestone]:
    """Train one adapter on some records, and keep where each epoch ended.

    The rate rises over the first 3 % of the steps to ``training.lr`` and falls from there on a line to zero, which it
    does not reach.

    Args:
        bank: its slots are overwritten.
        items: tokenised records, at least one.
        start: the adapter that it begins with.
        training: AdamW, for a number of epochs.
        stream: source of order and dropout masks.

    Returns:
        One for each epoch.

    Raises:
        NonFiniteLoss: the rate is too high.
    """
    steps, (_, residual) = steps_of(len(items), training), split_residual(start)
    each = steps // training.epochs
    found: list[Milestone] = []

    def watch(done: int, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            group["lr"] = training.lr * _share(done, steps)
        if done and done % each == 0:
            [kept] = optimizer.state.values()
            mean, square = (kept[name][0].cpu().clone() for name in ("exp_avg", "exp_avg_sq"))
            rate = training.lr * sum(_share(step, steps) for step in range(done - each, done)) / each
            found.append(Milestone({**bank.read(0), **residual}, Moments(mean, square, training.betas), rate))

    train(bank, [items], [start], training, training.lr, [stream], watch=watch, description="warm up")
    return found


def _share(step: int, steps: int) -> float:
    """Of the highest rate, that of a step counted from 0."""
    rising = math.ceil(_RISING * steps)
    return (step + 1) / rising if step < rising else (steps - step) / max(steps - rising, 1)
