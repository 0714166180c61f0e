"""From a small encoder's space into a large one's (FedDCA*, Wang et al. 2024, arXiv 2409.20135): sites embed with the
small encoder, the server retrieves with the large one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional as F

from murmura.errors import DataError
from murmura.streams import Stream

Similarity = Literal["cosine", "dot"]


@dataclass(frozen=True, slots=True)
class ProjectorTraining:
    """How a projector is trained.

    Args:
        epochs: Passes over the texts.
        lr: Adam's rate.
        batch: Texts in a batch, which are each other's negatives; at least 2.
        temperature: τ.
        include_positive: Whether the text itself stands in the denominator too (cross-entropy).
        similarity: Cosine, or the dot product with the projection as it comes out.
        hidden: Units of the hidden layer.
    """

    epochs: int = 3
    lr: float = 1e-4
    batch: int = 32
    temperature: float = 0.5
    include_positive: bool = False
    similarity: Similarity = "cosine"
    hidden: int = 128


class Projector:
    """A trained projector: Linear, ReLU, Linear.

    Args:
        layers: From [m, d] to [m, d'].
        losses: The mean loss of each epoch.
    """

    def __init__(self, layers: nn.Module, losses: list[float]) -> None:
        self._layers, self.losses = layers, losses

    def project(self, vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Vectors of the small space [m, d] in the large one, float32 [m, d'], each of length 1."""
        with torch.inference_mode():
            projected = self._layers(torch.from_numpy(np.array(vectors, dtype=np.float32)))
            return F.normalize(projected, dim=1).numpy()


def contrastive_loss(
    projected: torch.Tensor,
    targets: torch.Tensor,
    temperature: float,
    *,
    include_positive: bool = False,
    similarity: Similarity = "cosine",
) -> torch.Tensor:
    """Equation 4 of FedDCA, as a mean over the batch: the projection of each text φ_i is drawn to the large encoder's
    vector of the same text, and pushed from those of the others.

        −log exp(sim(φ_i, h'_i) / τ) / Σ_{j≠i} exp(sim(φ_i, h'_j) / τ)

    Args:
        projected: φ, [b, d'], b at least 2.
        targets: h', [b, d'].
        temperature: τ.
        include_positive: Whether j = i is in the sum, as in the authors' code but not in the equation.
        similarity: The equation's cosine, or the authors' dot product.
    """
    if similarity == "cosine":
        projected, targets = F.normalize(projected, dim=1), F.normalize(targets, dim=1)
    scores = projected @ targets.T / temperature
    positives = scores.diagonal()
    if not include_positive:
        itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(itself, -math.inf)
    return (scores.logsumexp(dim=1) - positives).mean()


def train(
    small: npt.NDArray[np.float32],
    large: npt.NDArray[np.float32],
    seed: int,
    training: ProjectorTraining | None = None,
) -> Projector:
    """Learn how vectors of a small encoder lie in a large one's space.

    Args:
        small: The texts' vectors by the small encoder, [n, d].
        large: The same texts' vectors by the large one, [n, d'].
        seed: First weights and order of the texts follow from it.
        training: As in the paper if None.

    Raises:
        DataError: There are fewer than two texts.
    """
    if len(small) < 2:
        raise DataError(f"{len(small)} texts to train a projector on, expected at least 2")
    training, stream = training or ProjectorTraining(), Stream(seed) / "projector"
    inputs, targets = (torch.from_numpy(np.array(vectors, dtype=np.float32)) for vectors in (small, large))
    layers = _layers(inputs.shape[1], training.hidden, targets.shape[1], (stream / "initial").torch())
    adam = torch.optim.Adam(layers.parameters(), lr=training.lr)
    # Of like size, and no text alone in one, without negatives.
    batches = min(math.ceil(len(inputs) / training.batch), len(inputs) // 2)
    losses = []
    for epoch in range(training.epochs):
        order = torch.randperm(len(inputs), generator=(stream / "order" / epoch).torch())
        total = 0.0
        for rows in torch.tensor_split(order, batches):
            loss = contrastive_loss(
                layers(inputs[rows]),
                targets[rows],
                training.temperature,
                include_positive=training.include_positive,
                similarity=training.similarity,
            )
            adam.zero_grad()
            loss.backward()
            adam.step()
            total += float(loss.detach()) * len(rows)
        losses.append(total / len(order))
    return Projector(layers.eval(), losses)


def _layers(width: int, hidden: int, out: int, generator: torch.Generator) -> nn.Sequential:
    """Weights as torch draws them, from a generator of their own."""
    first, second = (nn.utils.skip_init(nn.Linear, *shape) for shape in ((width, hidden), (hidden, out)))
    for layer in (first, second):
        bound = 1 / math.sqrt(layer.in_features)
        for parameter in (layer.weight, layer.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return nn.Sequential(first, nn.ReLU(), second)
