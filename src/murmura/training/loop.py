"""Local training of K sites at once.

AdamW and SGD are element-wise, so the K rows of the bank's buffer train exactly as K separate runs do; only the forward
and backward passes are shared. Where a step's gradient comes from is up to ``step.py``, ``cloze.py`` or
``private.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from murmura.errors import PrivacyError, RunError
from murmura.finite import is_finite
from murmura.privacy.ledger import Spent
from murmura.progress import Bar, bar
from murmura.streams import Stream
from murmura.training.adapter import State
from murmura.training.attention import short_in_float32
from murmura.training.bank import Bank, Factor
from murmura.training.config import LocalTraining
from murmura.training.private import Private, PrivateStep
from murmura.training.step import Step, StepFactory

Watch = Callable[[int, torch.optim.Optimizer], None]
"""Is called with how many steps are done, before the first one and after each, and with the optimiser: it may read its
state, and set the rate of the next step."""


@dataclass(frozen=True)
class Trained:
    """One site's result: its tensors after its own last step, and what it took.

    Attributes:
        loss: mean over steps. None where there were none, and for private training: it follows from the secret samples,
            and no noise covers it.
        spent: what a privacy ledger has to record.
    """

    state: State
    steps: int
    loss: float | None
    spent: list[Spent] = field(default_factory=list)


class NonFiniteLoss(Exception):
    """A site's loss, or what it trained, is no longer finite.

    Attributes:
        slot: of the site.
        step: counted from 1.
        untrained: whether the loss was none before anything was trained.
    """

    def __init__(self, slot: int, step: int, *, untrained: bool = False) -> None:
        super().__init__(slot, step)
        self.slot, self.step, self.untrained = slot, step, untrained

    def told(self, where: str, fix: str) -> RunError:
        """The same as whoever leads the run is told it.

        Args:
            where: round and part of the run, without the step.
        """
        what = "the loss or the adapter is no longer a finite number"
        return RunError(what, where=f"{where}, step {self.step}", fix=fix)


def steps_of(records: int, training: LocalTraining) -> int:
    """Optimiser steps that a shard of so many records takes."""
    if records == 0:
        return 0
    if training.max_steps is not None:
        return training.max_steps
    return training.epochs * math.ceil(records / training.batch_size)


def drawn(records: int, training: LocalTraining) -> int:
    """How many of so many records a round trains on: all, unless its steps are too few for that."""
    return records if training.max_steps is None else min(records, training.batch_size * training.max_steps)


def batches(records: int, training: LocalTraining, stream: Stream) -> Iterator[list[int]]:
    """Indices of each step's records: a new order each epoch, the last batch of an epoch may be short."""
    pool = list(range(records))
    if training.max_steps is not None:
        pool = (stream / "sample").python().sample(pool, drawn(records, training))
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
    shards: Sequence[Sequence[Any]],
    starts: Sequence[State],
    training: LocalTraining,
    lr: float,
    streams: Sequence[Stream],
    *,
    prox: float = 0.0,
    anchors: Sequence[State] | None = None,
    corrections: Sequence[State] | None = None,
    weights: Sequence[Sequence[float]] | None = None,
    frozen: Factor | None = None,
    privacy: Private | None = None,
    around: Callable[[Bank], AbstractContextManager[Any]] | None = None,
    step: StepFactory = Step,
    watch: Watch | None = None,
    finite: bool = True,
    description: str = "train",
) -> list[Trained]:
    """Train slot k on ``shards[k]`` from ``starts[k]``, all slots together.

    A step's loss is, for each site, the mean token negative log-likelihood of its batch, or what ``step`` says. A site
    with fewer steps than others is read out at its own last step.

    Args:
        bank: its slots are overwritten.
        shards: tokenised records of each site, as ``step`` takes them; an empty shard comes back as it started.
        starts: where each site starts; ranks may be smaller than the bank's, and a residual is left out of the result.
        lr: learning rate of all steps of this round.
        streams: source of each site's batch order and dropout masks.
        prox: μ of FedProx (Li et al. 2020, eq. 2): adds μ/2·‖w − w_t‖² to the loss.
        anchors: w_t of each site, if it is not where the site starts.
        corrections: SCAFFOLD's ``c − c_k`` of each site (Karimireddy et al. 2020, Algorithm 1): w ← w − lr·(c − c_k)
            after every optimiser step.
        weights: a factor on each record's loss (FewFedWeight); 1 where not given.
        frozen: the factor that does not train: no gradient, noise, decay, and no part in a norm.
        privacy: take batches, clipping and noise from plans, and not ``training.clip`` (see ``private.py``).
        around: what to do with the bank around a step's passes, such as to train through quantised weights.
        step: makes what computes a step's gradients; ``partial(ClozeStep, cloze=…)`` for losses on labels.
        watch: looks on while all slots train together.
        finite: stop where a loss or an adapter is not finite any more; without it, that comes back as it is.

    Raises:
        NonFiniteLoss: naming slot and step.
        ModelError: a factor is frozen where there is no adapter.
        PrivacyError: a plan does not fit its site, there is no adapter, or losses are not those of tokens.
    """
    source, plans = _planned(bank, shards, training, streams, weights, frozen, privacy, step)
    bank.load(starts)
    with bank.trainable(frozen) as parameter, bar(description, sum(len(p) for p in plans)) as progress:
        clip = 0.0 if privacy else training.clip
        update = _Update(bank, frozen, _optimizer(parameter, training, lr), lr, prox, clip, anchors, corrections)
        return _take_steps(bank, source, plans, update, around, watch, finite, progress)


