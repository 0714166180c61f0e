"""Local training of K sites at once.

AdamW and SGD are element-wise, so the K rows of the bank's buffer train exactly as K separate runs do; only the forward
and backward passes are shared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from murmura.progress import bar
from murmura.streams import Stream
from murmura.training.adapter import State
from murmura.training.bank import Bank
from murmura.training.batch import Sequenced, collate, micro_batches
from murmura.training.config import LocalTraining


@dataclass(frozen=True)
class Trained:
    """One site's result: its tensors after its own last step, and what it took. ``loss`` is the mean over its steps."""

    state: State
    steps: int
    examples: int
    tokens: int
    loss: float | None


class NonFiniteLoss(Exception):
    """A site's loss, or what it trained, is no longer finite. Carries the slot and the step, counted from 1."""

    def __init__(self, slot: int, step: int) -> None:
        super().__init__(slot, step)
        self.slot, self.step = slot, step


def steps_of(records: int, training: LocalTraining) -> int:
    """Optimiser steps that a shard of so many records takes."""
    if records == 0:
        return 0
    if training.max_steps is not None:
        return training.max_steps
    return training.epochs * math.ceil(records / training.batch_size)


def batches(records: int, training: LocalTraining, stream: Stream) -> Iterator[list[int]]:
    """Indices of each step's records: a new order each epoch, the last batch of an epoch may be short."""
    pool = list(range(records))
    if training.max_steps is not None:
        pool = (stream / "sample").python().sample(pool, min(records, training.batch_size * training.max_steps))
    done, epoch, total = 0, 0, steps_of(records, training)
    while done < total:
        order = pool.copy()
        (stream / "epoch" / epoch).python().shuffle(order)
        for start in range(0, len(order), training.batch_size):
            if done == total:
                return
            yield order[start : start + training.batch_size]
            done += 1
        epoch += 1


def train(
    bank: Bank,
    shards: Sequence[Sequence[Sequenced]],
    starts: Sequence[State],
    training: LocalTraining,
    lr: float,
    streams: Sequence[Stream],
    *,
    prox: float = 0.0,
    corrections: Sequence[State] | None = None,
    weights: Sequence[Sequence[float]] | None = None,
    description: str = "train",
) -> list[Trained]:
    """Train slot k on ``shards[k]`` from ``starts[k]``, all slots together.

    A step's loss is, for each site, the mean token negative log-likelihood of its batch. A site with fewer steps than
    others is read out at its own last step.

    Args:
        bank: its slots are overwritten.
        shards: encoded records of each site; an empty shard comes back as it started.
        starts: where each site starts.
        lr: learning rate of all steps of this round.
        streams: source of each site's batch order and dropout masks.
        prox: μ of FedProx: adds μ/2·‖w − start‖² to the loss.
        corrections: SCAFFOLD's ``c − c_k`` of each site: w ← w − lr·(c − c_k) after every optimiser step.
        weights: a factor on each record's loss (FewFedWeight); 1 where not given.

    Raises:
        NonFiniteLoss: naming slot and step.
    """
    if bank.lora is None and len(starts) > 1:
        return _one_by_one(
            bank, shards, starts, training, lr, streams, corrections, weights, prox=prox, description=description
        )
    bank.load(starts)
    plans = [list(batches(len(shard), training, stream)) for shard, stream in zip(shards, streams, strict=True)]
    steps = max((len(plan) for plan in plans), default=0)
    step_of = _Step(bank, shards, training, streams, weights)
    results = {slot: Trained(starts[slot], 0, 0, 0, None) for slot, plan in enumerate(plans) if not plan}
    losses = torch.zeros(len(shards), dtype=torch.float64)
    counted = [[0, 0] for _ in shards]  # records, response tokens
    with bank.trainable() as parameter, bar(description, sum(len(p) for p in plans)) as progress:
        optimizer = _optimizer(parameter, training, lr)
        anchor = bank.flat.clone() if prox else None
        shift = torch.stack([bank.pack(c) for c in corrections]).to(bank.device) if corrections is not None else None
        for step in range(steps):
            chosen = {slot: plan[step] for slot, plan in enumerate(plans) if step < len(plan)}
            bank.grad.zero_()
            loss, tokens = step_of.backward(chosen, step)
            for slot in chosen:
                if not math.isfinite(loss[slot]):
                    raise NonFiniteLoss(slot, step + 1)
                losses[slot] += loss[slot]
                counted[slot][0] += len(chosen[slot])
                counted[slot][1] += tokens[slot]
            if anchor is not None:
                bank.grad.add_(bank.flat - anchor, alpha=prox)
            if training.clip:
                _clip_rows(bank.grad, training.clip)
            optimizer.step()
            if shift is not None:
                bank.flat.sub_(shift, alpha=lr)
            for slot, plan in enumerate(plans):
                if step + 1 == len(plan):
                    if not torch.isfinite(bank.flat[slot]).all():
                        raise NonFiniteLoss(slot, step + 1)
                    records, tokens_seen = counted[slot]
                    mean = float(losses[slot] / len(plan))
                    results[slot] = Trained(bank.read(slot), len(plan), records, tokens_seen, mean)
            progress.advance(len(chosen))
    return [results[slot] for slot in range(len(shards))]


