"""Records as token ids, shortened so that the response is never cut.

Prompt and response are tokenised apart and joined. So the prompt's ids are a prefix of the whole for every tokenizer
(joined text may be merged across the border), and training, scoring, attack and evaluation see the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from murmura.data.records import Document, Instruction
from murmura.data.templates import Template
from murmura.errors import DataError
from murmura.progress import bar

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class Tokenised:
    """A record as token ids.

    Attributes:
        ids: Prompt, response, end-of-sequence token; at most ``max_length``.
        start: ``ids[:start]`` is the prompt, ``ids[start:]`` the response and the end-of-sequence token.
        truncated: The input, or the instruction too, was shortened.
    """

    ids: list[int]
    start: int
    truncated: bool

    @property
    def labels(self) -> list[int]:
        """At each position the token to predict there: the response's own, -100 in the prompt."""
        return [-100] * self.start + self.ids[self.start :]


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Which of some records a model can take. Those that are neither kept nor dropped have an unknown label.

    Attributes:
        kept: Indices of the records that it can take, ascending.
        shortened: Indices of those of them that are shortened.
        dropped: How many do not fit.
    """

    kept: list[int]
    shortened: Sequence[int] = ()
    dropped: int = 0


@dataclass(frozen=True, kw_only=True)
class TokenisedSet(Fitted):
    """Tokenised records, and what became of the others.

    Attributes:
        items: The records that are kept, in their order.
    """

    items: list[Tokenised]


def tokenise_all(
    records: Sequence[Instruction], template: Template, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> TokenisedSet:
    """The ids of those records that fit.

    A prompt that is too long loses text of its input, from the end; if no input is left, of its instruction, from the
    end. The response, the template's own text and at least one character of the instruction always stay.

    Args:
        max_length: The largest number of ids, end-of-sequence token included.

    Raises:
        DataError: The tokenizer has no end-of-sequence token.
    """
    reader = _Reader(template, tokenizer, max_length)
    found: list[Tokenised | None] = []
    with bar("tokenising", len(records)) as progress:
        for first in range(0, len(records), _AT_ONCE):
            some = records[first : first + _AT_ONCE]
            found += reader.tokenise(some)
            progress.advance(len(some))
    kept = [index for index, item in enumerate(found) if item is not None]
    items = [item for item in found if item is not None]
    shortened = [index for index, item in enumerate(found) if item is not None and item.truncated]
    return TokenisedSet(items=items, kept=kept, shortened=shortened, dropped=len(records) - len(items))


def tokenise_documents(
    records: Sequence[Document], tokenizer: PreTrainedTokenizerBase, max_length: int, *, opened: bool = False
) -> list[Tokenised]:
    """Documents as they are, with the end-of-sequence token behind. One that is too long loses its end, and that token.

    The first id is given and all others are predicted, which is the whole text where a beginning-of-sequence token
    stands before it.

    Args:
        max_length: the largest number of ids.
        opened: such a token stands there though the tokenizer sets none; where it has none, the end-of-sequence token.

    Raises:
        DataError: the tokenizer has no end-of-sequence token.
    """
    eos = _end(tokenizer)
    opening = _opening_or_end(tokenizer) if opened else _opening(tokenizer)
    found = []
    for first in range(0, len(records), _AT_ONCE):
        texts = _ids_of([record.text for record in records[first : first + _AT_ONCE]], tokenizer)
        whole = ([*ids, eos] for ids in _with_bos(texts, opening))
        found += [Tokenised(ids[:max_length], 1, truncated=len(ids) > max_length) for ids in whole]
    return found


def left_open(item: Tokenised) -> Tokenised:
    """A document without the end-of-sequence token: one that goes on, though nobody has written how."""
    return item if item.truncated else replace(item, ids=item.ids[:-1])


def chat_template(template: Template, tokenizer: PreTrainedTokenizerBase) -> str:
    """What ``tokenizer.chat_template`` must be for ``apply_chat_template`` to give the ids that a prompt has in
    training."""
    bos = _opening(tokenizer)
    [written] = _ids_of([template.prompt(Instruction("?"))], tokenizer)
    return template.jinja if bos is None or written[:1] == [bos] else "{{ bos_token }}" + template.jinja


def tokenise_response(
    record: Instruction, template: Template, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> Tokenised | None:
    """The response after nothing but the response header: what L(y) of the IFS and IFD scores is computed on.

    Its response ids are those of ``tokenise_all``. None if it does not fit.

    Raises:
        DataError: As ``tokenise_all``.
    """
    return _Reader(template, tokenizer, max_length).tokenise_response(record)


def plain_ids(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """The ids of texts that no template stands around, with the beginning-of-sequence token where the tokenizer sets
    one."""
    return _with_bos(_ids_of(texts, tokenizer), _opening(tokenizer))


def shortened(text: str, ids: Sequence[int], most: int, tokenizer: PreTrainedTokenizerBase) -> str:
    """A text, of one that has more tokens than ``most`` the beginning, without a character that is cut through.

    Args:
        ids: its tokens.
    """
    if len(ids) <= most:
        return text
    return str(tokenizer.decode(list(ids[:most]), skip_special_tokens=True)).rstrip("\N{REPLACEMENT CHARACTER}")


class _Reader:
    """What ``tokenise_all`` needs to know of a tokenizer, found out once."""

    def __init__(self, template: Template, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
        self._template, self._tokenizer, self._max_length = template, tokenizer, max_length
        self._eos = _end(tokenizer)
        self._bos = _opening(tokenizer)

    def tokenise(self, records: Sequence[Instruction]) -> list[Tokenised | None]:
        prompts = self._prompts([self._template.prompt(record) for record in records])
        outputs = self._responses(records)
        return [self._fit(*parts) for parts in zip(records, prompts, outputs, strict=True)]

    def tokenise_response(self, record: Instruction) -> Tokenised | None:
        [header], [output] = self._prompts([self._template.response_prefix]), self._responses([record])
        fits = len(header) + len(output) <= self._max_length
        return Tokenised(header + output, len(header), truncated=False) if fits else None

    def _fit(self, record: Instruction, prompt: list[int], output: list[int]) -> Tokenised | None:
        room = self._max_length - len(output)
        if len(prompt) <= room:
            return Tokenised(prompt + output, len(prompt), truncated=False)
        shorter = self._shorten(record, room) if room > 0 else None
        return None if shorter is None else Tokenised(shorter + output, len(shorter), truncated=True)

    def _shorten(self, record: Instruction, room: int) -> list[int] | None:
        """A prompt of at most ``room`` ids, with as much of the record's text as fits."""

        def fitting(shorter: Instruction) -> list[int] | None:
            [ids] = self._prompts([self._template.prompt(shorter)])
            return ids if len(ids) <= room else None

        bare = replace(record, input="")
        if fitting(bare) is not None:
            return _longest(record.input, lambda text: fitting(replace(record, input=text)))
        return _longest(record.instruction, lambda text: fitting(replace(bare, instruction=text)) if text else [])

    def _prompts(self, texts: list[str]) -> list[list[int]]:
        return _with_bos(_ids_of(texts, self._tokenizer), self._bos)

    def _responses(self, records: Sequence[Instruction]) -> list[list[int]]:
        return [[*ids, self._eos] for ids in _ids_of([r.output for r in records], self._tokenizer)]


