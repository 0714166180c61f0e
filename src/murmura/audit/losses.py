"""Losses of all records under everything that a curious server has kept of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from murmura.audit.membership import AuditSample
from murmura.federation.server.transcript import TranscriptRound
from murmura.model_runtime import ModelRuntime
from murmura.progress import bar
from murmura.tasks import Task
from murmura.training.adapter import State, fold
from murmura.training.config import LoraSpec


@dataclass(frozen=True)
class Losses:
    """Mean negative log-likelihoods of records, in nats a token: of members, site by site in the order of the sample,
    and behind them of others.

    Attributes:
        sites: K names, those of the sample.
        owners: int64 [M], the place of each member's site among them.
        base: float64 [M + N], under the model before training.
        models: float64 [R, M + N], under the global model after each round.
        uploads: float64 [R, K, M + N], under each site's upload; NaN where there is none.
    """

    sites: list[str]
    owners: np.ndarray
    base: np.ndarray
    models: np.ndarray
    uploads: np.ndarray

    @property
    def heard(self) -> list[str]:
        """Those of the sites that have sent an upload."""
        return [site for site, own in zip(self.sites, self.upload(first=True), strict=True) if not np.isnan(own).any()]

    def part(self, sites: Sequence[str]) -> Losses:
        """Only members and uploads of those sites, in the order of the sample; all others."""
        kept = [place for place, site in enumerate(self.sites) if site in sites]
        members = np.isin(self.owners, kept)
        columns = np.concatenate([members, np.ones(len(self.base) - len(members), dtype=bool)])
        return Losses(
            [self.sites[place] for place in kept],
            np.searchsorted(kept, self.owners[members]),
            self.base[columns],
            self.models[:, columns],
            self.uploads[:, kept][:, :, columns],
        )

    def upload(self, first: bool) -> np.ndarray:
        """Under the first or the last upload of each site, float64 [K, M + N]; NaN where it never sent one."""
        heard = ~np.isnan(self.uploads[:, :, :1])
        order = heard if first else heard[::-1]
        place = order.argmax(axis=0)  # the first that was heard
        place = place if first else len(self.uploads) - 1 - place
        return np.take_along_axis(self.uploads, place[None, :, :], axis=0)[0]


def losses(
    task: Task, bench: ModelRuntime, rounds: Sequence[TranscriptRound], sample: AuditSample, lora: LoraSpec | None
) -> Losses:
    """Read all records with all that was kept; many models share batches.

    Args:
        task: the kind of record.
        bench: with the run's base model.
        rounds: at least one.
        sample: the records.
        lora: of the run; None where all parameters train.

    Raises:
        CheckpointError: something that was kept is damaged.
    """
    sites = list(sample.members)
    records = [record for own in sample.members.values() for record in own] + list(sample.others)
    owners = np.repeat(np.arange(len(sites)), [len(own) for own in sample.members.values()])
    models = np.empty((len(rounds), len(records)))
    uploads = np.full((len(rounds), len(sites), len(records)), np.nan)
    passes = len(records) * (1 + sum(1 + len(set(sites) & set(one.sites)) for one in rounds))
    with bar("what a curious server keeps", passes) as progress:

        def read(states: Sequence[Callable[[], State]]) -> list[np.ndarray]:
            found: list[np.ndarray] = []
            step = bench.slots if lora else 1  # no more of them are in memory than share a batch
            for first in range(0, len(states), step):
                some = states[first : first + step]
                found += _read(task, bench, [plain(load(), lora) for load in some], records)
                progress.advance(len(records) * len(some))
            return found

        [base] = _read(task, bench, [bench.origin], records)
        progress.advance(len(records))
        for number, one in enumerate(rounds):
            heard = [site for site in sites if site in one.sites]
            models[number], *own = read([one.model, *(partial(one.upload, site) for site in heard)])
            for site, values in zip(heard, own, strict=True):
                uploads[number, sites.index(site)] = values
    return Losses(sites, owners, base, models, uploads)


def plain(state: State, lora: LoraSpec | None) -> State:
    """An adapter in which its residual is folded, so that any of them share a batch."""
    return state if lora is None else fold(state, lora)[0]


def _read(task: Task, bench: ModelRuntime, states: Sequence[State], records: Sequence[Any]) -> list[np.ndarray]:
    """Mean losses of all records under each state; 0 where a record has no token to predict."""
    found = task.token_scores(bench, [state for state in states for _ in records], list(records) * len(states))
    means = [float(one.nll.astype(np.float64).mean()) if len(one.nll) else 0.0 for one in found]
    return list(np.array(means).reshape(len(states), len(records)))
