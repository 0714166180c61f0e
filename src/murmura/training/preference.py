"""The gradient that an optimiser's step follows: training on which of two answers is preferred (DPO).

Rafailov et al. 2023 (arXiv 2305.18290), equation 7. Where π is the model that trains and π_ref the one it began as, an
answer's implicit reward is β·log(π(y|x) / π_ref(y|x)), and the loss of a pair is −log σ of how much larger the reward
of the preferred answer is. What π_ref says of a pair never changes, so it is computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn import functional as F

from murmura.precision import products
from murmura.streams import Stream
from murmura.training.adapter import State
from murmura.training.bank import Bank
from murmura.training.batch import Sequenced, collate, micro_batches
from murmura.training.config import LocalTraining
from murmura.training.step import Chosen, Rows, Step


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Pair:
    """Two answers to the same prompt, each behind it as a sequence whose labels are the answer's tokens.

    Attributes:
        chosen: the one that is preferred.
        rejected: the other one.
    """

    chosen: Sequenced
    rejected: Sequenced

    @property
    def items(self) -> tuple[Sequenced, Sequenced]:
        """What goes through the model."""
        return self.chosen, self.rejected

    @property
    def longer(self) -> Sequenced:
        """The one of them that has more tokens."""
        return max(self.items, key=lambda item: len(item.ids))


class Reference:
    """π_ref: what a fixed adapter says of pairs, which is computed once for each of them.

    Args:
        state: the adapter; None for the model as it was loaded.
    """

    def __init__(self, state: State | None = None) -> None:
        self._state = state
        self._known: WeakKeyDictionary[Pair, float] = WeakKeyDictionary()

    def __getitem__(self, pair: Pair) -> float:
        """log π_ref(chosen) − log π_ref(rejected) of a pair that was read, in nats."""
        return self._known[pair]

    @torch.no_grad()
    def read(self, bank: Bank, pairs: Sequence[Pair], training: LocalTraining) -> None:
        """Have pairs read that are not known yet. The bank's slots are overwritten if there are any."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if not new:
            return
        bank.load([bank.untrained if self._state is None else self._state])
        items = [item for pair in new for item in pair.items]
        nll = torch.zeros(len(items), dtype=torch.float64)
        for group in micro_batches(items, bank.per_pass(training.tokens_per_pass)):
            ids, labels = collate([items[i] for i in group], bank.device)
            bank.route(torch.zeros(len(group), dtype=torch.long))
            with products(bank.model, bank.device, training.precision):
                own, row = bank.head.token_nll(ids, labels)
            nll[group] = torch.zeros(len(group), dtype=torch.float64).index_add_(0, row.cpu(), own.cpu().double())
        self._known.update(zip(new, (nll[1::2] - nll[0::2]).tolist(), strict=True))


class PreferenceStep(Step):
    """A step whose loss is the mean over pairs of −log σ(β·(Δ − Δ_ref)), where Δ = log π(chosen) − log π(rejected) with
    an answer's log-probability summed over its tokens (Rafailov et al. 2023, equation 7); β is ``training.dpo_beta``.

    A batch counts pairs, and each goes through the model as two rows of one pass; shards hold ``Pair``. What ``Step``
    calls tokens are pairs.

    Args:
        arguments: those of ``Step``.
        reference: Δ_ref of a pair.
    """

    def __init__(self, *arguments: Any, reference: Reference) -> None:
        super().__init__(*arguments)
        self._reference = reference
        reference.read(self.bank, [pair for shard in self.shards for pair in shard], self.training)

    def rows(self, chosen: Chosen, step: int) -> Rows:
        """The rows of a step: slot by slot, pair by pair, the preferred answer first."""
        pairs = [(slot, index) for slot, indices in chosen.items() for index in indices]
        slots = torch.tensor([slot for slot, _ in pairs for _ in range(2)], dtype=torch.long)
        items = [item for slot, index in pairs for item in self.shards[slot][index].items]
        return Rows(slots, [index for _, index in pairs for _ in range(2)], items, [1, 0] * len(pairs))

    def groups(self, rows: Rows) -> Iterator[list[int]]:
        """Rows that go through the model together; a pair is never parted."""
        longer = [Pair(*two).longer for two in zip(rows.items[::2], rows.items[1::2], strict=True)]
        for group in micro_batches(longer, self.bank.per_pass(self.training.tokens_per_pass) // 2):
            yield [row for pair in group for row in (2 * pair, 2 * pair + 1)]

    def nll(
        self, ids: torch.Tensor, labels: torch.Tensor, factors: torch.Tensor, rows: Rows, group: list[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses [pairs], times the pairs' factors, and the first row of each."""
        own, row = self.bank.head.token_nll(ids, labels)
        places = zip(rows.slots[group[::2]].tolist(), [rows.index[i] for i in group[::2]], strict=True)
        known = torch.tensor([self._reference[self.shards[slot][index]] for slot, index in places], device=own.device)
        with torch.autocast(own.device.type, enabled=False):
            nll = own.new_zeros(len(group)).index_add_(0, row, own)
            losses = dpo_losses(nll[1::2] - nll[0::2], known, self.training.dpo_beta)
        return losses * factors[::2], torch.arange(0, len(group), 2, device=own.device)

    def dropout_stream(self, rows: Rows, row: int, step: int) -> Stream:
        """The answers of a pair have masks of their own each."""
        return super().dropout_stream(rows, row, step) / ("rejected" if row % 2 else "chosen")


def dpo_losses(margins: torch.Tensor, reference: torch.Tensor, beta: float) -> torch.Tensor:
    """−log σ(β·(Δ − Δ_ref)) of each pair (Rafailov et al. 2023, equation 7), in nats.

    Args:
        margins: Δ = log π(chosen) − log π(rejected), [n].
        reference: Δ_ref, the same under π_ref, [n].
        beta: the larger it is, the nearer to π_ref a model stays that trains on them.
    """
    return -F.logsigmoid(beta * (margins - reference))
