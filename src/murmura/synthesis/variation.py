"""What makes another text of a text: the step by which private evolution moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from murmura.data.tokenising import shortened
from murmura.generation.loops import sentence_ends
from murmura.generation.sampling import Sampling
from murmura.generation.writer import Completion
from murmura.model_runtime import ModelRuntime
from murmura.streams import Stream
from murmura.synthesis.prompts import Wording, mended, one_line, unbroken

_TO_THE_END = 20  # tokens more than were cut off, so that a sentence may come to its end


class Variation(Protocol):
    """Makes another text of a text."""

    def vary(self, texts: Sequence[str], streams: Sequence[Stream]) -> list[str]:
        """A variation of each text, drawn with its own stream alone: which other texts are varied with it makes no
        difference."""
        ...


class Continue:
    """Cuts off a text's end or its beginning, each half of the time, and has a causal model go on behind what is left.

    Of its end go some tokens, of its beginning some sentences: the model then goes on from the whole text, and what it
    writes stands behind the rest, or alone where no sentence is left. So no part of a text stays for ever.

    Args:
        runtime: of the model, which writes without an adapter.
        share: most of a text's tokens, or of its sentences, that are cut off; how many is uniform from 1 to this share.
        sampling: how tokens are drawn.
        max_tokens: of a text, the model's opening token included; what is longer loses its end first.
        mended: what the model did not end itself ends with a sentence: with that whose end is nearest to where the text
            ended before. Where no sentence is whole the text stays as it is. Else the model writes as many tokens at
            most as were cut off, which may be half a sentence.
    """

    def __init__(
        self,
        runtime: ModelRuntime,
        *,
        share: float = 0.5,
        sampling: Sampling | None = None,
        max_tokens: int = 64,
        mended: bool = True,
    ) -> None:
        self._runtime, self._share, self._most = runtime, share, max_tokens
        self._sampling, self._mended = sampling or Sampling(), mended

    def vary(self, texts: Sequence[str], streams: Sequence[Stream]) -> list[str]:
        """See ``Variation``. A text of which nothing can be cut, since nothing would be left to go on from, stays as
        it is."""
        bench = self._runtime
        cuts = [self._cut(text, stream) for text, stream in zip(texts, streams, strict=True)]
        changed = [(i, cut) for i, cut in enumerate(cuts) if cut]
        prompts, limits = [cut.prompt for _, cut in changed], [cut.limit for _, cut in changed]
        own = [streams[i] / "tokens" for i, _ in changed]
        adapters = [bench.bank.untrained] * len(changed)
        written = bench.write(adapters, prompts, limits, sampling=self._sampling, streams=own, description="vary")
        varied = list(texts)
        for (i, cut), completion in zip(changed, written, strict=True):
            varied[i] = self._joined(texts[i], cut, completion)
        return varied

    def _cut(self, text: str, stream: Stream) -> _Cut | None:
        """What is left of a text, and what is to be written; None where nothing can be cut."""
        bench = self._runtime
        whole, opening = bench.prompt_ids(text), len(bench.prompt_ids(""))
        ids = whole[: self._most]
        left = self._without_end(ids, opening, stream)
        if left is None or (stream / "end").python().random() < 0.5:
            return left
        read = shortened(text, whole, self._most, bench.tokenizer)
        rest = self._without_beginning(read, stream / "beginning")
        kept = bench.prompt_ids(rest)[: self._most - 1] if rest else []
        return _Cut(ids, kept, min(len(ids) - len(kept) + self._spare, self._most - len(kept)))

    def _without_end(self, ids: list[int], opening: int, stream: Stream) -> _Cut | None:
        most = min(max(1, int(self._share * (len(ids) - opening))), len(ids) - max(opening, 1))
        if most <= 0:
            return None
        kept = ids[: -stream.python().randint(1, most)]
        return _Cut(kept, kept, min(len(ids) - len(kept) + self._spare, self._most - len(kept)))

    def _without_beginning(self, text: str, stream: Stream) -> str:
        ends = sentence_ends(text) or [len(text)]
        return text[ends[stream.python().randint(1, max(1, int(self._share * len(ends)))) - 1] :].strip()

    @property
    def _spare(self) -> int:
        return _TO_THE_END if self._mended else 0

    def _joined(self, text: str, cut: _Cut, completion: Completion) -> str:
        decode = partial(self._runtime.tokenizer.decode, skip_special_tokens=True)
        found = unbroken(str(decode([*cut.kept, *completion.ids])), completion.finished).strip()
        if not self._mended:
            return found or text
        ends = [end for end in sentence_ends(found) if end > len(str(decode(cut.kept)).strip())]
        ends += [len(found)] if completion.finished else []
        if not ends:
            return mended(found) or text
        return found[: min(ends, key=lambda end: abs(end - len(text)))].strip() or text


@dataclass(frozen=True)
class _Cut:
    """What the model goes on from, what of it stays, and how many tokens it may write."""

    prompt: list[int]
    kept: list[int]
    limit: int


class Paraphrase:
    """Has an instruction model say a text in other words.

    Args:
        runtime: of the model, which writes without an adapter.
        sampling: how tokens are drawn.
        max_tokens: of a text, before and after.
        mended: of a paraphrase that reaches that number only the whole sentences are kept.
    """

    def __init__(
        self, runtime: ModelRuntime, *, sampling: Sampling | None = None, max_tokens: int = 64, mended: bool = True
    ) -> None:
        self._runtime, self._most, self._sampling = runtime, max_tokens, sampling or Sampling()
        self._mended = mended
        self._wording = Wording(runtime.tokenizer)

    def vary(self, texts: Sequence[str], streams: Sequence[Stream]) -> list[str]:
        """See ``Variation``. The first paragraph that is written, in one line; where nothing is, the text stays."""
        bench = self._runtime
        texts = [self._cut(text) for text in texts]
        prompts = [bench.prompt_ids(self._wording.prompt(text)) for text in texts]
        adapters, limits = [bench.bank.untrained] * len(prompts), [self._most] * len(prompts)
        written = bench.write(adapters, prompts, limits, sampling=self._sampling, streams=streams, description="vary")
        return [self._read(completion) or text for completion, text in zip(written, texts, strict=True)]

    def _read(self, completion: Completion) -> str:
        first, further, _ = unbroken(completion.text, completion.finished).strip().partition("\n\n")
        found = one_line(first)
        return mended(found) if self._mended and not (completion.finished or further) else found

    def _cut(self, text: str) -> str:
        tokenizer = self._runtime.tokenizer
        return shortened(text, tokenizer(text, add_special_tokens=False).input_ids, self._most, tokenizer)
