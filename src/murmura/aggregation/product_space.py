"""Noise of the intended size on the product B·A, whatever the size of the factors.

Zhu et al. 2024 (DEeR, arXiv 2410.12926) train one factor a round, as ``RoLoRA`` does, and add ``Z·Aᵀ(AAᵀ)⁻¹`` to B
while A is fixed, with Z the size of the weight: on the product that is the projection of Z onto the rows of A. No
such Z is needed: ``Y = X·G^½`` with G = AAᵀ are coordinates of an update X of B in which lengths are those of X·A;
noise of equal size in all of them, brought back by ``G^-½``, has the distribution of the projected Z. (A while B is
fixed: the same with G = BᵀB, on the other side.)

So updates are clipped and noised in these coordinates as anywhere else, with the same accounting: the norm bounds the
change of the *product*, and the way back is mere post-processing by a public matrix. (To
clip the factor itself, as the paper does, bounds the product by the norm times the largest singular value of A, so that
ε would depend on A.)
"""

from __future__ import annotations

import torch

from murmura.errors import RunError
from murmura.finite import is_finite
from murmura.training.adapter import MAGNITUDE, State, factor_of

_CUTOFF = 1e-4  # of a factor's largest singular value: smaller ones count as zero


class ProductSpace:
    """Coordinates of updates of one factor, by the other that is fixed in this round and known to everybody.

    Directions in which the fixed factor is zero, or nearly, are left out both ways. An update in them does not change
    the product, noise that did would be without bound, and sent without noise they would give the update away. With
    B = 0, as before the first round, nothing at all remains of A: so B is trained first.

    Args:
        fixed: the factors that are not trained: all A's or all B's.

    Raises:
        RunError: a tensor is not a factor, or not finite.
    """

    def __init__(self, fixed: State) -> None:
        self._roots: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # the other factor's name -> G^½, G^-½ [r, r]
        for name, tensor in fixed.items():
            factor = factor_of(name)
            if factor is None or name.endswith(MAGNITUDE) or not is_finite(tensor):
                raise RunError(f"the tensor '{name}' is not a finite LoRA factor", fix="Fix all A's or all B's.")
            other = name.replace(f".lora_{factor}.", ".lora_B." if factor == "A" else ".lora_A.")
            self._roots[other] = _roots(tensor if factor == "A" else tensor.T)

    def enter(self, update: State) -> State:
        """Coordinates of an update, float32, of the same names and shapes: of the length that it has on the product."""
        return {name: self._apply(name, tensor, 0) for name, tensor in update.items()}

    def leave(self, coordinates: State) -> State:
        """The shortest update that has these coordinates, float32."""
        return {name: self._apply(name, tensor, 1) for name, tensor in coordinates.items()}

    def _apply(self, name: str, tensor: torch.Tensor, way: int) -> torch.Tensor:
        if name not in self._roots:
            raise RunError(f"the tensor '{name}' has no fixed factor beside it", fix="Fix the A's, or the B's, of all.")
        root, is_a = self._roots[name][way], factor_of(name) == "A"
        if tensor.shape[0 if is_a else 1] != len(root):
            raise RunError(f"the tensor '{name}' has another rank than the fixed factor beside it")
        x = tensor.double()
        return (root @ x if is_a else x @ root).float()


def _roots(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """G^½ and its pseudo-inverse, float64 [r, r], of G = rows·rowsᵀ, without ever squaring small singular values."""
    _, lower = torch.linalg.qr(rows.double().T)
    _, values, directions = torch.linalg.svd(lower, full_matrices=False)
    kept = values > _CUTOFF * values[0]
    values, directions = values[kept], directions[kept]
    return directions.T @ (values[:, None] * directions), directions.T @ (directions / values[:, None])
