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
from murmura.privacy.mechanisms.banded import BandedNoise
from murmura.privacy.mechanisms.discrete_gaussian import DiscreteGaussianNoise
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.mechanisms.integers import IntegerNoise
from murmura.privacy.mechanisms.noise import Noise
from murmura.privacy.mechanisms.skellam import SkellamNoise
from murmura.privacy.mechanisms.tree import TreeNoise
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
