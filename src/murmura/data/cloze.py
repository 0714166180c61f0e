"""Texts as cloze questions: patterns with a blank, and the words that may stand there (Schick & Schütze 2021, PET).

Patterns and texts are tokenised apart and joined. So a pattern's ids are the same around every text, only the text is
ever cut, and nothing merges across the border. A space before the text or the blank goes with what follows it, as
byte-pair tokenizers have it: a blank after a space stands for " good".
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from murmura.errors import ConfigError
from murmura.progress import bar

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEXT, BLANK = "{text}", "{blank}"
Border = Literal["space", "none", "start"]
"""What stands before a part of a sequence: a space, another part without one, or nothing at all."""
_BORDERS: dict[Border, str] = {"space": "after a space", "none": "without one", "start": "at the beginning"}
_HOLES = re.compile(f"({re.escape(TEXT)}|{re.escape(BLANK)})")
_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class ClozeItem:
    """One text in one pattern.

    Attributes:
        ids: At most ``max_length``. A masked model's blank is the mask token. A causal model's is the last id, a
            stand-in, which only makes the token before it one that predicts.
        blank: Index of the blank.
        pattern: Index of the pattern.
        truncated: The text was shortened.
    """

    ids: list[int]
    blank: int
    pattern: int
    truncated: bool

    @property
    def labels(self) -> list[int]:
        """-100 but at the blank, where any other number says "read here"."""
        labels = [-100] * len(self.ids)
        labels[self.blank] = self.ids[self.blank]
        return labels


class Cloze:
    """Patterns and a verbaliser for one tokenizer: texts become items, logits at the blank become scores of labels.

    What can be told without a tokenizer the options of LP-FL have seen to.

    Args:
        patterns: At least one, each with ``{text}`` once and ``{blank}`` once, as in ``"{text} All in all, it was
            {blank}."``.
        verbaliser: The words that speak for each label: at least two labels, with a word or more each.
        tokenizer: The model's own.
        max_length: Most ids of an item, special tokens and the causal stand-in included.
        masked: For a masked model. For a causal one the blank must be the last thing in each pattern.
        reduction: A label's score is the mean of its words' logits, as PET has it, or their sum, which is eq. 1 of
            LP-FL (Jiang et al. 2023) to the letter.
        several_tokens: A word of several tokens is refused, or counts with the average of its tokens' logits.

    Attributes:
        patterns: As they were given.
        labels: Names, in the verbaliser's order.
        words: For each label, the token ids of each word: one, or several where they are averaged.
        tokens: All words' token ids, each once.
        weights: Of shape [labels, tokens], so that ``logits[:, tokens] @ weights.T`` are the scores of the labels.

    Raises:
        ConfigError: A pattern that is too long, or with the blank where the model cannot read it; a word that is
            unknown, of several tokens, named twice, or not the same tokens in all patterns; no mask token for a masked
            model.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        verbaliser: Mapping[str, Sequence[str]],
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        masked: bool,
        reduction: Literal["mean", "sum"] = "mean",
        several_tokens: Literal["refuse", "average"] = "refuse",
    ) -> None:
        if masked and tokenizer.mask_token_id is None:
            raise ConfigError("the tokenizer has no mask token", fix="Use a masked model with its own tokenizer.")
        self.max_length = max_length
        self._known: dict[str, dict[Border, array[int]]] = {}
        self._pieces = _Pieces(tokenizer)
        parsed = [_Pattern.parse(number, pattern) for number, pattern in enumerate(patterns, 1)]
        self.patterns, self.labels = tuple(patterns), tuple(verbaliser)
        self.words = _words(verbaliser, self._pieces, parsed, average=several_tokens == "average")
        self.tokens = list(dict.fromkeys(token for words in self.words for ids in words for token in ids))
        self.weights = _weights(self.words, self.tokens, mean=reduction == "mean")
        if masked:
            self._frames = [pattern.around_mask(self._pieces, tokenizer.mask_token_id) for pattern in parsed]
        else:
            self._frames = [pattern.before_word(self._pieces, self.tokens[0]) for pattern in parsed]
        for pattern, frame in zip(parsed, self._frames, strict=True):
            if frame.length >= max_length:
                what = f"{pattern.name} takes {frame.length} of {max_length} tokens and leaves none for a text"
                raise ConfigError(what, fix="Shorten it, or raise max_length.")

    def tokenise_all(self, texts: Sequence[str]) -> list[list[ClozeItem]]:
        """Of each text one item a pattern, in their order.

        White space around a text is dropped. One that does not fit loses tokens from its end; an empty one leaves the
        pattern alone. A text is tokenised once.
        """
        self._remember(texts)
        return [self._items(self._known[text]) for text in texts]

    def shortened(self, texts: Sequence[str]) -> list[int]:
        """Places of those texts that lose something in at least one pattern."""
        self._remember(texts)
        return [
            place
            for place, text in enumerate(texts)
            if any(len(self._known[text][frame.border]) > self.max_length - frame.length for frame in self._frames)
        ]

    def forget(self) -> None:
        """Forget the texts so far: for callers that read many texts, each of them once."""
        self._known.clear()

    def _remember(self, texts: Sequence[str]) -> None:
        """Have the ids of all texts in ``_known``: what every pattern has in common, in little memory."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        kinds = {frame.border for frame in self._frames}
        with bar("tokenising", len(new)) as progress:
            for first in range(0, len(new), _AT_ONCE):
                some = new[first : first + _AT_ONCE]
                bare = [text.strip() for text in some]
                ids = {border: self._pieces.ids(bare, border) for border in kinds}
                for k, text in enumerate(some):
                    # No pattern has room for so many, so that it can be told that some are left out.
                    self._known[text] = {border: array("i", ids[border][k][: self.max_length]) for border in kinds}
                progress.advance(len(some))

    def _items(self, text: Mapping[Border, array[int]]) -> list[ClozeItem]:
        ids = {border: kept.tolist() for border, kept in text.items()}
        return [self._item(number, frame, ids[frame.border]) for number, frame in enumerate(self._frames)]

    def _item(self, pattern: int, frame: _Frame, text: list[int]) -> ClozeItem:
        room = self.max_length - frame.length
        ids = [*frame.left, *text[:room], *frame.right]
        return ClozeItem(ids, frame.blank % len(ids), pattern, truncated=len(text) > room)


@dataclass(frozen=True)
class _Frame:
    """What a pattern puts around a text: ids to its left and right, and the text's own border.

    ``blank`` is the index of the blank, negative, from the end, where it follows the text.
    """

    left: list[int]
    right: list[int]
    border: Border
    blank: int

    @property
    def length(self) -> int:
        return len(self.left) + len(self.right)


@dataclass(frozen=True)
class _Pattern:
    """A pattern taken apart: what stands before, between and after its two holes, without a space before a hole; and
    the borders of the holes."""

    name: str
    before: str
    between: str
    after: str
    text_first: bool
    text: Border
    blank: Border

    @classmethod
    def parse(cls, number: int, pattern: str) -> _Pattern:
        before, first, between, _, after = _HOLES.split(pattern.strip())
        start: Border = "space" if before.endswith(" ") else "none" if before else "start"
        inner: Border = "space" if between.endswith(" ") else "none"
        text_first = first == TEXT
        text, blank = (start, inner) if text_first else (inner, start)
        name = f"pattern {number}, '{pattern}',"
        return cls(name, before.removesuffix(" "), between.removesuffix(" "), after, text_first, text, blank)

    def around_mask(self, pieces: _Pieces, mask: int) -> _Frame:
        [before], (between, after) = pieces.ids([self.before]), pieces.ids([self.between, self.after], "none")
        before, after = pieces.opening + before, after + pieces.closing
        if self.text_first:
            return _Frame(before, [*between, mask, *after], self.text, blank=-len(after) - 1)
        return _Frame([*before, mask, *between], after, self.text, blank=len(before))

    def before_word(self, pieces: _Pieces, stand_in: int) -> _Frame:
        if self.after or not self.text_first:
            what = f"{self.name} goes on after {BLANK}, and a causal model reads nothing that comes later"
            raise ConfigError(what, fix=f'Let it end with {BLANK}: "{TEXT} All in all, it was {BLANK}".')
        [before], [between] = pieces.ids([self.before]), pieces.ids([self.between], "none")
        left = pieces.opening + before
        if not left + between:
            what = f"{self.name} has nothing before {BLANK} when a text is empty, so no token predicts there"
            raise ConfigError(what, fix=f'Write some words: "{TEXT} It was {BLANK}".')
        return _Frame(left, [*between, stand_in], self.text, blank=-1)


class _Pieces:
    """A tokenizer of parts of a sequence, and what it puts around a whole one.

    Attributes:
        opening: Ids before a sequence, such as [CLS].
        closing: Ids after it.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer, self._marks, self._writes_space = tokenizer, False, False
        [alone], [after] = self.ids(["a"]), self.ids(["a"], "space")
        # Sentence pieces have a mark before whatever begins, as after a space. Llama 2's is written even before a space
        # of ours, which would be a second one.
        self._marks = str(tokenizer.convert_ids_to_tokens(alone[0])).startswith("▁")
        self._writes_space = self._marks and len(after) > len(alone)
        self._alone = alone
        whole = tokenizer("a")["input_ids"]
        start = next(k for k in range(len(whole)) if whole[k : k + len(alone)] == alone)
        self.opening, self.closing = whole[:start], whole[start + len(alone) :]

    def ids(self, texts: Sequence[str], border: Border = "start") -> list[list[int]]:
        """Ids of each text behind its border, where a text may bring a space of its own; none of an empty text."""
        whole = [f" {text}" if border == "space" else text for text in texts]
        # What follows without a space has no mark. It gets none behind a letter, which is then taken away again.
        behind = [self._marks and border == "none" and not text.startswith(" ") for text in whole]
        bare = [f"a{text}" if letter else self._bare(text) for text, letter in zip(whole, behind, strict=True)]
        told = self.tokenizer(bare, add_special_tokens=False, return_attention_mask=False, verbose=False)
        found: list[list[int]] = told["input_ids"]
        cut = [self._cut(ids, text) if letter else ids for ids, text, letter in zip(found, whole, behind, strict=True)]
        return [ids if text else [] for ids, text in zip(cut, texts, strict=True)]

    def _bare(self, text: str) -> str:
        return text.removeprefix(" ") if self._writes_space else text

    def _cut(self, ids: list[int], text: str) -> list[int]:
        """Ids behind the letter; those of the text by itself where the letter became one with it."""
        if ids[: len(self._alone)] == self._alone:
            return ids[len(self._alone) :]
        return self.ids([text])[0]

    def shown(self, ids: Sequence[int]) -> str:
        return " + ".join(repr(self.tokenizer.decode([token])) for token in ids)


