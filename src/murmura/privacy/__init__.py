"""Differential privacy: plans, what they cost, the mechanisms, and the ledger of what a run really did."""

from __future__ import annotations

from murmura.privacy.parts import (
    AdaptiveSiteClipping,
    BatchClipping,
    Clipping,
    ExampleClipping,
    FixedSizeSampling,
    FullParticipation,
    GaussianNoise,
    Noise,
    OncePerTree,
    PoissonSampling,
    Sampler,
    SiteClipping,
    TreeNoise,
)
from murmura.privacy.plan import Adjacency, PrivacyPlan, Unit

__all__ = [
    "AdaptiveSiteClipping",
    "Adjacency",
    "BatchClipping",
    "Clipping",
    "ExampleClipping",
    "FixedSizeSampling",
    "FullParticipation",
    "GaussianNoise",
    "Noise",
    "OncePerTree",
    "PoissonSampling",
    "PrivacyPlan",
    "Sampler",
    "SiteClipping",
    "TreeNoise",
    "Unit",
]
