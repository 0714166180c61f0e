"""The gradient that an optimiser's step follows: plain training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from murmura.precision import products
from murmura.privacy.ledger import Spent
from murmura.streams import Stream
from murmura.training.bank import Bank
from murmura.training.batch import Sequenced, collate, micro_batches
from murmura.training.config import LocalTraining

Chosen = dict[int, list[int]]
"""Slot -> indices of the records that its step takes."""


@dataclass(frozen=True)
class Rows:
    """What goes through the model in one step: row i is record ``index[i]`` of slot ``slots[i]``."""

    slots: torch.Tensor
    index: list[int]
    items: list[Sequenced]
    tokens: list[int]
    """Tokens of each row that have a loss."""

    def of_slot(self, count: int) -> list[int]:
        """Tokens with a loss of each of ``count`` slots."""
        totals = [0] * count
        for slot, tokens in zip(self.slots.tolist(), self.tokens, strict=True):
            totals[slot] += tokens
        return totals


class Step:
    """One step's forward and backward passes, split so that memory is bounded.

    Args:
        shards: records of each slot, tokenised: ``Sequenced``, unless a subclass takes others.
        streams: of each slot.
        weights: a factor on each record's loss; None: 1.
    """

    def __init__(
        self,
        bank: Bank,
        shards: Sequence[Sequence[Any]],
        training: LocalTraining,
        streams: Sequence[Stream],
        weights: Sequence[Sequence[float]] | None,
    ) -> None:
        self.bank, self.shards, self.training, self.streams, self.weights = bank, shards, training, streams, weights

    def gradients(self, chosen: Chosen, step: int) -> list[float]:
        """Add to ``bank.grad`` the gradient of each slot's loss, the mean over what has a label.

        Returns:
            Each slot's loss.
        """
        rows = self.rows(chosen, step)
        tokens = rows.of_slot(len(self.shards))
        factors = self.factors(rows, [tokens[slot] for slot in rows.slots.tolist()])
        losses = torch.zeros(len(self.shards), device=self.bank.device)
        for group in self.groups(rows):
            self.bank.route(rows.slots[group])
            nll = self.forward(rows, group, factors, step, losses)
            nll.sum().backward()
        return losses.tolist()

    def groups(self, rows: Rows) -> Iterator[list[int]]:
        """Indices of the rows that go through the model together."""
        return micro_batches(rows.items, self.bank.per_pass(self.training.tokens_per_pass))

    def spent(self, slot: int) -> list[Spent] | None:
        """What a privacy ledger has to record of a slot's steps; None where nothing is protected."""
        return None

    def rows(self, chosen: Chosen, step: int) -> Rows:
        """The rows of a step, slot by slot."""
        pairs = [(slot, index) for slot, indices in chosen.items() for index in indices]
        items = [self.shards[slot][index] for slot, index in pairs]
        slots = torch.tensor([slot for slot, _ in pairs], dtype=torch.long)
        tokens = [self.bank.head.predicted(item.labels) for item in items]
        return Rows(slots, [index for _, index in pairs], items, tokens)

    def factors(self, rows: Rows, tokens: Sequence[int]) -> torch.Tensor:
        """float32 [rows]: each record's own weight over a number of ``tokens``."""
        pairs = zip(rows.slots.tolist(), rows.index, strict=True)
        weights = [self.weights[slot][index] if self.weights else 1.0 for slot, index in pairs]
        each = [weight / max(count, 1) for weight, count in zip(weights, tokens, strict=True)]
        return torch.tensor(each).to(self.bank.device)

    def forward(
        self, rows: Rows, group: list[int], factors: torch.Tensor, step: int, losses: torch.Tensor
    ) -> torch.Tensor:
        """The weighted token losses [n] of a group of rows, which the bank must know the slots of.

        They are also added up in ``losses`` [slots].
        """
        ids, labels = collate([rows.items[i] for i in group], self.bank.device)
        self._seed_dropout(rows, group, step)
        with products(self.bank.model, self.bank.device, self.training.precision):
            nll, row = self.nll(ids, labels, factors[group], rows, group)
        losses.index_add_(0, rows.slots[group].to(self.bank.device)[row], nll.detach())
        return nll

    def nll(
        self, ids: torch.Tensor, labels: torch.Tensor, factors: torch.Tensor, rows: Rows, group: list[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses [n] of a padded batch, times the factor [rows] of each one's row, and that row."""
        return self.bank.head.token_nll(ids, labels, factors)

    def dropout_stream(self, rows: Rows, row: int, step: int) -> Stream:
        """Where a row's dropout masks come from: from its own record, whatever shares its batch."""
        return self.streams[int(rows.slots[row])] / "dropout" / step / rows.index[row]

    def _seed_dropout(self, rows: Rows, group: list[int], step: int) -> None:
        if self.bank.lora is None or not self.bank.lora.dropout:
            return
        self.bank.routing.lengths = [len(rows.items[i].ids) for i in group]
        self.bank.routing.generators = [self.dropout_stream(rows, i, step).torch(self.bank.device) for i in group]


StepFactory = Callable[
    [Bank, Sequence[Sequence[Any]], LocalTraining, Sequence[Stream], Sequence[Sequence[float]] | None], Step
]
"""Makes a ``Step`` of the arguments of its constructor, before the bank's slots are loaded; ``train`` takes one."""
