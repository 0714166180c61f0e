"""What ``[augment]`` would send, in a dry run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from murmura.augment.config import AugmentConfig
from murmura.augment.strategies import Strategy, weigh
from murmura.retrieval.pool import Pool

_LOOKED_AT = 100  # records of the pool, to know how many bytes one has
_NUMBER = 4  # bytes of a float32
_SIZE = 8  # of an int64


@dataclass(frozen=True)
class ForeseenAugmentation:
    """Public records for all sites.

    Args:
        title: the strategy, as reports call it.
        rows: of the pool.
        records: most that a site would be given.
        times: how often they would be chosen.
        bytes_down: to all sites in the whole run, about.
        bytes_up: from them; None where that is not known.
    """

    title: str
    rows: int
    records: int
    times: int
    bytes_down: int
    bytes_up: int | None


def foreseen(
    strategy: Strategy, pool: Pool, sites: int, own: int | None, rounds: int, adapter: int
) -> ForeseenAugmentation:
    """What a strategy would do.

    Args:
        sites: of the run.
        own: records of all of them; None where that is not known.
        rounds: of the run.
        adapter: bytes of one.
    """
    config = strategy.config
    some = weigh(pool.records(np.linspace(0, len(pool) - 1, min(_LOOKED_AT, len(pool))).astype(np.int64)))
    each = sum(some) / len(some)
    records = min(len(pool), config.records if config.bytes is None else int(config.bytes / each))
    times = config.selections(rounds)
    adapters = times - 1 if config.focus == "hardest" else times * config.less_epochs if config.by_influence else 0
    up = _up(config, pool, sites, own)
    return ForeseenAugmentation(
        strategy.title, len(pool), records, times, int(sites * (times * records * each + adapters * adapter)),
        None if up is None else times * up,
    )  # fmt: skip


def _up(config: AugmentConfig, pool: Pool, sites: int, own: int | None) -> int | None:
    """Bytes of all sites' centres and sizes, or gradients; of another encoder's than the pool's, nobody knows yet."""
    if config.by_influence:
        return None if own is None else config.less_epochs * own * config.less_dimension * _NUMBER
    if not config.by_centres:
        return 0
    return None if config.site_encoder else sites * config.clusters * (_NUMBER * pool.dimension + _SIZE)
