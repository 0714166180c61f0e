"""Token losses with logits at label positions only.

The output head is a fifth of a small model's work, and its logits are the largest tensors of a step. The head is
frozen, so the backward pass needs no logits once their gradient has gone through it: the gradient with respect to the
hidden states is formed part by part in the forward pass, and the logits are dropped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from murmura.training.frozen import FrozenLayers

Measure = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Of logits [n, vocabulary] and the tokens that followed, int64 [n]: a number, or m of them, for each token."""

HEADS = ("lm_head", "cls", "embed_out")  # what transformers calls the output head
_CHUNK = 1024  # most label positions whose logits are held at once
_LOGITS = {"cpu": 2**25, "cuda": 2**28}  # and most logits: matrix products want many rows, memory wants few
# Logits between two matrix products that are worked on together: as many as a CPU's cache holds; a GPU wants few calls.
_BLOCK = {"cpu": 2**21, "cuda": 2**26}


class Head:
    """Hidden states and logits of a transformers language model.

    Some architectures do more than ``head(hidden)`` (soft-capping, scaling); so the short way is tried once on two
    tokens and used only where it gives what the model itself gives.

    Attributes:
        frozen: what computes the layers below all adapters once for each record; None: all layers go along each time.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.is_decoder = not _is_masked(model)
        backbone = getattr(model, "base_model", None)
        self.backbone: Any = backbone if backbone is not model else None
        self.project: nn.Module | None = next(
            (getattr(model, n) for n in HEADS if isinstance(getattr(model, n, None), nn.Module)), None
        )
        self.is_linear = isinstance(self.project, nn.Linear)
        self.is_direct = self.backbone is not None and self.project is not None and self._agrees()
        self.frozen: FrozenLayers | None = None
        # Whether the model can be told at which places to make logits.
        self._selects = "logits_to_keep" in inspect.signature(model.forward).parameters

    @torch.no_grad()
    def _agrees(self) -> bool:
        ids = torch.tensor([[1, 2]], device=next(self.model.parameters()).device)
        hidden: list[torch.Tensor] = []

        def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
            if len(given) == 1 and given[0] is ids:
                hidden.append(output.last_hidden_state)

        with self.backbone.register_forward_hook(keep, with_kwargs=True):
            logits = self.model(input_ids=ids).logits
        # Where the backbone is given more than the tokens, what it makes of them alone takes a second pass.
        state = hidden[0] if hidden else self.backbone(input_ids=ids).last_hidden_state
        assert self.project is not None
        # The same operations give the same bits. A tolerance would pass a soft cap that small logits hardly feel.
        return torch.equal(self.project(state), logits)

    def adapted(self, names: Collection[str]) -> None:
        """Take the long way if one of the named modules, which now carry adapters, belongs to the head.

        An adapter's layer expects a batch's rows, not the label positions that are picked out of them.
        """
        if any(name.partition(".")[0] in HEADS for name in names):
            self.is_direct = self._selects = False

    def predicted(self, labels: Sequence[int]) -> int:
        """How many of a record's labelled tokens have a loss: a decoder cannot predict the first token."""
        return sum(label >= 0 for label in (labels[1:] if self.is_decoder else labels))

    def token_nll(
        self, ids: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Negative log-likelihood of every labelled token.

        Args:
            ids: int64 [rows, length], right-padded. For a decoder no attention mask is needed: a causal row never
                looks at the padding to its right. A masked model gets a mask over ``labels`` != -1 (see ``collate``).
            labels: int64 [rows, length]; the token to predict at its own position, -100 for none, -1 for padding.
            weights: float32 [rows], a factor on the losses of each row. To weight them here and not afterwards gives
                the bits that a mean loss has.

        Returns:
            float32 [n] losses in nats, differentiable, and int64 [n] row of each.
        """
        mask, wanted, targets = self._places(labels)
        rows = wanted.nonzero()[:, 0]
        chosen = targets[wanted]
        each = None if weights is None else weights[rows]
        picked = self._picked(ids, labels, mask, wanted)
        if not self.is_direct:
            return _cross_entropy(picked, chosen, each), rows
        if self.is_linear and not any(p.requires_grad for p in self.project.parameters()):  # type: ignore[union-attr]
            return _FrozenHeadLoss.apply(picked, self.project, chosen, each), rows
        return _cross_entropy(self.project(picked), chosen, each), rows  # type: ignore[misc]

    @torch.no_grad()
    def measured(
        self, ids: torch.Tensor, labels: torch.Tensor, measures: Sequence[Measure]
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """What measures make of the logits behind every labelled token; logits exist a part at a time.

        Args:
            ids: as in ``token_nll``.
            labels: as in ``token_nll``.
            measures: each is handed the same parts.

        Returns:
            Of each measure [n] or [n, m], and int64 [n] row of each token.
        """
        mask, wanted, targets = self._places(labels)
        picked, chosen = self._picked(ids, labels, mask, wanted), targets[wanted]
        found: list[list[torch.Tensor]] = [[] for _ in measures]
        width: int = self.project.out_features if self.is_linear else 1  # type: ignore[union-attr, assignment]
        nothing = [slice(0, 0)]  # of which measures still say what shape they have
        for part in [*_parts(len(chosen), min(_CHUNK, _LOGITS.get(ids.device.type, 2**25) // width))] or nothing:
            logits = self.project(picked[part]) if self.is_direct else picked[part]  # type: ignore[misc]
            for block in [*_parts(len(logits), _BLOCK.get(ids.device.type, 2**21) // logits.shape[1])] or nothing:
                for own, measure in zip(found, measures, strict=True):
                    own.append(measure(logits[block], chosen[part][block]))
        return [torch.cat(own) for own in found], wanted.nonzero()[:, 0]

    def logits_at(
        self, ids: torch.Tensor, labels: torch.Tensor, tokens: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of a few tokens behind every labelled position: what a cloze question's answer is chosen by.

        A linear head is multiplied in the columns asked for only; another one sees the labelled positions only.

        Args:
            ids: as in ``token_nll``.
            labels: as in ``token_nll``; what a label is, beyond being one, does not matter.
            tokens: int64 [V], the tokens asked for.

        Returns:
            float32 [n, V] logits, differentiable, and int64 [n] row of each.
        """
        mask, wanted, _ = self._places(labels)
        rows = wanted.nonzero()[:, 0]
        picked, head = self._picked(ids, labels, mask, wanted), self.project
        if not self.is_direct:
            return picked[:, tokens].float(), rows
        if not isinstance(head, nn.Linear):
            return head(picked)[:, tokens].float(), rows  # type: ignore[misc]
        bias = None if head.bias is None else head.bias[tokens].float()
        with torch.autocast(picked.device.type, enabled=False):  # a few columns: no place to round
            return F.linear(picked.float(), head.weight[tokens].float(), bias), rows

    def logits_behind(self, ids: torch.Tensor, places: torch.Tensor, **options: Any) -> torch.Tensor:
        """Logits behind one place of each row: what the next token is chosen by.

        Args:
            ids: int64 [rows, length].
            places: int64 [rows], the place in each row.
            options: for the model's forward pass: mask, positions, cache.

        Returns:
            [rows, vocabulary] in the model's dtype.
        """
        rows = torch.arange(len(ids), device=ids.device)
        if not self.is_direct and self._selects and ids.shape[1] > 1:  # of a prompt most would be made for nothing
            columns, which = places.unique(return_inverse=True)
            return self.model(input_ids=ids, logits_to_keep=columns, **options).logits[rows, which]
        model = self.backbone if self.is_direct else self.model
        out = model(input_ids=ids, **options)
        found = out.last_hidden_state if self.is_direct else out.logits
        picked = found[rows, places]
        return self.project(picked) if self.is_direct else picked  # type: ignore[misc]

    def _places(self, labels: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        """The attention mask, where a state predicts a labelled token, and the labels those places predict."""
        if self.is_decoder:
            return None, labels[:, 1:] >= 0, labels[:, 1:]
        return (labels != -1).long(), labels >= 0, labels

    def _picked(
        self, ids: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor | None, wanted: torch.Tensor
    ) -> torch.Tensor:
        """What predicts at the places in question: hidden states, or logits where the way is not direct."""
        with self.frozen.known(ids, (labels != -1).sum(1).tolist()) if self.frozen else nullcontext():
            if not self.is_direct and self._selects:
                columns = wanted.any(0).nonzero()[:, 0]
                logits = self.model(input_ids=ids, attention_mask=mask, logits_to_keep=columns).logits
                return logits[wanted[:, columns]]
            found = self.run(ids, mask)
        return (found[:, :-1] if self.is_decoder else found)[wanted]

    def run(self, ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Last hidden states [rows, length, d]; where the way is not direct, logits [rows, length, vocabulary]."""
        if not self.is_direct:
            return self.model(input_ids=ids, attention_mask=mask).logits
        options = {"use_cache": False} if self.is_decoder else {}
        return self.backbone(input_ids=ids, attention_mask=mask, **options).last_hidden_state


class _FrozenHeadLoss(torch.autograd.Function):
    """Cross-entropy of ``head(hidden)`` against targets, per token and weighted, with a frozen linear head.

    Products and losses are those of the usual path, row by row, so that gradients are too, to the last bit on a CPU.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, head: nn.Linear, targets: torch.Tensor, weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        losses = torch.empty(hidden.shape[0], device=hidden.device)
        gradient = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        most = min(_CHUNK, _LOGITS.get(hidden.device.type, 2**25) // head.out_features)
        for part in _parts(hidden.shape[0], most):
            logits = head(hidden[part])
            factors = None if weights is None else weights[part]
            losses[part] = _losses(logits, targets[part], factors, overwrite=gradient is not None)
            if gradient is not None:
                gradient[part] = logits @ head.weight
        ctx.gradient = gradient
        return losses

    @staticmethod
    def backward(ctx: Any, *outputs: torch.Tensor) -> tuple[torch.Tensor | None, None, None, None]:
        return ctx.gradient * outputs[0][:, None].to(ctx.gradient.dtype), None, None, None


def _losses(
    logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None, *, overwrite: bool
) -> torch.Tensor:
    """Losses of [n, vocabulary] logits; ``overwrite`` puts the gradient of their sum where the logits were."""
    losses = torch.empty(logits.shape[0], device=logits.device)
    for block in _parts(logits.shape[0], _BLOCK.get(logits.device.type, 2**21) // logits.shape[1]):
        z, factors = logits[block].detach(), None if weights is None else weights[block]
        with torch.set_grad_enabled(overwrite):
            own = _cross_entropy(z.requires_grad_(overwrite), targets[block], factors)
        if overwrite:
            logits[block] = torch.autograd.grad(own, z, torch.ones_like(own))[0]
        losses[block] = own.detach()
    return losses


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    nll = F.cross_entropy(logits.float(), targets, reduction="none")
    return nll if weights is None else nll * weights


def _parts(count: int, most: int) -> Iterator[slice]:
    """0 to ``count`` in as few equal parts as have at most ``most`` (or one) each."""
    parts = -(-count // max(most, 1))
    for k in range(parts):
        yield slice(k * count // parts, (k + 1) * count // parts)


def _is_masked(model: Any) -> bool:
    return "MaskedLM" in type(model).__name__
