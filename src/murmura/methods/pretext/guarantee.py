"""What hides whole sites in the sum of votes: the plan, and its noise, added by the server or in sites' shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from murmura.errors import PrivacyError
from murmura.methods.pretext.config import PretextConfig
from murmura.methods.pretext.voting import length
from murmura.methods.site_level.account import with_noise
from murmura.privacy.clipping import SiteClipping, VoteLimit
from murmura.privacy.entropy import Entropy, OSEntropy
from murmura.privacy.ledger import Spent
from murmura.privacy.mechanisms import NOISES
from murmura.privacy.observation import Observation, noised, require_share
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import FullParticipation


def plan(config: PretextConfig, shares: int = 1) -> PrivacyPlan:
    """What protects whole sites: every site is in every round, and at most so many of its texts vote.

    Args:
        shares: among how many sites the noise is divided; 1 where the server adds it.

    Raises:
        PrivacyError: no noise gives the ε that is asked for, or it cannot be divided so.
    """
    clipping = VoteLimit(config.texts_per_site) if config.votes == "nearest" else SiteClipping(1.0)
    noise = NOISES[config.noise](0.0).divided(shares)
    made = PrivacyPlan("site", "zero-out", FullParticipation(), clipping, noise, config.rounds, config.delta)
    return with_noise(made, config)


def share_added(
    plan: PrivacyPlan, votes: Sequence[torch.Tensor], shares: int, sites: Sequence[str], round: int
) -> list[torch.Tensor]:
    """Each site's votes with its share of the noise (Hou et al. 2024, Algorithm 2), which comes from the operating
    system at the site; int32 [n] each.

    Args:
        votes: of each site, int32 [n].
        shares: among how many sites the noise is divided.

    Raises:
        PrivacyError: what was added cannot be such a share, beyond chance; or the round is none of the plan's, whatever
            the server says.
    """
    if not 1 <= round <= plan.steps:
        what = f"votes are asked for in round {round}, and ε is for {plan.steps} rounds"
        fix = "Server and sites need the same experiment; if they have it, do not trust this server."
        raise PrivacyError(what, where=f"site {sites[0]}", fix=fix)
    noise, limit = plan.noise, plan.clipping.norm
    noisy = [noise.add({"": own}, limit, OSEntropy(), shares)[""].to(torch.int32) for own in votes]
    for site, before, after in zip(sites, votes, noisy, strict=True):
        require_share(noise, limit, shares, before, after, f"site {site}, round {round}")
    return noisy


def noise_added(
    plan: PrivacyPlan, exact: torch.Tensor, replies: int, sites: int, entropy: Entropy
) -> tuple[torch.Tensor, Spent]:
    """The sum of votes with exactly the noise that the plan accounts for (Hou et al. 2024, Algorithm 2), float64 [n],
    and what the ledger has to know.

    Args:
        exact: the sum, float64 [n].
        replies: of how many sites.
        sites: of the federation.
        entropy: where noise comes from.
    """
    limit, noise = plan.clipping.norm, plan.noise
    noisy = noise.add({"votes": exact}, limit, entropy)["votes"].double()
    # Of single sites this says little; each looks at its own votes before they are sent.
    longest = length(exact, whole=plan.clipping.kind == "votes") / (limit * max(replies, 1))
    seen = _seen(plan, sites) + Observation(after=longest, is_secret=entropy.is_secret)
    seen += noised([exact], [noisy], limit)
    return noisy, Spent(1, plan.sampler, limit, noise.std, observed=seen)


def noise_in_shares(plan: PrivacyPlan, shares: int, replies: int, sites: int) -> Spent:
    """What the ledger has to know of a sum to which ``replies`` sites have added a share of the noise each.

    Args:
        shares: among how many sites the noise is divided.
    """
    std = plan.noise.std * math.sqrt(replies / shares)
    seen = _seen(plan, sites) + Observation(shares=replies)
    return Spent(1, plan.sampler, plan.clipping.norm, std, shares=replies, observed=seen)


def _seen(plan: PrivacyPlan, sites: int) -> Observation:
    return Observation(1, sites, sites, clipped=(plan.clipping.observed,))
