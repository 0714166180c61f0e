"""Which token comes next: the likeliest, or one drawn at random with a number that was fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import numpy as np
import torch

from murmura.errors import ConfigError

_LIKELIEST = 1024  # enough tokens to hold the nucleus nearly always; a whole vocabulary takes long to sort


class Numbers(Protocol):
    """Where the numbers come from that draw tokens: a ``Stream``, or ``Entropy`` where they must stay secret."""

    def uniform(self, count: int) -> np.ndarray:
        """Float64 [count] in [0, 1)."""
        ...


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Filters apply in this order: clipping, temperature, top-k, and top-p of what top-k left. Tokens that are exactly as
    likely as the last one kept are kept too.

    Args:
        temperature: logits are divided by it, above 0.
        top_p: draw from the fewest likeliest tokens that together have at least this probability (Holtzman et al.
            2020), above 0 and at most 1; 1: from all.
        top_k: draw from so many likeliest tokens (Fan et al. 2018); 0: from all.
        clip: the smallest and the largest logit; what is beyond is set to these (Utpala et al. 2023). None: any.

    Raises:
        ConfigError: one of them is out of its range.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    clip: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            fix = "Use a temperature above 0."
            raise ConfigError(f"a temperature of {self.temperature} cannot be sampled at", fix=fix)
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p is {self.top_p}", fix="Use a probability above 0 and at most 1.")
        if self.top_k < 0:
            raise ConfigError(f"top_k is {self.top_k}", fix="Use a number of tokens, or 0 for all of them.")
        if self.clip is not None and not (all(map(isfinite, self.clip)) and self.clip[0] < self.clip[1]):
            fix = "Use a smaller number and a larger one."
            raise ConfigError(f"logits cannot be clipped to {self.clip[0]} and {self.clip[1]}", fix=fix)


def choose(logits: torch.Tensor, sampling: Sampling | None, draws: torch.Tensor | None) -> torch.Tensor:
    """The next token of each row.

    Args:
        logits: [rows, vocabulary].
        sampling: None takes the likeliest token.
        draws: float64 [rows] in [0, 1), a number for each row, on the device where tokens are drawn. The token is where
            the cumulative probability, in the vocabulary's order, first exceeds it; so it depends on the row's own
            logits and number and on nothing else. Of logits without probabilities, as some that are not numbers leave
            none, it is what is taken without draws.

    Returns:
        int64 [rows].
    """
    if sampling is None or draws is None:
        return logits.argmax(-1)
    logits = logits.to(draws.device)
    probabilities = filtered(logits.float(), sampling).softmax(-1)
    cumulative = probabilities.cumsum(-1, dtype=torch.float64)
    # Where rounding puts the product at the very end, the last token with any probability is meant.
    last = cumulative[:, -1:]
    sought = torch.minimum(draws[:, None] * last, last.nextafter(torch.zeros_like(last)))
    drawn = torch.searchsorted(cumulative, sought, right=True)
    return torch.where(last.isfinite(), drawn, logits.argmax(-1, keepdim=True))[:, 0]


def filtered(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Logits over the temperature, −∞ for tokens that are not to be drawn; [rows, vocabulary]. If they are clipped,
    float64 and less the smallest logit, which changes no probability."""
    if sampling.clip is not None:
        # A guarantee rests on these bounds: they hold whatever a model computes, and rounding does not blur them.
        # Logits count from the lower one: two that are large and near would be further apart once both were divided.
        low, high = sampling.clip
        logits = logits.double().nan_to_num(nan=low).clamp(low, high) - low
    scaled = logits / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[-1]:
        scaled = _from(scaled, scaled.topk(sampling.top_k).values[:, -1:])
    if sampling.top_p < 1:
        scaled = _from(scaled, _nucleus(scaled, sampling.top_p))
    return scaled


def _from(logits: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """Only those logits that are at least this [rows, 1]."""
    return logits.masked_fill(logits < least, float("-inf"))


def _nucleus(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """The smallest logit [rows, 1] of the fewest likeliest tokens that together have the probability."""
    total = logits.logsumexp(-1, keepdim=True)
    for most in (min(_LIKELIEST, logits.shape[-1]), logits.shape[-1]):
        likeliest = logits.topk(most).values
        before = ((likeliest - total).exp().cumsum(-1) < top_p).sum(-1, keepdim=True)
        if most == logits.shape[-1] or int(before.max()) < most:
            break
    return likeliest.gather(-1, before.clamp(max=most - 1))
