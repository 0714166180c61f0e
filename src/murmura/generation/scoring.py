"""How likely a model finds given texts, many sites' adapters in one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np
import torch
from torch.nn import functional as F

from murmura.generation.sampling import Sampling, filtered
from murmura.progress import bar
from murmura.training.bank import Bank
from murmura.training.batch import Sequenced, collate, micro_batches
from murmura.training.head import Measure

T = TypeVar("T")


@dataclass(frozen=True)
class Score:
    """Summed negative log-likelihood in nats of a record's labelled tokens, and how many they are."""

    nll: float
    tokens: int

    @property
    def mean(self) -> float:
        """Mean token NLL; infinite when there is no token to score."""
        return self.nll / self.tokens if self.tokens else float("inf")


@dataclass(frozen=True)
class TokenScores:
    """How a model finds each labelled token of a record, in their order.

    Attributes:
        nll: negative log-likelihoods in nats, float32 [n].
        first: whether the token is the likeliest of all (of several, the first), bool [n].
    """

    nll: np.ndarray
    first: np.ndarray


@dataclass(frozen=True)
class CloseScores(TokenScores):
    """What a closer look at the same pass shows besides.

    Attributes:
        mean: expectation of log p(z) over tokens z that are drawn from the model itself, in nats, float32 [n].
        std: its standard deviation, float32 [n].
        drawn: log-probability in nats with which a way of sampling draws the token, −∞ if never, float32 [n].
    """

    mean: np.ndarray
    std: np.ndarray
    drawn: np.ndarray


@dataclass(frozen=True)
class Scoring(Generic[T]):
    """What a pass is to find out about each record.

    Attributes:
        measures: each is taken of every labelled token.
        made: what a record's values, an array from each measure, are made into.
    """

    measures: Sequence[Measure]
    made: Callable[..., T]


def _nll(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float(), targets, reduction="none")


def _free_energy(logits: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
    """Free energy ``−T·log Σ_v exp(z_v / T)`` (Liu et al. 2020). Lower means that the input looks more familiar to the
    model; the token that really followed does not matter."""
    return -temperature * (logits.float() / temperature).logsumexp(-1)


def _is_first(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return logits.argmax(-1) == targets


def _spread(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean and standard deviation of log p(z), z drawn from p; tokens that p rules out take no part. [n, 2]."""
    logs = logits.float().log_softmax(-1)
    shares = logs.exp()
    logs = logs.masked_fill(shares == 0, 0.0)  # where p(z) log p(z) is 0, and not 0 times −∞
    mean = (shares * logs).sum(-1)
    variance = (shares * (logs - mean[:, None]).square()).sum(-1)
    return torch.stack([mean, variance.sqrt()], dim=1)


def _drawn(logits: torch.Tensor, targets: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    return filtered(logits.float(), sampling).log_softmax(-1).gather(1, targets[:, None])[:, 0]


TOKENS = Scoring([_nll, _is_first], lambda nll, first: TokenScores(nll, first.astype(bool)))
SUMS = Scoring([_nll], lambda nll: Score(float(nll.sum(dtype=np.float64)), len(nll)))


def closely(sampling: Sampling) -> Scoring[CloseScores]:
    """As ``TOKENS``, with a closer look at the logits; ``sampling`` is what ``CloseScores.drawn`` is about."""
    return Scoring(
        [_nll, _is_first, _spread, partial(_drawn, sampling=sampling)],
        lambda nll, first, spread, drawn: CloseScores(nll, first.astype(bool), spread[..., 0], spread[..., 1], drawn),
    )


def energy(temperature: float) -> Scoring[float]:
    """Mean free energy of a record's labelled tokens, at least one; see ``_free_energy``."""
    return Scoring(
        [partial(_free_energy, temperature=temperature)], lambda energies: float(energies.mean(dtype=np.float64))
    )


@torch.no_grad()
def score(
    scoring: Scoring[T],
    bank: Bank,
    items: Sequence[Sequenced],
    slots: Sequence[int],
    *,
    tokens_per_pass: int,
    description: str = "score",
) -> list[T]:
    """Score each record under its slot's adapter.

    Args:
        items: tokenised records; labels say which tokens count.
        slots: the bank slot that reads each record.
        tokens_per_pass: padded tokens that go through the model at once.
    """
    results: dict[int, T] = {}
    route = torch.tensor(slots, dtype=torch.long)
    with bar(description, len(items)) as progress:
        for group in micro_batches(items, tokens_per_pass):
            ids, labels = collate([items[i] for i in group], bank.device)
            bank.route(route[group])
            found, row = bank.head.measured(ids, labels, scoring.measures)
            ends = np.bincount(row.cpu().numpy(), minlength=len(group)).cumsum()[:-1]  # tokens come row by row
            parts = [np.split(values.cpu().numpy(), ends) for values in found]
            results.update((i, scoring.made(*values)) for i, *values in zip(group, *parts, strict=True))
            progress.advance(len(group))
    return [results[i] for i in range(len(items))]
