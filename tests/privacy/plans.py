"""Plans that tests vary."""

from __future__ import annotations

from dataclasses import replace

from murmura.privacy import (
    ExampleClipping,
    FullParticipation,
    GaussianNoise,
    PoissonSampling,
    PrivacyPlan,
    SiteClipping,
)

RECORDS = PrivacyPlan(
    unit="record",
    adjacency="add-remove",
    sampler=PoissonSampling(0.04),
    clipping=ExampleClipping(1.5),
    noise=GaussianNoise(2.0),
    steps=50,
    delta=1e-5,
)
SITES = PrivacyPlan(
    unit="site",
    adjacency="add-remove",
    sampler=FullParticipation(),
    clipping=SiteClipping(0.5),
    noise=GaussianNoise(11.3),
    steps=11,
    delta=3e-6,
)


def of_records(**changes):
    return replace(RECORDS, **changes)


def of_sites(**changes):
    return replace(SITES, **changes)