def _end(tokenizer: PreTrainedTokenizerBase) -> int:
    """The end-of-sequence token, or a DataError."""
    if tokenizer.eos_token_id is None:
        what = "the tokenizer has no end-of-sequence token, so a model would not learn where a response ends"
        raise DataError(what, fix="Use a causal model with its own tokenizer.")
    return int(tokenizer.eos_token_id)


def _opening_or_end(tokenizer: PreTrainedTokenizerBase) -> int:
    """The beginning-of-sequence token, or where there is none that of the end."""
    return _end(tokenizer) if tokenizer.bos_token_id is None else int(tokenizer.bos_token_id)


def _ids_of(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    if not texts:
        return []
    # verbose: no warning for texts longer than the model's context, since they are shortened here
    return tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]


def _opening(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The beginning-of-sequence token, where the tokenizer sets one by itself."""
    bos = tokenizer.bos_token_id
    return bos if bos is not None and tokenizer("a")["input_ids"][:1] == [bos] else None


def _with_bos(ids: list[list[int]], bos: int | None) -> list[list[int]]:
    """The token in front, once: chat templates write it too."""
    return ids if bos is None else [found if found[:1] == [bos] else [bos, *found] for found in ids]


def _longest(text: str, attempt: Callable[[str], list[int] | None]) -> list[int] | None:
    """What ``attempt`` gives for the longest beginning of ``text`` that it accepts, found by halving.

    A beginning may have more tokens than a slightly longer one, so a few characters may be lost that would have fitted;
    what is returned was always accepted.
    """
    fits, too_long = 0, len(text)
    best = attempt("")
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        found = attempt(text[:middle].rstrip())
        if found is None:
            too_long = middle
        else:
            fits, best = middle, found
    return best or None