def _one_by_one(
    bank: Bank,
    shards: Sequence[Sequence[Sequenced]],
    starts: Sequence[State],
    training: LocalTraining,
    lr: float,
    streams: Sequence[Stream],
    corrections: Sequence[State] | None,
    weights: Sequence[Sequence[float]] | None,
    **options: Any,
) -> list[Trained]:
    """``train`` where there is one slot."""
    results: list[Trained] = []
    for k in range(len(starts)):
        one = slice(k, k + 1)
        try:
            results += train(
                bank, shards[one], starts[one], training, lr, streams[one],
                corrections=corrections and corrections[one], weights=weights and weights[one], **options,
            )  # fmt: skip
        except NonFiniteLoss as error:
            raise NonFiniteLoss(k, error.step) from None
    return results


class _Step:
    """The forward and backward passes of one step, split so that memory is bounded."""

    def __init__(
        self,
        bank: Bank,
        shards: Sequence[Sequence[Sequenced]],
        training: LocalTraining,
        streams: Sequence[Stream],
        weights: Sequence[Sequence[float]] | None,
    ) -> None:
        self.bank, self.shards, self.training, self.streams, self.weights = bank, shards, training, streams, weights

    def backward(self, chosen: dict[int, list[int]], step: int) -> tuple[list[float], list[int]]:
        """Add the step's gradients; returns each slot's loss and response tokens."""
        rows = [(slot, index) for slot, indices in chosen.items() for index in indices]
        items = [self.shards[slot][index] for slot, index in rows]
        tokens = [0] * len(self.shards)
        for (slot, _), item in zip(rows, items, strict=True):
            tokens[slot] += _predicted(item, self.bank)
        factors = torch.tensor(
            [(self.weights[slot][index] if self.weights else 1.0) / max(tokens[slot], 1) for slot, index in rows]
        ).to(self.bank.device)
        slots = torch.tensor([slot for slot, _ in rows])
        total = torch.zeros(len(self.shards), device=self.bank.device)
        for group in micro_batches(items, self.training.tokens_per_pass):
            ids, labels = collate([items[i] for i in group], self.bank.device)
            self.bank.route(slots[group])
            self._seed_dropout([rows[i] for i in group], [items[i] for i in group], step)
            with torch.autocast(self.bank.device.type, torch.bfloat16, enabled=self.training.precision == "bfloat16"):
                nll, row = self.bank.head.token_nll(ids, labels, factors[group])
            nll.sum().backward()
            total.index_add_(0, slots[group].to(self.bank.device)[row], nll.detach())
        return total.tolist(), tokens

    def _seed_dropout(self, rows: list[tuple[int, int]], items: list[Sequenced], step: int) -> None:
        if self.bank.lora is None or not self.bank.lora.dropout:
            return
        self.bank.routing.lengths = [len(item.ids) for item in items]
        self.bank.routing.generators = [
            (self.streams[slot] / "dropout" / step / index).torch(self.bank.device) for slot, index in rows
        ]


def _predicted(item: Sequenced, bank: Bank) -> int:
    """Tokens of a record that have a loss: a decoder cannot predict the first one."""
    return sum(label >= 0 for label in (item.labels[1:] if bank.head.is_decoder else item.labels))


def _optimizer(parameter: torch.nn.Parameter, training: LocalTraining, lr: float) -> torch.optim.Optimizer:
    if training.optimizer == "sgd":
        return torch.optim.SGD([parameter], lr=lr, momentum=training.momentum, weight_decay=training.weight_decay)
    return torch.optim.AdamW(
        [parameter], lr=lr, betas=training.betas, eps=training.eps, weight_decay=training.weight_decay
    )


def _clip_rows(gradient: torch.Tensor, limit: float) -> None:
    """Scale each row of [K, P] to norm at most ``limit`` (the rule of ``torch.nn.utils.clip_grad_norm_``)."""
    norms = torch.linalg.vector_norm(gradient, dim=1)
    gradient.mul_((limit / (norms + 1e-6)).clamp(max=1.0)[:, None])
