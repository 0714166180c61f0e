"""Differential privacy: plans, what they cost, the mechanisms, and the ledger of what a run really did."""

from murmura.privacy.clipping import (
    AdaptiveSiteClipping,
    BatchClipping,
    Clipping,
    ClusterClipping,
    ExampleClipping,
    SiteClipping,
    VoteLimit,
)
from murmura.privacy.mechanisms import (
    BandedNoise,
    DiscreteGaussianNoise,
    GaussianNoise,
    IntegerNoise,
    Noise,
    SkellamNoise,
    TreeNoise,
)
from murmura.privacy.parts import Adjacency, Unit
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import (
    FixedSizeSampling,
    FullParticipation,
    MinSeparation,
    OncePerTree,
    PoissonSampling,
    Sampler,
)

__all__ = [
    "AdaptiveSiteClipping",
    "Adjacency",
    "BandedNoise",
    "BatchClipping",
    "Clipping",
    "ClusterClipping",
    "DiscreteGaussianNoise",
    "ExampleClipping",
    "FixedSizeSampling",
    "FullParticipation",
    "GaussianNoise",
    "IntegerNoise",
    "MinSeparation",
    "Noise",
    "OncePerTree",
    "PoissonSampling",
    "PrivacyPlan",
    "Sampler",
    "SiteClipping",
    "SkellamNoise",
    "TreeNoise",
    "Unit",
    "VoteLimit",
]
