"""Named randomness: a generator is a function of the run's seed and of what it is for.

No generator is ever shared between two purposes, so results do not depend on the engine, on how many
sites train together, or on whether the run was resumed.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch


@dataclass(frozen=True)
class Stream:
    """A place in the tree of random streams, e.g. ``Stream(0) / "round" / 3 / "site-a" / "shuffle"``."""

    seed: int
    path: tuple[str | int, ...] = ()

    def __truediv__(self, name: str | int) -> Stream:
        # numpy's integers print differently, so they would name another stream than Python's.
        return Stream(self.seed, (*self.path, name if isinstance(name, str) else index(name)))

    def integer(self) -> int:
        """A 63-bit integer derived by hashing the seed and the path (BLAKE2b)."""
        text = repr((self.seed, *self.path)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1

    def python(self) -> random.Random:
        """Python's generator for this place, new each time; so with ``numpy`` and ``torch``."""
        return random.Random(self.integer())

    def numpy(self) -> np.random.Generator:
        import numpy as np

        return np.random.default_rng(self.integer())

    def uniform(self, count: int) -> np.ndarray:
        """Float64 [count] in [0, 1)."""
        return self.numpy().random(count)

    def torch(self, device: str | torch.device = "cpu") -> torch.Generator:
        import torch

        return torch.Generator(device=device).manual_seed(self.integer())
