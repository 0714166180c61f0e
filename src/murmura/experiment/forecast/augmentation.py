"""What ``[augment]`` would send, in a dry run."""

from __future__ import annotations

from dataclasses import dataclass

from murmura.augment.config import AugmentConfig
from murmura.augment.strategies import strategy, typical_weight
from murmura.augment.writing import drafting
from murmura.retrieval.pool import Pool

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
        embedded: texts that would be embedded in the whole run.
        gradients: records of which a gradient would be taken, the same one for each epoch again; or a training step.
    """

    title: str
    rows: int | None
    records: int
    times: int
    bytes_down: int
    bytes_up: int | None
    tokens: int = 0
    embedded: int = 0
    gradients: int = 0


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
    each = typical_weight(pool)
    records = min(len(pool), config.records if config.bytes is None else int(config.bytes / each))
    adapters = times - 1 if config.focus == "hardest" else times * config.less_epochs if config.by_influence else 0
    up = _up(config, pool, sites, own)
    return ForeseenAugmentation(
        title, len(pool), records, times, int(sites * (times * records * each + adapters * adapter)),
        None if up is None else times * up,
        embedded=_embedded(config, pool, own or 0, times), gradients=_gradients(config, pool, own or 0, times),
    )  # fmt: skip


def _embedded(config: AugmentConfig, pool: Pool, own: int, times: int) -> int:
    """Texts that sites embed, and with FedDCA* the server."""
    if not config.by_centres:
        return 0
    return times * own + (min(config.projector_records, len(pool)) if config.site_encoder else 0)


def _gradients(config: AugmentConfig, pool: Pool, own: int, times: int) -> int:
    """Of LESS: of each epoch the records of its warm-up, those of the pool that are compared, and the sites' own."""
    if not config.by_influence:
        return 0
    compared = len(pool) if config.less_sample is None else min(config.less_sample, len(pool))
    return times * config.less_epochs * (max(1, round(config.less_warm_up * len(pool))) + compared + own)


def _up(config: AugmentConfig, pool: Pool, sites: int, own: int | None) -> int | None:
    """Bytes of all sites' centres and sizes, or gradients; of another encoder's than the pool's, nobody knows yet."""
    if config.by_influence:
        return None if own is None else config.less_epochs * own * config.less_dimension * _NUMBER
    if not config.by_centres:
        return 0
    return None if config.site_encoder else sites * config.clusters * (_NUMBER * pool.dimension + _SIZE)
