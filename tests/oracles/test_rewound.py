"""What a ledger counts of runs that were rewound again and again, against each noisy number that such a run told."""

import random

import pytest

from murmura.privacy.clipping import SiteClipping
from murmura.privacy.events import inverse_variance
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.mechanisms.banded import BandedNoise, coefficients
from murmura.privacy.mechanisms.tree import TreeNoise
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import FullParticipation, MinSeparation, OncePerTree
from tests.privacy.plans import followed

ROUNDS, SPAN = 9, 4  # SPAN: of a tree, bands, and how far apart two turns of a unit are


def history(chance):
    """Rounds in the order in which they were done: now and then a run goes back by one round or two."""
    done = [1]
    while done[-1] < ROUNDS:
        back = chance.randint(1, 2) if len(done) < 40 and chance.random() < 0.3 else 0
        done.append(max(1, done[-1] + 1 - back))
    return done


def turns(kind, begun, chance):
    """In which rounds a unit takes part, as far as that is drawn when a round begins a tree, or the run."""
    if kind == "every step":
        return {begun + place for place in range(SPAN)}
    first = begun + chance.randrange(SPAN)
    return {first} if kind == "once a tree" else set(range(first, ROUNDS + 1, SPAN))


def moved(kind, done, chance):
    """Σ (how far a unit moves it)² over all numbers that were released, where each contribution points the same way.

    Of a tree these are the nodes that a round completes, of banded noise its row of C·x; both of what was done last.
    """
    drawn, there, found = set(), {}, 0.0
    for round in done:
        begun = 1 if kind == "banded" else round - (round - 1) % SPAN
        if round == begun:
            drawn = {one for one in drawn if one < begun} | turns(kind, begun, chance)
        there = {one: part for one, part in there.items() if one < round} | {round: float(round in drawn)}
        if kind == "banded":
            found += sum(f * there.get(round - back, 0.0) for back, f in enumerate(coefficients(SPAN))) ** 2
            continue
        within = round - begun + 1
        lengths = [2**height for height in range(SPAN) if within % 2**height == 0]
        found += sum(sum(there[round - back] for back in range(length)) ** 2 for length in lengths)
    return found


@pytest.mark.parametrize("kind", ["every step", "once a tree", "banded"])
def test_whatever_is_done_again_the_ledger_counts_at_least_what_was_released(kind):
    sampler = {"every step": FullParticipation(), "once a tree": OncePerTree(1), "banded": MinSeparation(1, SPAN)}[kind]
    noise = BandedNoise(1.0, SPAN) if kind == "banded" else TreeNoise(1.0, SPAN)
    plan, shares = PrivacyPlan("site", "zero-out", sampler, SiteClipping(1.0), noise, ROUNDS, 1e-5), []
    for seed in range(60):
        chance = random.Random(seed)
        done = history(chance)
        ledger = PrivacyLedger(plan)
        for round in done:
            ledger.record(round, [followed(plan)])
        counted = inverse_variance(plan.event(ledger.steps - len(ledger.repeated), ledger.repeated))
        shares += [moved(kind, done, chance) / counted for _ in range(8)]
    assert max(shares) <= 1 + 1e-9
    assert max(shares) > 0.75  # and not by much more