def _words(
    verbaliser: Mapping[str, Sequence[str]], pieces: _Pieces, patterns: Sequence[_Pattern], *, average: bool
) -> list[list[list[int]]]:
    """Token ids of each label's words, as they stand in the patterns."""
    owner: dict[tuple[int, ...], str] = {}
    found: list[list[list[int]]] = []
    for label, words in verbaliser.items():
        found.append([])
        for word in words:
            named = f"'{word}' of the label '{label}'"
            ids = _word(word.strip(), named, pieces, patterns, average=average)
            other = owner.setdefault(tuple(ids), named)
            if other is not named:
                raise ConfigError(f"{named} is the same word as {other}", fix="Remove one of them.")
            found[-1].append(ids)
    return found


def _word(word: str, named: str, pieces: _Pieces, patterns: Sequence[_Pattern], *, average: bool) -> list[int]:
    """Token ids of one word, which must be good ones and the same in all patterns."""
    used = {pattern.blank for pattern in patterns}
    forms = {border: pieces.ids([word], border)[0] for border in _BORDERS if border in used}
    ids = next(iter(forms.values()))
    for border, others in forms.items():
        if others != ids:
            raise ConfigError(
                f"{named} is {pieces.shown(ids)} {_BORDERS[next(iter(forms))]} and {pieces.shown(others)} "
                f"{_BORDERS[border]}",
                fix=f"Put a space before {BLANK} in all patterns, or in none.",
            )
    if pieces.tokenizer.unk_token_id in ids:
        raise ConfigError(f"{named} is not in the tokenizer's vocabulary", fix="Choose another word.")
    if len(ids) > 1 and not average:
        fix = 'Choose words of one token, or set several_tokens = "average".'
        raise ConfigError(f"{named} is not one token but {len(ids)}: {pieces.shown(ids)}", fix=fix)
    return ids


def _weights(words: Sequence[Sequence[Sequence[int]]], tokens: Sequence[int], *, mean: bool) -> list[list[float]]:
    """How much each token counts for each label, [labels, tokens]."""
    column = {token: k for k, token in enumerate(tokens)}
    weights = [[0.0] * len(tokens) for _ in words]
    for row, own in zip(weights, words, strict=True):
        for ids in own:
            for token in ids:
                row[column[token]] += 1 / len(ids) / (len(own) if mean else 1)
    return weights
