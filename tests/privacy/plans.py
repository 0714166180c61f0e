"""Plans that tests vary."""

from dataclasses import replace

from murmura.privacy.clipping import ExampleClipping, SiteClipping, VoteLimit
from murmura.privacy.composition import ReleasedSteps, composed
from murmura.privacy.entropy import SeededEntropy
from murmura.privacy.ledger import Spent
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.mechanisms.skellam import SkellamNoise
from murmura.privacy.observation import Observation
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import FullParticipation, PoissonSampling

RECORDS = PrivacyPlan("record", "zero-out", PoissonSampling(0.04), ExampleClipping(1.5), GaussianNoise(2.0), 50, 1e-5)
SITES = PrivacyPlan("site", "zero-out", FullParticipation(), SiteClipping(0.5), GaussianNoise(11.3), 11, 3e-6)
VOTES = replace(SITES, clipping=VoteLimit(8), noise=SkellamNoise(11.3))


def of_records(**changes):
    return replace(RECORDS, **changes)


def of_sites(**changes):
    return replace(SITES, **changes)


def of_votes(**changes):
    return replace(VOTES, **changes)


def of_group(plan, size):
    """ε of so many units together."""
    return composed([ReleasedSteps(plan, plan.steps)], plan.delta, plan.adjacency, size=size)


class Rehearsed(SeededEntropy):
    """Repeatable, but taken for a secret source."""

    is_secret = True


def seen(plan, steps=1, std=None, units=200, numbers=1000, shares=None):
    """What is seen of steps that follow a plan, in the middle of what chance allows."""
    sampler, chances = plan.sampler, steps * getattr(plan.sampler, "population", units)
    drawn = round(chances * sampler.expected(units) / units) if sampler.kind == "poisson" else chances
    drawn = steps * sampler.batch if hasattr(sampler, "batch") else drawn
    std = plan.noise.std if std is None else std
    numbers = numbers if std and shares is None else 0
    squares = steps * numbers * std**2
    count = getattr(plan.clipping, "count_noise", 0.0)
    return Observation(
        steps,
        drawn,
        chances,
        before=3.0,
        after=1.0,
        numbers=steps * numbers,
        squares=squares,
        counts=steps * bool(count),
        count_squares=steps * count**2,
        clipped=(plan.clipping.observed,),
        shares=steps * (shares or 0),
    )


def followed(plan, steps=1, **changes):
    """Steps that were done as planned, but for ``changes`` of what is said; what is seen agrees with that."""
    told = {"sampler": plan.sampler, "clip_norm": plan.clipping.norm, "noise_std": plan.noise.std}
    told |= {"parameters": plan.parameters()} | changes
    observed = seen(plan, steps, told["noise_std"], shares=told.get("shares")) if steps else None
    return Spent(steps, **told, observed=observed)
