"""Noise on centres, at both ends: where k-means starts, what a site answers and enters in its ledger, and their ε.

It covers the centres of a site, whatever the server makes of them. It does not cover what else the site sends: losses,
and the adapters that it has trained on the same records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murmura.privacy.entropy import OSEntropy
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.reported import ReportedEpsilons, told
from murmura.retrieval.cache import Cached
from murmura.retrieval.centres import cluster
from murmura.retrieval.noisy import noisy_centres, plan_of
from murmura.runs.augment import CentresGuarantee
from murmura.runs.names import REPORTED

if TYPE_CHECKING:
    from murmura.augment.config import AugmentConfig
    from murmura.data.records import Instruction
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.site import Site
    from murmura.privacy.plan import PrivacyPlan
    from murmura.retrieval.encoder import Encoder
    from murmura.retrieval.pool import Pool
    from murmura.streams import Stream

_SAMPLE = 4096  # of the pool's records, whose clusters k-means starts from


def planned(config: AugmentConfig, rounds: int) -> PrivacyPlan:
    """The plan of every site in a run of so many rounds; it does not depend on how many records a site has."""
    return _plan(config, config.selections(rounds))


def _plan(config: AugmentConfig, times: int) -> PrivacyPlan:
    """That of answering so often."""
    assert config.noise_multiplier is not None, "without noise there is no plan"
    return plan_of(config.noise_multiplier, config.noise_iterations, times, config.noise_delta)


def starts(config: AugmentConfig, pool: Pool, encoder: Encoder | None, stream: Stream) -> torch.Tensor:
    """Where k-means starts at all sites, float32 [k, d]: centres of public records, of the sites' domain where that is
    named. They follow from the pool and the run's seed alone, and so betray nothing.

    Args:
        encoder: the sites', where it is not the pool's.
    """
    rows = np.arange(len(pool)) if config.domain is None else pool.rows_of(config.domain)
    drawn = np.sort(stream.numpy().choice(rows, min(_SAMPLE, len(rows)), replace=False))
    if encoder is None:
        vectors = pool.vectors[drawn]
    else:
        vectors = Cached(encoder).embed([record.question for record in pool.records(drawn)])
    return torch.from_numpy(cluster(vectors, config.clusters, stream.integer()).points)


def answer(
    site: Site,
    records: Sequence[Instruction],
    round: int,
    begin: torch.Tensor,
    config: AugmentConfig,
    plan: PrivacyPlan,
    encoder: Encoder,
) -> dict[str, Any]:
    """A site's reply: centres, noisy sizes, and what they have cost. It is in the site's ledger when this returns.

    Clusters whose noisy size is below ``smallest_cluster`` are left out.

    Args:
        records: those of the site that are clustered.

    Raises:
        PrivacyError: the server's starts cannot be used, or the ledger is one of another plan.
        CheckpointError: the ledger cannot be written, so that nothing may leave.
    """
    ledger = PrivacyLedger(plan, site.centres)
    vectors = encoder.embed_each([record.question for record in records])
    found = noisy_centres(vectors, begin.numpy(), config.noise_iterations, plan, OSEntropy())
    ledger.record(round, [found.spent])
    if found.spent.observed is not None and (bad := found.spent.observed.not_finite):
        site.tell(
            f"Round {round}: the vectors of {bad} records were not finite numbers, so they counted as zero in the "
            "centres, and the server was not told. Look at these records, or choose another encoder."
        )
    kept = found.sizes >= config.smallest_cluster
    centres, sizes = torch.from_numpy(found.points[kept]), torch.from_numpy(found.sizes[kept])
    return {"centres": centres, "sizes": sizes, "privacy": told(ledger)}


def reported(server: Server) -> ReportedEpsilons:
    """What sites have said of their ε."""
    return server.journal(REPORTED, ReportedEpsilons)


def asked(server: Server, config: AugmentConfig, sites: Sequence[str]) -> None:
    """Note who is asked for centres: what leaves a site has cost it something, whether it arrives here or not."""
    asking = server.may_answer(sites)
    reported(server).asked(asking, server.round, lambda times: _plan(config, times).epsilon().value)


def guaranteed(server: Server, config: AugmentConfig) -> CentresGuarantee:
    """What holds for every site that was asked, whether it still answers or not."""
    worst = reported(server).worst
    words = _plan(config, max(1, reported(server).most_asked)).describe()
    return CentresGuarantee(worst["epsilon"], config.noise_delta, "zero-out", words, worst["refused"])
