"""Random projection: inner products of long vectors from short ones (Johnson and Lindenstrauss 1984; with random signs,
Achlioptas 2003)."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from murmura.streams import Stream

_NUMBERS = 2**22  # of the matrix that are held at once (16 MB)


class RademacherProjection:
    """``x ↦ x·R / √d`` with R [P, d] of independent signs; for every x and y the mean of ⟨Rx, Ry⟩ over R is ⟨x, y⟩.

    R is a function of the stream and of d. It is made a block of rows at a time, each from a stream of its own, and
    never kept: with P in millions it would not fit memory. LESS compares gradients by it (Xia et al. 2024, arXiv
    2402.04333).

    Args:
        dimension: d.
        stream: names R.
    """

    def __init__(self, dimension: int, stream: Stream) -> None:
        self.dimension, self._stream = dimension, stream
        self._rows = max(_NUMBERS // dimension // 8 * 8, 8)  # of a block; whole bytes of signs
        bits = torch.arange(256)[:, None] >> torch.arange(8)
        self._signs = (bits & 1).float() * 2 - 1  # of every byte, float32 [256, 8]

    def __call__(self, vectors: torch.Tensor) -> torch.Tensor:
        """Project vectors.

        Args:
            vectors: float32 [n, P].

        Returns:
            float32 [n, d], where ``vectors`` are.
        """
        found = torch.zeros(len(vectors), self.dimension, device=vectors.device)
        for number, columns in enumerate(vectors.split(self._rows, dim=1)):
            found.addmm_(columns, self._block(number, vectors.device)[: columns.shape[1]])
        return found.div_(self.dimension**0.5)

    def _block(self, number: int, device: torch.device) -> torch.Tensor:
        """A block of R's rows, float32 [rows, d]."""
        drawn = (self._stream / number).numpy().bytes(self._rows * self.dimension // 8)
        packed = torch.frombuffer(bytearray(drawn), dtype=torch.uint8).to(device).int()
        return F.embedding(packed, self._signs.to(device)).view(self._rows, self.dimension)
