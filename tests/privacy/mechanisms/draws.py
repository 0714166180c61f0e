"""Randomness whose every draw is seen in a result."""

import torch

from murmura.privacy.entropy import Entropy, SeededEntropy
from murmura.streams import Stream


class Unit(Entropy):
    """The k-th draw is the k-th unit vector: results then show how much of each draw is in them."""

    def __init__(self):
        self.drawn = 0

    def bytes(self, count):
        raise AssertionError

    def normal(self, count):
        self.drawn += 1
        return torch.eye(count)[self.drawn - 1]


def seeded():
    return SeededEntropy(Stream(0) / "tree")
