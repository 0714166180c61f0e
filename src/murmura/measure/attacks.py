"""Membership inference: scores that are higher, the more a record looks like one that the model was trained on.

All of them come from the same two passes over a record, and train nothing: one by the model in question, and one by the
model that training began with, which is the base model or that with ``model.adapter``. With ℓ_t the negative
log-likelihood of a record's t-th token under the model, b_t under the one before, and Δ_t = b_t − ℓ_t (how much
training has raised the token's log-probability):

* *error zone* (Ilić et al. 2026, arXiv 2601.12104): over the tokens E that the model still gets wrong (not its argmax),
  with P = Σ_E max(Δ_t, 0) and N = Σ_E max(−Δ_t, 0), the paper's score is P / N. Here it is P / (P + N), which orders
  records alike and is finite; 1/2 where nothing moved. Where the model gets every token right, as of a record that it
  knows by heart, the paper's score is 0 / 0; E is then all tokens.
* *loss difference*: the mean of Δ_t (calibration by a reference model; Watson et al. 2022; Carlini et al. 2022).
* *window votes* (Chen et al. 2026, arXiv 2601.02751): for each window size w the share of windows of w tokens in a row
  whose Δ_t add up to more than 0, averaged over the paper's sizes, ``WINDOWS``; sizes beyond a record's tokens are left
  out. A record of one token has one window. A window that has not moved counts half: where nothing was learnt, what
  moves some records is how sums are rounded, which depends on what is read beside them.
* *plain loss*: −mean(ℓ_t) (Yeom et al. 2018), which needs no model before: the naive control. A record that is easy for
  any model has a high one, whoever trained on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from murmura.generation.scoring import TokenScores

WINDOWS = (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)
CONTROL = "plain loss"


@dataclass(frozen=True)
class Passes:
    """A record's tokens under the model in question and under the one that training began with, at least one."""

    model: TokenScores
    base: TokenScores

    @property
    def raised(self) -> np.ndarray:
        """Δ_t, float64 [tokens], in nats."""
        return self.base.nll.astype(np.float64) - self.model.nll


def error_zone(passes: Passes) -> float:
    """P / (P + N) over the tokens that the model gets wrong, or all if there is none; in [0, 1]."""
    wrong = ~passes.model.first
    moved = passes.raised[wrong] if wrong.any() else passes.raised
    up, down = moved[moved > 0].sum(), -moved[moved < 0].sum()
    return float(up / (up + down)) if up + down else 0.5


def loss_difference(passes: Passes) -> float:
    """By how many nats per token the model finds the record likelier than the one before training does."""
    return float(passes.raised.mean())


def window_votes(passes: Passes) -> float:
    """The share of windows in which the model finds the record likelier than the one before training does, in [0, 1];
    equality counts half."""
    sums = np.concatenate([[0.0], passes.raised.cumsum()])
    sizes = [size for size in WINDOWS if size < len(sums)] or [len(sums) - 1]
    moved = [sums[size:] - sums[:-size] for size in sizes]
    return float(np.mean([((one > 0) + 0.5 * (one == 0)).mean() for one in moved]))


def plain_loss(passes: Passes) -> float:
    """Minus the mean negative log-likelihood in nats per token."""
    return -float(passes.model.nll.astype(np.float64).mean())


ATTACKS: Mapping[str, Callable[[Passes], float]] = {
    "error zone": error_zone,
    "loss difference": loss_difference,
    "window votes": window_votes,
    CONTROL: plain_loss,
}
"""By name; the strongest published one first."""
