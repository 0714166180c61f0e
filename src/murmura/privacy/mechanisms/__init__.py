"""Noise mechanisms, one file each: how noise is added, its accounting event, what of it must be seen, and its words."""

from __future__ import annotations

from murmura.privacy.mechanisms.banded import BandedNoise
from murmura.privacy.mechanisms.discrete_gaussian import DiscreteGaussianNoise
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.mechanisms.integers import IntegerNoise
from murmura.privacy.mechanisms.noise import Noise, PrefixSums, Tensors
from murmura.privacy.mechanisms.skellam import SkellamNoise
from murmura.privacy.mechanisms.tree import TreeNoise
from murmura.privacy.parts import registry

__all__ = [
    "NOISES",
    "BandedNoise",
    "DiscreteGaussianNoise",
    "GaussianNoise",
    "IntegerNoise",
    "Noise",
    "PrefixSums",
    "SkellamNoise",
    "Tensors",
    "TreeNoise",
]

NOISES: dict[str, type[Noise]] = registry(GaussianNoise, TreeNoise, BandedNoise, SkellamNoise, DiscreteGaussianNoise)
