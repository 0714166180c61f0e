"""Noise mechanisms, one file each: how noise is added, its accounting event, what of it must be seen, and its words."""

from __future__ import annotations

from murmura.privacy.mechanisms.banded import BandedNoise
from murmura.privacy.mechanisms.discrete_gaussian import DiscreteGaussianNoise
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.mechanisms.noise import Noise
from murmura.privacy.mechanisms.skellam import SkellamNoise
from murmura.privacy.mechanisms.tree import TreeNoise

NOISES: dict[str, type[Noise]] = {
    one.kind: one for one in (GaussianNoise, TreeNoise, BandedNoise, SkellamNoise, DiscreteGaussianNoise)
}
