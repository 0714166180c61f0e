"""Gradients of single records: what DP-SGD clips, and what LESS compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from murmura.precision import products
from murmura.training.attention import short_in_float32
from murmura.training.bank import Bank, Factor
from murmura.training.batch import Sequenced, collate, micro_batches
from murmura.training.config import LocalTraining

GRADIENTS = 2**26  # most numbers in the per-example gradients of one pass (256 MB)
HELD = {"cpu": 2**28, "cuda": 2**30}  # and of several (1 and 4 GB): making a projection's matrix wants many at once

Loss = Callable[[list[int]], torch.Tensor]
"""Token losses [n] of a group of rows, named by their indices."""


def by_example(
    bank: Bank,
    items: Sequence[Sequenced],
    slots: torch.Tensor,
    loss: Loss,
    tokens_per_pass: int,
    frozen: Factor | None = None,
) -> Iterator[tuple[list[int], list[torch.Tensor]]]:
    """The gradient of each record's own loss, for a few records at a time.

    Args:
        items: tokenised records.
        slots: int64 [rows], the slot that reads each of them.
        loss: runs the model on a group of rows; a record's loss is the sum of what it gives for that row.
        tokens_per_pass: padded tokens that go through the model at once.
        frozen: the factor that no gradient is wanted of.

    Yields:
        Indices of the records, and of each tensor that trains, in the manifest's order, gradients [rows, *shape].
    """
    columns = bank.columns(frozen)
    most = max(GRADIENTS // (columns.stop - columns.start), 1)
    for group in micro_batches(items, tokens_per_pass, most):
        with bank.per_example(slots[group], frozen) as leaves:
            total = loss(group).sum()
            gradients = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
        yield group, list(gradients)


def example_gradients(bank: Bank, items: Sequence[Sequenced], slot: int, training: LocalTraining) -> torch.Tensor:
    """Of each record the gradient of its mean token loss under one slot's adapter, without dropout (LESS, Xia et al.
    2024, arXiv 2402.04333).

    It takes ``len(items) · P`` numbers; whoever has many records asks for some at a time (``at_once``).

    Args:
        items: tokenised records.
        training: bounds what goes through the model at once, and says in which precision.

    Returns:
        float32 [n, P] on the bank's device, in the manifest's order.

    Raises:
        ModelError: there is no adapter.
    """
    counts = [bank.head.predicted(item.labels) for item in items]
    found = torch.empty(len(items), bank.size, device=bank.device)

    def loss(group: list[int]) -> torch.Tensor:
        ids, labels = collate([items[i] for i in group], bank.device)
        shares = torch.tensor([1 / max(counts[i], 1) for i in group], device=bank.device)
        with products(bank.model, bank.device, training.precision):
            return bank.head.token_nll(ids, labels, shares)[0]

    slots = torch.full((len(items),), slot)
    with short_in_float32(bank.device):
        for group, gradients in by_example(bank, items, slots, loss, bank.per_pass(training.tokens_per_pass)):
            rows = torch.tensor(group, device=bank.device)
            for entry, gradient in zip(bank.manifest, gradients, strict=True):
                found[rows, entry.start : entry.stop] = gradient.flatten(1)
    return found


def at_once(bank: Bank) -> int:
    """Of how many records ``example_gradients`` should be asked for at a time."""
    return max(HELD.get(bank.device.type, 2**28) // bank.size, 1)
