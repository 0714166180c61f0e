"""What ``[augment]`` would send, in a dry run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from murmura.augment.config import AugmentConfig
from murmura.augment.strategies import strategy, weigh
from murmura.augment.writing import drafting
from murmura.retrieval.pool import Pool

_LOOKED_AT = 100  # records of the pool, to know how many bytes one has
_NUMBER = 4  # bytes of a float32
_SIZE = 8  # of an int64


@dataclass(frozen=True)
class ForeseenAugmentation:
    """Other records for all sites to train on.

    Args:
        title: the strategy, as reports call it.
        rows: of the pool; None where there is none, and records are written at the sites.
        records: most that a site would be given, or that would be written there.
        times: how often they would be chosen or written.
        bytes_down: to all sites in the whole run, about.
        bytes_up: from them; None where that is not known.
        tokens: most that would be written at a site each time.
    """

    title: str
    rows: int | None
    records: int
    times: int
    bytes_down: int
    bytes_up: int | None
    tokens: int = 0


def foreseen(
    config: AugmentConfig, pool: Pool | None, sites: int, own: int | None, rounds: int, adapter: int
) -> ForeseenAugmentation:
    """What ``[augment]`` would do.

    Args:
        pool: what records would be chosen from, if they are.
        sites: of the run.
        own: records of all of them; None where that is not known.
        rounds: of the run.
        adapter: bytes of one.
    """
    title, times = strategy(config).title, config.selections(rounds)
    if pool is None:
        down = 0 if config.writer else times * sites * adapter
        return ForeseenAugmentation(title, None, config.records, times, down, 0, drafting(config).most_tokens)
    some = weigh(pool.records(np.linspace(0, len(pool) - 1, min(_LOOKED_AT, len(pool))).astype(np.int64)))
    each = sum(some) / len(some)
    records = min(len(pool), config.records if config.bytes is None else int(config.bytes / each))
    adapters = times - 1 if config.focus == "hardest" else times * config.less_epochs if config.by_influence else 0
    up = _up(config, pool, sites, own)
    return ForeseenAugmentation(
        title, len(pool), records, times, int(sites * (times * records * each + adapters * adapter)),
        None if up is None else times * up,
    )  # fmt: skip


def _up(config: AugmentConfig, pool: Pool, sites: int, own: int | None) -> int | None:
    """Bytes of all sites' centres and sizes, or gradients; of another encoder's than the pool's, nobody knows yet."""
    if config.by_influence:
        return None if own is None else config.less_epochs * own * config.less_dimension * _NUMBER
    if not config.by_centres:
        return 0
    return None if config.site_encoder else sites * config.clusters * (_NUMBER * pool.dimension + _SIZE)
