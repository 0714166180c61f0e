"""From a small encoder's space into a large one's (FedDCA*, Wang et al. 2024, arXiv 2409.20135): sites embed with the
small encoder, the server retrieves with the large one."""

from __future__ import annotations

import copy
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

_PATIENCE = 3  # epochs without gain on the texts held out


@dataclass(frozen=True, slots=True)
class ProjectorTraining:
    """How a projector is trained: the options of ``[augment]`` that begin with ``projector_``, without that."""

    epochs: int = 100
    lr: float = 1e-3
    batch: int = 32
    temperature: float = 0.5
    positive: bool = False
    similarity: Similarity = "cosine"
    hidden: int = 512
    heldout: float = 0.1


class Projector:
    """A trained projector: Linear, ReLU, Linear.

    Args:
        layers: From [m, d] to [m, d'].
        losses: The mean loss of each epoch, of the texts that were trained on.
        heldout: That of the texts held out, after each epoch; empty if there were none.
    """

    def __init__(self, layers: nn.Module, losses: list[float], heldout: list[float]) -> None:
        self._layers, self.losses, self.heldout = layers, losses, heldout

    @property
    def in_words(self) -> str:
        """How it was trained, in a sentence without a full stop."""
        passes = f"the projector into the pool's space was trained for {len(self.losses)} epochs"
        if not self.heldout:
            return passes
        first, least = self.heldout[0], min(self.heldout)
        return f"{passes}; its loss on texts held out was {first:.3f} after the first, {least:.3f} at best"

    def project(self, vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Vectors of the small space [m, d] in the large one, float32 [m, d'], each as long as it was.

        The loss knows directions alone. A centre is the mean of unit vectors, and its dot product with a vector is
        their mean cosine with that one: so with its length kept, it is that in the large space too, as far as texts
        are as close to each other there.
        """
        with torch.inference_mode():
            given = torch.from_numpy(np.array(vectors, dtype=np.float32))
            return (F.normalize(self._layers(given), dim=1) * given.norm(dim=1, keepdim=True)).numpy()


def contrastive_loss(
    projected: torch.Tensor,
    targets: torch.Tensor,
    temperature: float,
    *,
    positive: bool = False,
    similarity: Similarity = "cosine",
) -> torch.Tensor:
    """Equation 4 of FedDCA, as a mean over the batch: the projection of each text φ_i is drawn to the large encoder's
    vector of the same text, and pushed from those of the others.

        −log exp(sim(φ_i, h'_i) / τ) / Σ_{j≠i} exp(sim(φ_i, h'_j) / τ)

    Args:
        projected: φ, [b, d'], b at least 2.
        targets: h', [b, d'].
        temperature: τ.
        positive: Whether j = i is in the sum, as in the authors' code but not in the equation.
        similarity: The equation's cosine, or the authors' dot product.
    """
    if similarity == "cosine":
        projected, targets = F.normalize(projected, dim=1), F.normalize(targets, dim=1)
    scores = projected @ targets.T / temperature
    positives = scores.diagonal()
    if not positive:
        itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(itself, -math.inf)
    return (scores.logsumexp(dim=1) - positives).mean()


def train(
    small: npt.NDArray[np.float32], large: npt.NDArray[np.float32], seed: int, training: ProjectorTraining | None = None
) -> Projector:
    """Learn how vectors of a small encoder lie in a large one's space.

    Args:
        small: The texts' vectors by the small encoder, [n, d].
        large: The same texts' vectors by the large one, [n, d'].
        seed: First weights, the texts held out and the order of the others follow from it.
        training: With its defaults if None.

    Raises:
        DataError: There are fewer than two texts beside those held out.
    """
    training, stream = training or ProjectorTraining(), Stream(seed) / "projector"
    held = max(2, round(training.heldout * len(small))) if training.heldout else 0
    if len(small) < held + 2:
        beside = f" beside {held} held out" if held else ""
        raise DataError(f"{len(small)} texts to train a projector on, expected at least 2{beside}")
    inputs, targets = (torch.from_numpy(np.array(vectors, dtype=np.float32)) for vectors in (small, large))
    layers = _layers(inputs.shape[1], training.hidden, targets.shape[1], (stream / "initial").torch())
    adam = torch.optim.Adam(layers.parameters(), lr=training.lr)
    rows = torch.arange(len(inputs))
    if held:
        rows = rows[torch.randperm(len(rows), generator=(stream / "heldout").torch())]
    apart, rows = rows[:held], rows[held:]
    losses: list[float] = []
    heldout: list[float] = []
    best = copy.deepcopy(layers.state_dict())
    for epoch in range(training.epochs):
        order = torch.randperm(len(rows), generator=(stream / "order" / epoch).torch())
        losses.append(_pass(layers, inputs, targets, rows[order], training, adam))
        if held:
            with torch.inference_mode():
                heldout.append(_pass(layers, inputs, targets, apart, training))
            since = len(heldout) - 1 - int(np.argmin(heldout))
            if not since:
                best = copy.deepcopy(layers.state_dict())
            if since == _PATIENCE:
                break
    if held:
        layers.load_state_dict(best)
    return Projector(layers.eval(), losses, heldout)


def _pass(
    layers: nn.Module,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    rows: torch.Tensor,
    training: ProjectorTraining,
    adam: torch.optim.Optimizer | None = None,
) -> float:
    """The mean loss of some rows, batch after batch; with an optimiser, a step for each."""
    # Of like size, and no text alone in one, without negatives.
    batches = min(math.ceil(len(rows) / training.batch), len(rows) // 2)
    total = 0.0
    for batch in torch.tensor_split(rows, batches):
        loss = contrastive_loss(
            layers(inputs[batch]),
            targets[batch],
            training.temperature,
            positive=training.positive,
            similarity=training.similarity,
        )
        if adam is not None:
            adam.zero_grad()
            loss.backward()
            adam.step()
        total += float(loss.detach()) * len(batch)
    return total / len(rows)


def _layers(width: int, hidden: int, out: int, generator: torch.Generator) -> nn.Sequential:
    """Weights as torch draws them, from a generator of their own."""
    first, second = (nn.utils.skip_init(nn.Linear, *shape) for shape in ((width, hidden), (hidden, out)))
    for layer in (first, second):
        bound = 1 / math.sqrt(layer.in_features)
        for parameter in (layer.weight, layer.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return nn.Sequential(first, nn.ReLU(), second)