def _planned(
    bank: Bank,
    shards: Sequence[Sequence[Any]],
    training: LocalTraining,
    streams: Sequence[Stream],
    weights: Sequence[Sequence[float]] | None,
    frozen: Factor | None,
    privacy: Private | None,
    step: StepFactory,
) -> tuple[Step, list[list[list[int]]]]:
    """What computes gradients, and the indices of the records of each slot's steps."""
    inputs = bank, shards, training, streams, weights
    if privacy is None:
        plans = [list(batches(len(shard), training, stream)) for shard, stream in zip(shards, streams, strict=True)]
        return step(*inputs), plans
    if step is not Step:
        fix = "Train without it, or protect whole sites."
        raise PrivacyError("record-level privacy is for losses on tokens only", fix=fix)
    source = PrivateStep(*inputs, privacy=privacy, frozen=frozen)
    return source, [privacy.batches(slot, len(shard), training) for slot, shard in enumerate(shards)]


def _take_steps(
    bank: Bank,
    source: Step,
    plans: Sequence[Sequence[list[int]]],
    update: _Update,
    around: Callable[[Bank], AbstractContextManager[Any]] | None,
    watch: Watch | None,
    finite: bool,
    progress: Bar,
) -> list[Trained]:
    """Take the steps of all slots together; what each slot has come to after its own last one."""
    results = {slot: Trained(bank.read(slot), 0, None) for slot, plan in enumerate(plans) if not plan}
    totals = [0.0] * len(plans)
    if watch is not None:
        watch(0, update.optimizer)
    for done in range(max((len(plan) for plan in plans), default=0)):
        chosen = {slot: plan[done] for slot, plan in enumerate(plans) if done < len(plan)}
        bank.grad.zero_()
        with short_in_float32(bank.device), around(bank) if around else nullcontext():
            losses = source.gradients(chosen, done)
        for slot in chosen:
            if finite and not math.isfinite(losses[slot]):
                raise NonFiniteLoss(slot, done + 1, untrained=not done)
            totals[slot] += losses[slot]
        update()
        if watch is not None:
            watch(done + 1, update.optimizer)
        for slot in (slot for slot in chosen if len(plans[slot]) == done + 1):
            if finite and not is_finite(update.weight[slot]):
                raise NonFiniteLoss(slot, done + 1)
            spent, mean = source.spent(slot), totals[slot] / len(plans[slot])
            results[slot] = Trained(bank.read(slot), done + 1, mean if spent is None else None, spent or [])
        progress.advance(len(chosen))
    return [results[slot] for slot in range(len(plans))]


class _Update:
    """What a step does to the weights with the gradients that the passes have left; FedProx and SCAFFOLD act here.

    Attributes:
        weight: the trained columns of the bank, [K, P'].
        optimizer: what takes the step itself.
    """

    def __init__(
        self,
        bank: Bank,
        frozen: Factor | None,
        optimizer: torch.optim.Optimizer,
        lr: float,
        prox: float,
        clip: float,
        anchors: Sequence[State] | None,
        corrections: Sequence[State] | None,
    ) -> None:
        columns = bank.columns(frozen)
        self.weight, self._gradient = bank.flat[:, columns], bank.grad[:, columns]
        self.optimizer, self._lr, self._prox, self._clip = optimizer, lr, prox, clip
        self._anchor = _anchor(bank, anchors)[:, columns] if prox else None
        self._shift = _rows(bank, corrections)[:, columns] if corrections is not None else None

    def __call__(self) -> None:
        if self._anchor is not None:
            self._gradient.add_(self.weight - self._anchor, alpha=self._prox)
        if self._clip:
            _clip_rows(self._gradient, self._clip)
        self.optimizer.step()
        if self._shift is not None:
            self.weight.sub_(self._shift, alpha=self._lr)


def _anchor(bank: Bank, anchors: Sequence[State] | None) -> torch.Tensor:
    """w_t as rows like the bank's, without the residual that a state may have: it does not train."""
    if anchors is None:
        return bank.flat.clone()
    return _rows(bank, [{entry.name: state[entry.name] for entry in bank.manifest} for state in anchors])


def _rows(bank: Bank, states: Sequence[State]) -> torch.Tensor:
    """States as rows [K, P] like the bank's."""
    return torch.stack([bank.pack(state) for state in states]).to(bank.device)


def _optimizer(parameter: torch.nn.Parameter, training: LocalTraining, lr: float) -> torch.optim.Optimizer:
    if training.optimizer == "sgd":
        return torch.optim.SGD([parameter], lr=lr, momentum=training.momentum, weight_decay=training.weight_decay)
    return torch.optim.AdamW(
        [parameter], lr=lr, betas=training.betas, eps=training.eps, weight_decay=training.weight_decay
    )


def _clip_rows(gradient: torch.Tensor, limit: float) -> None:
    """Scale each row of [K, P] to norm at most ``limit`` (the rule of ``torch.nn.utils.clip_grad_norm_``)."""
    # Added up in float32: of 10⁷ numbers too small by some 4·10⁻⁴, of 10⁸ by a hundredth. No ε rests on it.
    norms = torch.linalg.vector_norm(gradient, dim=1)
    gradient.mul_((limit / (norms + 1e-6)).clamp(max=1.0)[:, None])
