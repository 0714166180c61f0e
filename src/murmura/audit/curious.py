"""Attacks of a server that keeps the models and uploads of all rounds.

Each asks whether a record is one of a certain site's. A member is asked about its own site, the others about every
site, and a member is compared with what is found of others when they are asked about its site (``AttackScores.rows``).
"""

from __future__ import annotations

import numpy as np

from murmura.audit.attack_scores import AttackScores
from murmura.audit.losses import Losses

TRAJECTORY, RMIA, FEDMIA = "loss trajectory", "RMIA", "FedMIA"
_LEAST = 1e-6  # of a standard deviation, in nats


def trajectory(losses: Losses) -> AttackScores:
    """By how many nats a token the global model finds a record likelier than the model before training does, on average
    over the rounds. Liu et al. 2022 train a classifier on such a trajectory of losses; here it is its mean height."""
    return _split(losses, (losses.base - losses.models.mean(axis=0))[None, :])


def rmia(losses: Losses, target: np.ndarray) -> AttackScores:
    """RMIA (Zarifzadeh et al. 2024, arXiv 2312.03262), with models as references that have not seen the record.

    Of a record x, asked about a site, p(x) is the likelihood of a token under the target, its geometric mean, and P(x)
    the mean of the same under the references: the model before training, and the first upload of every other site,
    which has seen none of this site's records if it is of the first round. The score is the share of other records z
    with (p(x)/P(x)) / (p(z)/P(z)) ≥ γ = 1, where equality counts half: of one of the others one z is the record
    itself, and in a model that has learnt nothing all ratios are equal, so that members would win every such tie.

    Args:
        losses: of all records.
        target: under what is attacked, [1 or K, M + N]: one model, or one for each site.
    """
    first, sites = losses.upload(first=True), len(losses.sites)
    members = len(losses.owners)
    found = []
    for site in range(sites):
        # In logs: a preference's loss is of all its tokens, and exp() of it may be beyond any number.
        known = -np.stack([losses.base, *(first[k] for k in range(sites) if k != site)])
        heard = ~np.isnan(known)  # a site that never sent anything is no reference
        seen = np.logaddexp.reduce(np.where(heard, known, -np.inf), axis=0) - np.log(heard.sum(axis=0))
        ratio = -target[site if len(target) > 1 else 0] - seen
        others = ratio[members:]
        found.append(((ratio[:, None] > others) + 0.5 * (ratio[:, None] == others)).mean(axis=1))
    return _split(losses, np.array(found))


def fedmia(losses: Losses) -> AttackScores | None:
    """FedMIA (Zhu et al. 2024, arXiv 2402.06289), on losses: in every round in which a site sent an upload,
    Φ((μ − ℓ)/s), where ℓ is the record's loss under that upload, and μ and s are mean and standard deviation of its
    losses under those of the other sites in that round; mean over these rounds. The score here is less by 1, as minus
    the other tail: from 8 standard deviations on, which few sites give easily, Φ is 1 in float64 and orders nothing.

    Rounds in which fewer than two others sent anything are left out; None where a site has no other rounds.
    """
    from scipy.stats import norm

    found = []
    for site in range(len(losses.sites)):
        scores = []
        for uploads in losses.uploads:
            rest = np.delete(uploads, site, axis=0)
            rest = rest[~np.isnan(rest).any(axis=1)]
            if len(rest) > 1 and not np.isnan(uploads[site]).any():
                spread = np.maximum(rest.std(axis=0, ddof=1), _LEAST)
                scores.append(-norm.sf((rest.mean(axis=0) - uploads[site]) / spread))
        if not scores:
            return None
        found.append(np.mean(scores, axis=0))
    return _split(losses, np.array(found))


def _split(losses: Losses, scores: np.ndarray) -> AttackScores:
    """Scores [1 or K, M + N] as members, each asked about its own site, against others."""
    members = len(losses.owners)
    rows = losses.owners if len(scores) > 1 else np.zeros(members, dtype=np.int64)
    return AttackScores(scores[rows, np.arange(members)], scores[:, members:], rows)
