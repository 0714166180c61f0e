"""How much training on public records helps with a site's own (LESS, Xia et al. 2024, arXiv 2402.04333)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch.nn import functional as F

from murmura.retrieval.rademacher import RademacherProjection
from murmura.streams import Stream
from murmura.training.bank import Bank
from murmura.training.batch import Sequenced
from murmura.training.by_example import at_once, example_gradients
from murmura.training.config import LocalTraining
from murmura.training.warm_up import Milestone, Moments

Over = Literal["max", "mean"]
"""Which of its own records a site's influence is about: the one that gains most, or all alike."""


def projection(stream: Stream, dimension: int) -> RademacherProjection:
    """The one that the server and all sites of a run project by.

    Args:
        stream: the run's randomness.
    """
    return RademacherProjection(dimension, stream / "augment" / "projection")


def field(epoch: int) -> str:
    """The field of an ask that brings the adapter at the end of an epoch, counted from 0."""
    return f"epoch-{epoch + 1}"


def features(
    bank: Bank,
    items: Sequence[Sequenced],
    training: LocalTraining,
    projection: RademacherProjection,
    moments: Moments | None = None,
) -> torch.Tensor:
    """Where training on each record would lead from slot 0's adapter: projected and of length 1.

    Args:
        items: tokenised records.
        moments: with them it is Adam's direction; without, the gradient's.

    Returns:
        float32 [n, d] on the bank's device; zeros for a record whose gradient is zero or not finite.
    """
    most = at_once(bank)
    found = [torch.zeros(0, projection.dimension, device=bank.device)]
    for start in range(0, len(items), most):
        gradients = example_gradients(bank, items[start : start + most], 0, training)
        short = projection(gradients if moments is None else moments.direction(gradients))
        short[~short.isfinite().all(1)] = 0
        found.append(F.normalize(short))
    return torch.cat(found)


def influences(
    bank: Bank,
    items: Sequence[Sequenced],
    milestones: Sequence[Milestone],
    validation: Sequence[torch.Tensor],
    training: LocalTraining,
    projection: RademacherProjection,
    over: Over = "max",
) -> torch.Tensor:
    """``Inf(z) = max over z' of Σ_i η̄_i ⟨Γ_i(z), ∇_i(z')⟩``, z' being a site's own record and both sides projected and
    of length 1; η̄_i are the epochs' mean rates over their sum, so that it is a mean of cosines.

    Args:
        bank: its slots are overwritten.
        items: tokenised public records.
        milestones: the ends of the warm-up's epochs.
        validation: of each site the ``features`` of its own records at every milestone, float32 [epochs, n, d].
        over: max, or the mean over z'.

    Returns:
        float32 [records, sites] on the CPU; zeros for a site without records.
    """
    rates = torch.tensor([milestone.rate for milestone in milestones])
    shares = (rates / rates.sum())[:, None, None]
    own = [(shares * given).to(bank.device) for given in validation]
    found, most = torch.zeros(len(items), len(validation)), at_once(bank)
    for start in range(0, len(items), most):
        some = items[start : start + most]
        totals = [torch.zeros(len(some), given.shape[1], device=bank.device) for given in own]
        for epoch, milestone in enumerate(milestones):
            bank.load([milestone.state])
            steps = features(bank, some, training, projection, milestone.moments)
            for total, given in zip(totals, own, strict=True):  # each by itself: in other company, other last digits
                total += steps @ given[epoch].T
        for site, total in enumerate(totals):
            if total.shape[1]:
                found[start : start + most, site] = (total.amax(1) if over == "max" else total.mean(1)).cpu()
    return found
