"""One step of many texts at once, and how texts join and leave between two steps."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from transformers import Cache, DynamicCache

from murmura.errors import ModelError
from murmura.generation.cache import Columns, has_window, layers_of
from murmura.generation.ending import Draft
from murmura.generation.prefix import Prefix, shared_prefixes
from murmura.generation.recorded import DEVICES, Recorded
from murmura.training.bank import Bank

_SLACK = 128  # columns beyond the longest text; so often, all columns are moved to the left
_RECORD_AT = 3  # a graph is recorded at this step, since that costs about three steps
_JOIN_AT = 8  # texts join when an eighth of the rows are free, since reading a prompt costs a pass
_OF_THEIR_OWN = {"minimax", "recurrent_gemma", "xlstm"}
"""Models that remember in a class of their own, or in their layers, where texts of one batch and of the next mix."""


@dataclass(frozen=True)
class _Pass:
    """How many tokens go through the model at once, and what share of them may be padding."""

    tokens: int
    padding: float


_PASSES = {"cpu": _Pass(512, 0.1)}
_ELSEWHERE = _Pass(8192, 0.5)


@dataclass(eq=False)
class Text:
    """A prompt, whose slot continues it by how many tokens at most, and what has been written.

    Args:
        draws: with sampling, a number for each token.
        prefix: what its prompt shares with others.
        start: the column of its first token.
    """

    prompt: Sequence[int]
    slot: int
    limit: int
    draft: Draft
    draws: Sequence[float] = ()
    prefix: Prefix | None = None
    start: int = 0


def decoder_for(bank: Bank, texts: Sequence[Text], rows: int) -> Decoder | Lockstep:
    """The one for a model: some keep more than keys and values, or in a way of their own."""
    layers = layers_of(bank.model)
    if layers is None:
        return Lockstep(bank, rows)
    return Decoder(bank, layers, texts, 1 if _counts_by_cache(bank.model) else rows)


def _counts_by_cache(model: nn.Module) -> bool:
    """Whether a token's place is how much the cache holds, one number for all rows, as with BART's kind: texts of
    different lengths cannot then be written together."""
    embeddings = {name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, nn.Embedding)}
    takes_positions = "position_ids" in inspect.signature(model.forward).parameters
    return not takes_positions and not embeddings.isdisjoint({"embed_positions", "position_embeddings"})


class _Calls:
    """How a model wants to be called."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        takes = inspect.signature(bank.model.forward).parameters
        cache = next((name for name in ("past_key_values", "cache_params") if name in takes), None)
        if cache is None or bank.model.config.model_type in _OF_THEIR_OWN:
            what = f"{type(bank.model).__name__} keeps no cache between tokens that others may hold, so it cannot write"
            raise ModelError(what, fix="Use a model whose forward pass takes past_key_values, and all it keeps in it.")
        self._cache, self.takes_positions = cache, "position_ids" in takes

    def logits(
        self, ids: torch.Tensor, behind: torch.Tensor, cache: Cache, positions: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Logits [rows, vocabulary] behind one place of each row of ``ids``; mask and positions are the model's own."""
        options: dict[str, Any] = {self._cache: cache} | ({"position_ids": positions} if self.takes_positions else {})
        if self._cache == "cache_params" and ids.shape[1] == 1:
            mask = None  # a state that has taken in the past; a mask is of the present tokens
        return self._bank.head.logits_behind(ids, behind, attention_mask=mask, use_cache=True, **options)


class Decoder:
    """Texts in a preallocated cache, where one may join as soon as another has left.

    Args:
        layers: the model's layers of keys and values.
        texts: all that will ever join.
        rows: most texts at once.
    """

    def __init__(self, bank: Bank, layers: int, texts: Sequence[Text], rows: int) -> None:
        self.bank, self.texts, self._calls = bank, list[Text](), _Calls(bank)
        self._layers, self._rows = layers, min(rows, len(texts))
        self._longest = max(len(text.prompt) for text in texts)
        longest = max(len(text.prompt) + text.limit for text in texts)
        self._cache = Columns(layers, self._rows, longest + _SLACK)
        self._cache.end = self._longest
        slots = {text.slot for text in texts}
        self._slot = min(slots) if len(slots) == 1 else None
        self._recorded: Recorded | None = None
        self._plain = 0  # steps taken one by one
        self._places: WeakKeyDictionary[Prefix, tuple[Columns, int]] = WeakKeyDictionary()
        prefixes = shared_prefixes([text.prompt for text in texts], [text.slot for text in texts])
        for text, prefix in zip(texts, prefixes, strict=True):
            text.prefix = prefix

    def room(self) -> int:
        """How many texts may join now."""
        free = self._rows - len(self.texts)
        return free if free * _JOIN_AT >= self._rows else 0

    def join(self, texts: Sequence[Text]) -> torch.Tensor:
        """Read prompts; returns the logits behind them [texts, vocabulary]."""
        self._read_prefixes(texts)
        found: dict[int, torch.Tensor] = {}
        for group in _passes([(len(text.prompt), _length(text.prefix)) for text in texts], self.bank.device):
            jobs = [(texts[i].prompt, texts[i].slot, texts[i].prefix) for i in group]
            cache, logits = self._read(jobs)
            for row, i in enumerate(group):
                self._cache.put(len(self.texts) + i, cache, row, len(texts[i].prompt))
                found[i] = logits[row]
        for text in texts:
            text.prefix = None  # the last text that needs it lets go of its keys and values
            text.start = self._cache.end - len(text.prompt)
        self.texts += texts
        self._changed()
        return torch.stack([found[i] for i in range(len(texts))])

    def step(self) -> torch.Tensor:
        """Take in the last token of each text; returns the logits behind it [texts, vocabulary]."""
        cache = self._cache
        self._make_room()
        cache.first = min(text.start for text in self.texts)
        last = torch.tensor([text.draft.ids[-1] for text in self.texts], device=self.bank.device)
        if self._recorded is not None:
            logits = self._recorded.logits(last, self._starts)
        else:
            recorded = self._record(last)
            columns = torch.arange(cache.first, cache.end + 1, device=self.bank.device)
            starts = self._starts[:, None]
            seen = (columns >= starts).long()
            logits = self._calls.logits(last[:, None], self._starts * 0, cache, cache.end - starts, seen)
            if recorded is not None and recorded.agrees(logits):
                self._recorded = recorded
        cache.end += 1
        return logits

    def _record(self, last: torch.Tensor) -> Recorded | None:
        """The step that is about to be taken, recorded, if it is time and can be done."""
        self._plain += 1
        if self._plain != _RECORD_AT or not self._is_recordable():
            return None
        recorded = Recorded(self.bank, self._calls.logits, self._cache, self._slot)
        return recorded if recorded.record(last, self._starts) else None

    def _is_recordable(self) -> bool:
        """Whether a mask of rows and columns tells the model what each token sees, and all shapes stay, as they do not
        where products with weights of 8 bits look at values."""
        model = self.bank.model
        masked = self._calls.takes_positions and model.config._attn_implementation == "sdpa" and not has_window(model)
        return self.bank.device.type in DEVICES and masked and not getattr(model, "is_loaded_in_8bit", False)

    def leave(self) -> list[Text]:
        """Let go of the texts that are over; returns them. Their rows are taken by the last ones."""
        gone = [row for row, text in enumerate(self.texts) if text.draft.over]
        left = [self.texts[row] for row in gone]
        for row in reversed(gone):
            last = self.texts.pop()
            if row < len(self.texts):
                self._cache.move_row(len(self.texts), row)
                self.texts[row] = last
        if gone and self.texts:
            self._changed()
        return left

    def _changed(self) -> None:
        self._starts = torch.tensor([text.start for text in self.texts], device=self.bank.device)
        self.bank.route(torch.tensor([text.slot for text in self.texts]))

    def _make_room(self) -> None:
        """Move all texts to the left where no column is left for the next tokens. Where that would free few of those a
        graph looks at, the next one looks at more."""
        if self._recorded is not None and self._cache.end == self._recorded.width < self._cache.width:
            if self._free() >= _SLACK:
                self._shift()
            else:
                self._recorded, self._plain = None, 0
        if self._cache.end == self._cache.width:
            self._shift()

    def _free(self) -> int:
        """How many columns to the left of all texts are free, with room left for the longest prompt."""
        return min(min(text.start for text in self.texts), self._cache.end - self._longest)

    def _shift(self) -> None:
        columns = self._free()
        self._cache.shift(columns, len(self.texts))
        for text in self.texts:
            text.start -= columns
        self._starts -= columns

    # ---- prompts ------------------------------------------------------------------------------------------------

    def _read_prefixes(self, texts: Sequence[Text]) -> None:
        """Read what these texts share, shorter beginnings before those that continue them."""
        missing: dict[Prefix, None] = {}
        for text in texts:
            prefix = text.prefix
            while prefix is not None and prefix not in self._places:
                missing[prefix] = None
                prefix = prefix.parent
        while missing:
            ready = [prefix for prefix in missing if prefix.parent not in missing]
            for group in _passes([(len(p.ids), _length(p.parent)) for p in ready], self.bank.device):
                cache, _ = self._read([(ready[i].ids, ready[i].slot, ready[i].parent) for i in group])
                self._places.update((ready[i], (cache, row)) for row, i in enumerate(group))
            for prefix in ready:
                del missing[prefix]

    def _read(self, jobs: Sequence[tuple[Sequence[int], int, Prefix | None]]) -> tuple[Columns, torch.Tensor]:
        """Read prompts behind prefixes of one length; returns keys and values, and the logits behind each prompt.

        What is shorter is padded on the right, where a causal model does not look.
        """
        known = _length(jobs[0][2])
        longest = max(len(ids) for ids, _, _ in jobs)
        cache = Columns(self._layers, len(jobs), longest)
        cache.end = known
        tokens = torch.zeros(len(jobs), longest - known, dtype=torch.long)
        for row, (ids, _, prefix) in enumerate(jobs):
            tokens[row, : len(ids) - known] = torch.tensor(list(ids[known:]))
            if prefix is not None:
                cache.put(row, *self._places[prefix], known)
        device = self.bank.device
        self.bank.route(torch.tensor([slot for _, slot, _ in jobs]))
        positions = torch.arange(known, longest, device=device).expand(len(jobs), -1)
        behind = torch.tensor([len(ids) - known - 1 for ids, _, _ in jobs], device=device)
        return cache, self._calls.logits(tokens.to(device), behind, cache, positions, None)


def _length(prefix: Prefix | None) -> int:
    return 0 if prefix is None else len(prefix.ids)


def _passes(lengths: Sequence[tuple[int, int]], device: torch.device) -> Iterator[list[int]]:
    """Indices of prompts that are read together: of like length, and behind a prefix of the same length.

    Args:
        lengths: of each prompt, and of its prefix.
    """
    most = _PASSES.get(device.type, _ELSEWHERE)
    group: list[int] = []
    tokens = wide = 0
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i][1], -lengths[i][0])):
        own = lengths[i][0] - lengths[i][1]
        padded = wide * (len(group) + 1)
        if group and (
            lengths[i][1] != lengths[group[0]][1] or padded > most.tokens or tokens + own < padded * (1 - most.padding)
        ):
            yield group
            group, tokens = [], 0
        if not group:
            wide = own
        group.append(i)
        tokens += own
    if group:
        yield group


