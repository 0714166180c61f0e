"""How likely a model finds given texts, many sites' adapters in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch.nn import functional as F

from murmura.generation.sampling import Sampling, filtered
from murmura.progress import bar
from murmura.training.bank import Bank
from murmura.training.batch import Sequenced, collate, micro_batches
from murmura.training.head import Measure


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


def token_scores(
    bank: Bank, items: Sequence[Sequenced], slots: Sequence[int], *, tokens_per_pass: int, description: str = "score"
) -> list[TokenScores]:
    """Score each labelled token of each record under its slot's adapter.

    Args:
        items: tokenised records; labels say which tokens count.
        slots: the bank slot that reads each record.
        tokens_per_pass: padded tokens that go through the model at once.
    """
    found = _per_token(bank, items, slots, [_nll, _is_first], tokens_per_pass, description)
    return [TokenScores(nll, first.astype(bool)) for nll, first in found]


def close_scores(
    bank: Bank,
    items: Sequence[Sequenced],
    slots: Sequence[int],
    sampling: Sampling,
    *,
    tokens_per_pass: int,
    description: str = "score",
) -> list[CloseScores]:
    """As ``token_scores``, with a closer look at the logits.

    Args:
        sampling: what ``CloseScores.drawn`` is about.
    """
    measures: list[Measure] = [_nll, _is_first, _spread, partial(_drawn, sampling=sampling)]
    found = _per_token(bank, items, slots, measures, tokens_per_pass, description)
    return [
        CloseScores(nll, first.astype(bool), spread[..., 0], spread[..., 1], drawn)
        for nll, first, spread, drawn in found
    ]


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


@torch.no_grad()
def _per_token(
    bank: Bank,
    items: Sequence[Sequenced],
    slots: Sequence[int],
    measures: Sequence[Measure],
    tokens_per_pass: int,
    description: str,
) -> list[list[np.ndarray]]:
    """Of each record what each measure makes of its labelled tokens."""
    results: dict[int, list[np.ndarray]] = {}
    route = torch.tensor(slots, dtype=torch.long)
    with bar(description, len(items)) as progress:
        for group in micro_batches(items, tokens_per_pass):
            ids, labels = collate([items[i] for i in group], bank.device)
            bank.route(route[group])
            found, row = bank.head.measured(ids, labels, measures)
            ends = np.bincount(row.cpu().numpy(), minlength=len(group)).cumsum()[:-1]  # tokens come row by row
            parts = [np.split(values.cpu().numpy(), ends) for values in found]
            results.update(zip(group, map(list, zip(*parts, strict=True)), strict=True))
            progress.advance(len(group))
    return [results[i] for i in range(len(items))]


def score(
    bank: Bank, items: Sequence[Sequenced], slots: Sequence[int], *, tokens_per_pass: int, description: str = "score"
) -> list[Score]:
    """As ``token_scores``, summed over a record's tokens."""
    found = _per_token(bank, items, slots, [_nll], tokens_per_pass, description)
    return [Score(float(nll.sum(dtype=np.float64)), len(nll)) for (nll,) in found]


def energies(
    bank: Bank, items: Sequence[Sequenced], slots: Sequence[int], *, temperature: float, tokens_per_pass: int
) -> list[float]:
    """Mean free energy of each record's labelled positions under its slot's adapter; see ``_free_energy``.

    Args:
        items: tokenised records; labels say which positions count, at least one each.
        slots: the bank slot that reads each record.
        temperature: T of the free energy.
        tokens_per_pass: padded tokens that go through the model at once.
    """
    measure = partial(_free_energy, temperature=temperature)
    found = _per_token(bank, items, slots, [measure], tokens_per_pass, "energies")
    return [float(energy.mean(dtype=np.float64)) for (energy,) in found]
