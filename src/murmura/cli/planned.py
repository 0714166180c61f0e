"""The privacy plan that options of ``murmura privacy`` say, before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murmura.privacy.parts import check

if TYPE_CHECKING:
    from murmura.privacy.parts import Adjacency
    from murmura.privacy.plan import PrivacyPlan
    from murmura.privacy.samplers import Sampler


def sampler_of(
    rate: float,
    batch: int | None,
    of: int | None,
    restart_every: int | None,
    once: bool,
    bands: int | None,
    apart: int | None,
) -> Sampler:
    """Who takes part in a step.

    Raises:
        PrivacyError: options contradict each other, or a number is out of its range.
    """
    from murmura.privacy.samplers import (
        FixedSizeSampling,
        FullParticipation,
        MinSeparation,
        OncePerTree,
        PoissonSampling,
    )

    check(batch is None or of is not None, "--batch needs --of, the number of units it is drawn from", "Give both.")
    check(of is None or batch is not None, "--of needs --batch, the number of units that are drawn", "Give both.")
    check(not once or restart_every is not None, "--once needs --restart-every, the steps of a tree", "Give both.")
    fix = "Give one of them, --batch with --of."
    check(batch is None or rate == 1, "--sampling-rate and --batch exclude each other", fix)
    check(apart is None or bands is not None, "--apart needs --bands, the steps noise is correlated over", "Give both.")
    alone = rate == 1 and batch is None and restart_every is None
    check(bands is None or alone, "--bands does not go with samples or trees", "Give --bands and --apart alone.")
    if bands is not None:
        return MinSeparation(1, bands if apart is None else apart)
    if once:
        fix = "Each unit is in at most one step of a tree."
        check(rate == 1 and batch is None, "--once does not go with --sampling-rate or --batch", fix)
        return OncePerTree(1)
    if batch is not None and of is not None:
        return FixedSizeSampling(batch, of)
    return FullParticipation() if rate == 1 else PoissonSampling(rate)


def plan_of(
    noise_multiplier: float,
    steps: int,
    delta: float,
    sampler: Sampler,
    adjacency: Adjacency,
    clipping: str,
    groups: int,
    restart_every: int | None,
    bands: int | None,
) -> PrivacyPlan:
    """The plan that the options say; with trees or bands it is one of whole sites, like those that are trained so.

    Raises:
        PrivacyError: as ``sampler_of``.
    """
    from murmura.privacy.clipping import BatchClipping, ExampleClipping, SiteClipping
    from murmura.privacy.mechanisms.banded import BandedNoise
    from murmura.privacy.mechanisms.gaussian import GaussianNoise
    from murmura.privacy.mechanisms.tree import TreeNoise
    from murmura.privacy.plan import PrivacyPlan

    if restart_every is not None or bands is not None:
        plain = clipping == "example" and groups == 1
        fix = "With --restart-every and --bands whole updates are clipped."
        check(plain, "trees and bands do not go with --clipping batch or --tensor-groups", fix)
    if restart_every is not None:
        tree = TreeNoise(noise_multiplier, restart_every)
        return PrivacyPlan("site", adjacency, sampler, SiteClipping(1.0), tree, steps, delta)
    if bands is not None:
        banded = BandedNoise(noise_multiplier, bands)
        return PrivacyPlan("site", adjacency, sampler, SiteClipping(1.0), banded, steps, delta)
    clipped = BatchClipping(1.0, groups) if clipping == "batch" else ExampleClipping(1.0, groups)
    return PrivacyPlan("record", adjacency, sampler, clipped, GaussianNoise(noise_multiplier), steps, delta)


def of_votes(plan: PrivacyPlan, votes: int | None, kind: str, shares: int | None) -> PrivacyPlan:
    """The plan with whole sites' votes in place of clipped contributions, and with the noise for them.

    Raises:
        PrivacyError: as ``sampler_of``.
    """
    from murmura.privacy.clipping import VoteLimit
    from murmura.privacy.mechanisms import NOISES
    from murmura.privacy.plan import PrivacyPlan

    fix = "Other noise needs no number of shares."
    check(shares is None or kind == "discrete-gaussian", "--shares is for --noise discrete-gaussian alone", fix)
    if votes is None:
        check(kind == "gaussian", f"--noise {kind} needs --votes, the votes that each site casts at most", "Give both.")
        return plan
    plain = plan.clipping.kind == "example" and plan.clipping.groups == 1
    what = "--votes does not go with --clipping batch, --tensor-groups, --restart-every or --bands"
    check(plain, what, "Give --votes without them.")
    noise = NOISES[kind](plan.noise.std).divided(1 if shares is None else shares)
    return PrivacyPlan("site", plan.adjacency, plan.sampler, VoteLimit(votes), noise, plan.steps, plan.delta)