class Lockstep:
    """Texts in a cache of the model's own kind, left-padded: a new batch begins when the last one has ended."""

    def __init__(self, bank: Bank, rows: int) -> None:
        self.bank, self.texts, self._rows, self._calls = bank, list[Text](), rows, _Calls(bank)

    def room(self) -> int:
        """How many texts may join now."""
        return 0 if self.texts else self._rows

    def join(self, texts: Sequence[Text]) -> torch.Tensor:
        """Read prompts; returns the logits behind them [texts, vocabulary]."""
        self.texts = list(texts)
        self._cache = DynamicCache(config=self.bank.model.config)
        width = max(len(text.prompt) for text in texts)
        ids = torch.zeros(len(texts), width, dtype=torch.long)
        self._mask = torch.zeros_like(ids, device=self.bank.device)
        for row, text in enumerate(texts):
            ids[row, width - len(text.prompt) :] = torch.tensor(list(text.prompt))
            self._mask[row, width - len(text.prompt) :] = 1
        self.bank.route(torch.tensor([text.slot for text in texts]))
        return self._logits(ids.to(self.bank.device))

    def step(self) -> torch.Tensor:
        """Take in the last token of each text; returns the logits behind it [texts, vocabulary]."""
        last = torch.tensor([text.draft.ids[-1] for text in self.texts], device=self.bank.device)
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(last), 1)], 1)
        return self._logits(last[:, None])

    def leave(self) -> list[Text]:
        """Let go of the texts that are over; returns them."""
        left = [text for text in self.texts if text.draft.over]
        kept = [row for row, text in enumerate(self.texts) if not text.draft.over]
        self.texts = [self.texts[row] for row in kept]
        if left and kept:
            rows = torch.tensor(kept, device=self.bank.device)
            self._cache.reorder_cache(rows)
            self._mask = self._mask[rows]
            self.bank.route(torch.tensor([text.slot for text in self.texts]))
        return left

    def _logits(self, ids: torch.Tensor) -> torch.Tensor:
        positions = (self._mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        behind = torch.full((len(ids),), ids.shape[1] - 1, device=ids.device)
        return self._calls.logits(ids, behind, self._cache, positions, self._mask)
