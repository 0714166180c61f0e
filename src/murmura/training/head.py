"""Token losses with logits at label positions only.

The output head is a fifth of a small model's work and the largest tensor of a step. It is frozen, so its backward pass
needs no logits once ``softmax − one-hot`` has gone through it: the gradient with respect to the hidden states is formed
chunk by chunk in the forward pass, and the logits are dropped.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

HEADS = ("lm_head", "cls", "embed_out")  # what transformers calls the output head
_CHUNK = 1024  # label positions whose logits exist at one time


class Head:
    """Hidden states and logits of a transformers language model.

    Some architectures do more than ``head(hidden)`` (soft-capping, scaling); so the short way is tried once on two
    tokens and used only where it gives what the model itself gives.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.is_decoder = not _is_masked(model)
        backbone = getattr(model, "base_model", None)
        self.backbone: Any = backbone if backbone is not model else None
        self.project: nn.Module | None = next(
            (getattr(model, n) for n in HEADS if isinstance(getattr(model, n, None), nn.Module)),
            None,
        )
        self.is_linear = isinstance(self.project, nn.Linear)
        self.is_direct = self.backbone is not None and self.project is not None and self._agrees()

    @torch.no_grad()
    def _agrees(self) -> bool:
        ids = torch.tensor([[1, 2]], device=next(self.model.parameters()).device)
        assert self.project is not None
        direct = self.project(self.backbone(input_ids=ids).last_hidden_state)
        # The same operations give the same bits. A tolerance would pass a soft cap that small logits hardly feel.
        return torch.equal(direct, self.model(input_ids=ids).logits)

    def adapted(self, names: Collection[str]) -> None:
        """Take the long way if one of the named modules, which now carry adapters, belongs to the head.

        An adapter's layer expects a batch's rows, not the label positions that are picked out of them.
        """
        if any(name.partition(".")[0] in HEADS for name in names):
            self.is_direct = False

    def token_nll(self, ids: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Negative log-likelihood of every labelled token.

        Args:
            ids: int64 [rows, length], right-padded. For a decoder no attention mask is needed: a causal row never
                looks at the padding to its right. A masked model gets a mask over ``labels`` != -1 (see ``collate``).
            labels: int64 [rows, length]; the token to predict at its own position, -100 for none, -1 for padding.

        Returns:
            float32 [n] losses in nats, differentiable, and int64 [n] row of each.
        """
        mask, wanted, targets = self._places(labels)
        rows = wanted.nonzero()[:, 0]
        chosen = targets[wanted]
        if not self.is_direct:
            logits = self.model(input_ids=ids, attention_mask=mask).logits
            picked = (logits[:, :-1] if self.is_decoder else logits)[wanted]
            return F.cross_entropy(picked.float(), chosen, reduction="none"), rows
        hidden = self.hidden(ids, mask)
        picked = (hidden[:, :-1] if self.is_decoder else hidden)[wanted]
        if self.is_linear and not any(p.requires_grad for p in self.project.parameters()):  # type: ignore[union-attr]
            return _FrozenHeadLoss.apply(picked, self.project, chosen), rows
        return F.cross_entropy(self.project(picked).float(), chosen, reduction="none"), rows  # type: ignore[misc]

    @torch.no_grad()
    def free_energy(
        self, ids: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Free energy ``−T·log Σ_v exp(z_v / T)`` of the logits behind every labelled token (Liu et al. 2020).

        Lower means that the model finds itself on familiar ground; which token really followed does not matter.

        Args:
            ids: as in ``token_nll``.
            labels: as in ``token_nll``.
            temperature: T.

        Returns:
            float32 [n] energies, and int64 [n] row of each.
        """
        mask, wanted, _ = self._places(labels)
        rows = wanted.nonzero()[:, 0]
        direct = self.is_direct
        states = self.hidden(ids, mask) if direct else self.model(input_ids=ids, attention_mask=mask).logits
        picked = (states[:, :-1] if self.is_decoder else states)[wanted]
        energies = torch.empty(picked.shape[0], device=ids.device)
        for start in range(0, picked.shape[0], _CHUNK):
            part = slice(start, start + _CHUNK)
            logits = self.project(picked[part]) if direct else picked[part]  # type: ignore[misc]
            energies[part] = -temperature * (logits.float() / temperature).logsumexp(-1)
        return energies, rows

    def _places(self, labels: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        """The attention mask, where a state predicts a labelled token, and the labels those places predict."""
        if self.is_decoder:
            return None, labels[:, 1:] >= 0, labels[:, 1:]
        return (labels != -1).long(), labels >= 0, labels

    def hidden(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Last hidden states [rows, length, d]."""
        options = {"use_cache": False} if self.is_decoder else {}
        return self.backbone(input_ids=ids, attention_mask=mask, **options).last_hidden_state


class _FrozenHeadLoss(torch.autograd.Function):
    """Cross-entropy of ``head(hidden)`` against targets, per token, with a frozen linear head."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, head: nn.Linear, targets: torch.Tensor) -> torch.Tensor:
        losses = torch.empty(hidden.shape[0], device=hidden.device)
        gradient = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        for start in range(0, hidden.shape[0], _CHUNK):
            part = slice(start, start + _CHUNK)
            log_p = head(hidden[part]).float().log_softmax(-1)
            chosen = targets[part, None]
            losses[part] = -log_p.gather(1, chosen)[:, 0]
            if gradient is not None:
                p = log_p.exp_()
                p.scatter_add_(1, chosen, torch.full_like(chosen, -1, dtype=p.dtype))
                gradient[part] = p.to(head.weight.dtype) @ head.weight
        ctx.gradient = gradient
        return losses

    @staticmethod
    def backward(ctx: Any, *outputs: torch.Tensor) -> tuple[torch.Tensor | None, None, None]:
        return ctx.gradient * outputs[0][:, None].to(ctx.gradient.dtype), None, None


def _is_masked(model: Any) -> bool:
    return "MaskedLM" in type(model).__name__
