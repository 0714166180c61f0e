"""The resident model with everything that training, writing and scoring need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from murmura.data.cloze import Cloze
from murmura.data.templates import Template
from murmura.data.tokenising import Tokenised, plain_ids
from murmura.generation.packed import products_in
from murmura.generation.sampling import Numbers, Sampling
from murmura.generation.scoring import SUMS, TOKENS, CloseScores, Score, Scoring, TokenScores, closely, energy, score
from murmura.generation.writer import Completion, complete
from murmura.models.declared import context_of
from murmura.precision import DecodeDtype, in_bfloat16
from murmura.progress import phase
from murmura.reading import Reading
from murmura.resources import Loader, Resources
from murmura.streams import Stream
from murmura.training.adapter import State, is_same, split_residual
from murmura.training.bank import Bank
from murmura.training.cloze import ClozeRecord
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.preference import Pair
from murmura.training.step import StepFactory
from murmura.training.targets import target_names

if TYPE_CHECKING:
    from murmura.models import LoadedModel

T = TypeVar("T")


class ModelRuntime:
    """One bank, its tokenizer, how records are read, and how much of it may be used at once.

    Args:
        bank: the resident model, or what loads it, when it is first used.
        tokenizer: its tokenizer.
        reading: how the run's kind of record meets the model, everywhere the same.
        training: how sites train.
        max_length: most tokens of a record.
        slots: most adapters in the bank at once; a larger cohort is processed in chunks.
        decode_rows: texts written at once.
        decode_dtype: of products with frozen weights while writing; see ``RunConfig``.
        base: what an adapter's folder calls the model.
        model: what ``murmura.models`` finds it by.
        source: where it came from, in words.
        resources: what else there is to work with on this side of the run; nothing if not given.
        start: the adapter that training begins with; a fresh one if not given.
    """

    def __init__(
        self,
        bank: Bank | Callable[[], Bank],
        tokenizer: Any,
        reading: Reading,
        training: LocalTraining,
        *,
        max_length: int,
        slots: int = 8,
        decode_rows: int = 32,
        decode_dtype: DecodeDtype = "auto",
        base: str = "",
        model: str = "",
        source: str = "",
        resources: Resources | None = None,
        start: State | None = None,
    ) -> None:
        self._bank, self.tokenizer, self.training, self.base = bank, tokenizer, training, base
        self.reading, self.model, self.source = reading, model, source
        self.max_length = max_length
        self.slots = slots
        self.decode_rows, self.decode_dtype = decode_rows, decode_dtype
        self.resources = resources or Resources({}, "server", Loader(str(self.bank.device)))
        self._others: dict[str, ModelRuntime] = {}
        self._start = start

    @cached_property
    def bank(self) -> Bank:
        """The resident model."""
        return self._bank if isinstance(self._bank, Bank) else self._bank()

    def initial(self, stream: Stream) -> State:
        """What training begins with: the run's ``model.adapter``, or a fresh adapter; full: the model itself."""
        return self.bank.initial(stream) if self._start is None else self._start

    @property
    def origin(self) -> State:
        """What a trained model is compared with: the run's ``model.adapter``, or the model as it was loaded."""
        return self.bank.untrained if self._start is None else self._start

    def is_origin(self, state: State) -> bool:
        """Whether a state makes the model what training began with."""
        if self._start is None:
            return state is self.bank.untrained or self.bank.adds_nothing(state)
        return is_same(state, self._start)

    @property
    def step(self) -> StepFactory:
        """What computes the gradients of local training on tokenised records."""
        return self.reading.step(self._start)

    @property
    def device(self) -> torch.device:
        """Where models are, loaded or not."""
        return torch.device(self.resources.device)

    @property
    def template(self) -> Template:
        """The text around an instruction."""
        assert self.reading.template is not None, "only instructions have a template"
        return self.reading.template

    @property
    def cloze(self) -> Cloze:
        """The questions about a labelled text."""
        assert self.reading.cloze is not None, "only labelled texts are read in cloze patterns"
        return self.reading.cloze

    def tokenise_fitting(self, records: Iterable[Any]) -> list[Any]:
        """Those records that fit, as local training takes them (``Tokenised``, ``ClozeRecord``, ``Pair``)."""
        return [item for item in self.reading.tokenise(list(records)) if item is not None]

    @property
    def per_pass(self) -> int:
        """Padded tokens that go through the model at once in training; where nothing is kept for a backward pass, twice
        as many do."""
        return self.bank.per_pass(self.training.tokens_per_pass)

    def spill(self, items: Iterable[Any], folder: Path, *, common: bool = False) -> None:
        """Where the hidden states of tokenised records may be kept that memory has no room for.

        Args:
            folder: their owner's, in which nobody else may read.
            common: other runs on these data have the same records; see ``StateCache.spill``.
        """
        if self.bank.head.frozen is not None:
            self.bank.states.spill(sequences(items), folder, common=common)

    @property
    def context(self) -> int | None:
        """See ``context_of``."""
        return context_of(self.bank.model.config)

    def prompt_ids(self, text: str) -> list[int]:
        """Ids of a prompt without a template."""
        return plain_ids([text], self.tokenizer)[0]

    def load(self, adapters: Sequence[State]) -> list[int]:
        """Put adapters into the bank, each different one once; returns the slot of each."""
        distinct = list({id(adapter): adapter for adapter in adapters}.values())
        slot_of = {id(adapter): slot for slot, adapter in enumerate(distinct)}
        self.bank.load(distinct)
        return [slot_of[id(adapter)] for adapter in adapters]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Prepare the weights once for all that is written within, by many calls of ``write`` with few prompts each."""
        with products_in(self.bank.model, torch.bfloat16 if self._in_bfloat16 else None):
            yield

    @property
    def _in_bfloat16(self) -> bool:
        return in_bfloat16(self.decode_dtype, self.bank.device)

    def write(
        self,
        adapters: Sequence[State],
        prompts: Sequence[Sequence[int]],
        limits: Sequence[int],
        *,
        sampling: Sampling | None = None,
        streams: Sequence[Numbers] = (),
        stop: Sequence[str] = (),
        halt: Callable[[str], bool] | None = None,
        nonempty: bool = False,
        description: str = "generate",
    ) -> list[Completion]:
        """Continue ``prompts[i]`` with ``adapters[i]``, at most ``limits[i]`` tokens; see ``complete``.

        Greedily, or with ``sampling`` by numbers from ``streams[i]``. It also ends, cut off, where the model's context
        does; a prompt that fills it gets an empty continuation.
        """
        room = [limits[i] if self.context is None else self.context - len(ids) for i, ids in enumerate(prompts)]
        limits = [max(0, min(pair)) for pair in zip(limits, room, strict=True)]
        results: dict[int, Completion] = {}
        with phase("generate"):
            for chosen in self.chunks(adapters):
                slots = self.load([adapters[i] for i in chosen])
                written = complete(
                    self.bank,
                    self.tokenizer,
                    [prompts[i] for i in chosen],
                    slots,
                    [limits[i] for i in chosen],
                    sampling=sampling,
                    streams=[streams[i] for i in chosen] if streams else (),
                    stop=stop,
                    halt=halt,
                    nonempty=nonempty,
                    rows=self.decode_rows,
                    bfloat16=self._in_bfloat16,
                    description=description,
                )
                results.update(zip(chosen, written, strict=True))
        return [results[i] for i in range(len(prompts))]

    def another(self, option: str, lora: LoraSpec | None = None) -> ModelRuntime:
        """A runtime to write with the causal model that is declared under ``option``.

        Args:
            lora: of adapters that are trained in it, always the same in a run; None: nothing is trained in it, and all
                its adapters are ``bank.untrained``.

        Raises:
            RunError: it is not declared for this side.
            ModelError: its weights cannot be loaded.
        """
        if option not in self._others:
            found = self.resources.language_model(option)
            bank = self.resources.built(option, partial(bank_of, lora=lora))
            self._others[option] = ModelRuntime(
                bank,
                found.tokenizer,
                self.reading,
                self.training,
                max_length=self.max_length,
                slots=1,
                decode_rows=self.decode_rows,
                decode_dtype=self.decode_dtype,
                base=found.base,
            )
        return self._others[option]

    def score(
        self, adapters: Sequence[State], items: Sequence[Tokenised], *, description: str = "score"
    ) -> list[Score]:
        """Loss of ``items[i]`` under ``adapters[i]``."""
        return self._score(SUMS, adapters, items, description)

    def token_scores(
        self, adapters: Sequence[State], items: Sequence[Tokenised], *, description: str = "score"
    ) -> list[TokenScores]:
        """How ``adapters[i]`` finds each labelled token of ``items[i]``."""
        return self._score(TOKENS, adapters, items, description)

    def close_scores(
        self, adapters: Sequence[State], items: Sequence[Tokenised], sampling: Sampling, *, description: str = "score"
    ) -> list[CloseScores]:
        """The same with a closer look; ``sampling`` is what ``CloseScores.drawn`` is about."""
        return self._score(closely(sampling), adapters, items, description)

    def energies(self, adapters: Sequence[State], items: Sequence[Tokenised], *, temperature: float) -> list[float]:
        """Mean free energy of ``items[i]``'s response under ``adapters[i]``."""
        return self._score(energy(temperature), adapters, items, "energies")

    def _score(
        self, scoring: Scoring[T], adapters: Sequence[State], items: Sequence[Tokenised], description: str
    ) -> list[T]:
        results: dict[int, T] = {}
        with phase("score"):
            for chosen in self.chunks(adapters):
                some, slots = [items[i] for i in chosen], self.load([adapters[i] for i in chosen])
                found = score(
                    scoring, self.bank, some, slots, tokens_per_pass=2 * self.per_pass, description=description
                )
                results.update(zip(chosen, found, strict=True))
        return [results[i] for i in range(len(items))]

    def chunks(self, adapters: Sequence[State]) -> list[list[int]]:
        """Indices in groups that use at most ``slots`` different adapters, and one residual, as the layers hold one."""
        capacity = self.slots if self.bank.lora else 1
        groups: list[list[int]] = []
        seen: set[int] = set()
        shared: State = {}
        for index, adapter in enumerate(adapters):
            if not groups or id(adapter) not in seen:
                residual = split_residual(adapter)[1]
                other = bool(residual and shared) and not is_same(residual, shared)
                if not groups or other or len(seen) == capacity:
                    groups.append([])
                    seen, shared = set(), {}
                seen.add(id(adapter))
                shared = residual or shared
            groups[-1].append(index)
        return groups


def sequences(items: Iterable[Any]) -> Iterator[Sequence[int]]:
    """Token ids of tokenised records: one each, one for each pattern that a text is read in, or two of a pair."""
    return (part.ids for item in items for part in (item.items if isinstance(item, ClozeRecord | Pair) else [item]))


def bank_of(loaded: LoadedModel, lora: LoraSpec | None) -> Bank:
    """A bank for such adapters, or the least that there can be: rank 1 on one layer."""
    if lora is None:
        [target, *_] = target_names(loaded.model, ("all-linear",))
        lora = LoraSpec(rank=1, targets=(target,))
    return Bank(loaded.model, lora)
