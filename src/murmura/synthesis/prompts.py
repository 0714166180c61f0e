"""What models are asked when they make texts, and how what they write is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from murmura.data import templates
from murmura.data.records import Instruction
from murmura.generation.loops import complete_sentences
from murmura.words import count_words

PARAPHRASE = "Document: {text}\nParaphrase of the document:"
"""After Utpala et al. 2023 (DP-Prompt)."""

Fault = Literal["empty", "too_short", "no_sentence", "refused"]
"""Why an answer is not used."""

FAULTS: dict[Fault, str] = {
    "empty": "nothing was written",
    "too_short": "a text had fewer than 4 words",
    "no_sentence": "a text was cut off before its first sentence was whole",
    "refused": "the endpoint did not take the prompt, or the generator has no room for an answer to it",
}
"""The faults in words."""

SHOWN = 3
"""Seeds that a prompt shows."""

_HEADER = "Original Text Sample"
STOP = (f"\n{_HEADER}",)
"""Where the next sample begins."""

FEWEST_WORDS = 4
"""Of a text."""
_LONGEST = 1000  # characters of a seed that are shown, so that a prompt fits a context of about a thousand tokens


class Wording:
    """How a model wants to be asked to say a text in other words.

    Args:
        tokenizer: of the model; where it has a chat template, what is asked becomes a user's turn.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._chat = templates.template("chat", tokenizer) if tokenizer.chat_template else None

    def prompt(self, text: str) -> str:
        """What the model goes on from."""
        asked = PARAPHRASE.replace("{text}", one_line(text))
        return asked if self._chat is None else self._chat.prompt(Instruction(asked))


def six_samples(seeds: Sequence[str]) -> str:
    """The beginning of a list of six texts, of which some are there, for a model to go on with (Hou et al. 2024,
    figure 3 in substance; the wording of the first line is ours).

    Args:
        seeds: three as a rule.
    """
    shown = "".join(f"{_HEADER} {i}\n{one_line(seed)[:_LONGEST]}\n" for i, seed in enumerate(seeds, start=1))
    return (
        "Below is a list of 6 original text samples. They differ in what they say, and are alike in kind and style.\n\n"
        f"{shown}{_HEADER} {len(seeds) + 1}\n"
    )


@dataclass(frozen=True)
class Sample:
    """The text in an answer, in one line. ``finished`` is False where it was cut off; ``fault`` says why it is not
    used."""

    text: str
    finished: bool
    fault: Fault | None


def read_sample(written: str, finished: bool, *, whole: bool = False) -> Sample:
    """The one text in what a model wrote after ``six_samples``.

    It ends where the next sample begins, or where the answer was cut off while it wrote that sample's header. A header
    that an answer begins with is skipped.

    Args:
        finished: the answer came to its end.
        whole: of a text that was cut off, keep its whole sentences alone.
    """
    lines = [line.strip() for line in unbroken(written, finished).strip().splitlines()]
    if lines and lines[0].startswith(_HEADER):
        lines[0] = lines[0].removeprefix(_HEADER).lstrip(" 0123456789:.")
    ends = (i for i, line in enumerate(lines) if i and line.startswith(_HEADER))
    end = next(ends, len(lines))
    finished = finished or end < len(lines)
    lines = lines[:end]
    if len(lines) > 1 and lines[-1] and _HEADER.startswith(lines[-1]):
        del lines[-1]
        finished = True
    text = one_line(" ".join(lines))
    words = count_words(text)
    fault: Fault | None = "empty" if not words else "too_short" if words < FEWEST_WORDS else None
    if fault or finished or not whole:
        return Sample(text, finished, fault)
    text = mended(text)
    return Sample(text, True, None if text else "no_sentence")


def unbroken(text: str, finished: bool) -> str:
    """The text, where it was cut off without half a character at its end: a token may be a part of one."""
    return text if finished else text.rstrip("\N{REPLACEMENT CHARACTER}")


def mended(text: str) -> str:
    """The whole sentences of a text that was cut off; nothing where they are too few words for a text."""
    found = complete_sentences(text)
    return found if count_words(found) >= FEWEST_WORDS else ""


def one_line(text: str) -> str:
    """The text with each run of white space as one space, and as UTF-8 can hold it."""
    return " ".join(text.split()).encode(errors="replace").decode()
