"""Variation with a masked model: some of a text's tokens are masked and filled in anew (Hou et al. 2024, PrE-Text)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murmura.errors import ConfigError, ModelError
from murmura.generation.sampling import Sampling, choose
from murmura.precision import with_float64
from murmura.progress import bar, phase
from murmura.streams import Stream
from murmura.training.batch import collate, micro_batches
from murmura.training.head import Head

if TYPE_CHECKING:
    from murmura.models import LoadedModel


class MaskFill:
    """Masks random tokens of a text and draws others in their places, one after the other in random order, each with
    what was filled in before it; and all that several times.

    A text keeps its number of tokens while it is varied. Special tokens are never masked, never drawn, and no part of
    the text that comes out; nor is white space at its ends.

    Args:
        loaded: a masked language model and its tokenizer.
        share: of a text's own tokens that are masked in each step, at least one.
        steps: how many times (the paper's W).
        sampling: how tokens are drawn.
        max_tokens: of a text, special ones included; what is longer loses its end.
        tokens_per_pass: padded tokens that go through the model at once. It changes no result beyond float rounding.

    Raises:
        ConfigError: the model cannot read so many tokens.
        ModelError: the model is no masked one.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        share: float = 0.3,
        steps: int = 2,
        sampling: Sampling | None = None,
        max_tokens: int = 64,
        tokens_per_pass: int = 8192,
    ) -> None:
        self._tokenizer: Any = loaded.tokenizer
        self._head = Head(loaded.model)
        if self._head.is_decoder or self._tokenizer.mask_token_id is None:
            raise ModelError("is no masked language model", where=loaded.name)
        longest = self._tokenizer.model_max_length
        if not 3 <= max_tokens <= longest:
            fix = f"Use 3 to {longest} tokens."
            raise ConfigError(f"texts of {max_tokens} tokens cannot be varied by {loaded.name}", fix=fix)
        self._share, self._steps = share, steps
        self._sampling, self._most, self._per_pass = sampling or Sampling(), max_tokens, tokens_per_pass
        self._ordinary = set(self._tokenizer.get_vocab().values()) - _special(self._tokenizer)
        never = [token for token in range(loaded.model.config.vocab_size) if token not in self._ordinary]
        self._never = torch.tensor(never, dtype=torch.long, device=loaded.model.device)

    def vary(self, texts: Sequence[str], streams: Sequence[Stream]) -> list[str]:
        """See ``Variation``. A text without a token that can be masked stays as it is."""
        drafts = [self._begin(*pair) for pair in zip(self._ids(texts), streams, strict=True)]
        with phase("generate"), bar("vary", len(drafts)) as progress:
            for group in micro_batches(drafts, self._per_pass):
                self._fill([drafts[i] for i in group if drafts[i].own])
                progress.advance(len(group))
        return [self._text(draft) if draft.own else text for draft, text in zip(drafts, texts, strict=True)]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return self._tokenizer(list(texts), truncation=True, max_length=self._most).input_ids if texts else []

    def _begin(self, ids: list[int], stream: Stream) -> _Draft:
        return _Draft(ids, [place for place, token in enumerate(ids) if token in self._ordinary], stream.numpy())

    def _text(self, draft: _Draft) -> str:
        return str(self._tokenizer.decode([draft.ids[place] for place in draft.own])).strip()

    def _fill(self, drafts: Sequence[_Draft]) -> None:
        for _ in range(self._steps):
            for draft in drafts:
                draft.mask(self._share, self._tokenizer.mask_token_id)
            while waiting := [draft for draft in drafts if draft.masked]:
                self._pass(waiting)

    def _pass(self, drafts: Sequence[_Draft]) -> None:
        """Fill the next mask of each text. At a place that is filled, the label says which number is its own."""
        places, numbers = zip(*(draft.masked.pop() for draft in drafts), strict=True)
        for own, (draft, place) in enumerate(zip(drafts, places, strict=True)):
            draft.labels = [-100] * len(draft.ids)
            draft.labels[place] = own
        device = self._never.device
        draws = torch.tensor(numbers, dtype=torch.float64, device=with_float64(device))

        def drawn(logits: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
            return choose(
                logits.index_fill(1, self._never, float("-inf")), self._sampling, draws[which.to(draws.device)]
            )

        [tokens], _ = self._head.measured(*collate(drafts, device), [drawn])
        for draft, place, token in zip(drafts, places, tokens.tolist(), strict=True):
            draft.ids[place] = token


@dataclass(eq=False)
class _Draft:
    """A text while it is varied.

    Attributes:
        own: places of its own tokens, those that may be masked.
        masked: places that are masked now, the next to be filled last, each with the number that draws its token.
        labels: see ``MaskFill._pass``.
    """

    ids: list[int]
    own: list[int]
    randomness: np.random.Generator
    masked: list[tuple[int, float]] = field(default_factory=list)
    labels: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.labels = [-100] * len(self.ids)

    def mask(self, share: float, mask: int) -> None:
        count = max(1, int(share * len(self.own)))
        places = self.randomness.choice(self.own, count, replace=False).tolist()
        self.masked = list(zip(places, self.randomness.random(count).tolist(), strict=True))
        for place in places:
            self.ids[place] = mask


def _special(tokenizer: Any) -> set[int]:
    """Ids of tokens that are no text: padding, beginning, end, mask, unknown and the like."""
    added = {token for token, one in tokenizer.added_tokens_decoder.items() if one.special}
    return added | set(tokenizer.all_special_ids)
