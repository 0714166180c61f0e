"""The four kinds of private item that a site can hold, and the public questions that a model is examined with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any, ClassVar, Literal, TypeVar

from murmura.data.texts import folded


class _Whole:
    """A record without labels, all of which there is from the beginning."""

    __slots__ = ()
    has_labels: ClassVar[bool] = False

    @property
    def identity(self) -> tuple[str, ...]:
        """Equal for two records that count as the same one: those whose texts are (``murmura.data.texts``)."""
        record: Any = self
        return tuple(map(folded, astuple(record)))

    @property
    def is_complete(self) -> bool:
        """Whether the record can be measured on."""
        return True

    @property
    def question(self) -> str | None:
        """What is asked; None where nothing is."""
        return None


@dataclass(frozen=True, slots=True)
class Instruction(_Whole):
    """A task, what it is applied to, and the response to learn.

    Attributes:
        instruction: What is asked; never empty in a loaded record.
        input: What it is asked of; empty where the instruction needs nothing else.
        output: The response; never empty in a loaded record. Empty only in a prompt that is still to be answered.
    """

    required: ClassVar[tuple[str, ...]] = ("instruction", "output")

    instruction: str
    input: str = ""
    output: str = ""

    @property
    def question(self) -> str:
        """Instruction and input in one string, joined by one space (the form OpenFedLLM trains on)."""
        return f"{self.instruction} {self.input}" if self.input else self.instruction

    @property
    def subject(self) -> str:
        """What an encoder embeds to place the record in a cluster: never the response."""
        return self.question

    @property
    def asked(self) -> Instruction:
        """The same without its response, as a prompt is made of it."""
        return Instruction(self.instruction, self.input)


@dataclass(frozen=True, slots=True)
class Question:
    """A task without its response, for a finished model to answer."""

    required: ClassVar[tuple[str, ...]] = ("instruction",)

    instruction: str
    input: str = ""

    @property
    def asked(self) -> Instruction:
        """As a prompt is made of it."""
        return Instruction(self.instruction, self.input)


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text and its class. The label is text whatever the file held: 1 and "1" are the same label; it is empty where
    nobody has labelled the text yet."""

    required: ClassVar[tuple[str, ...]] = ("text",)
    has_labels: ClassVar[bool] = True
    question: ClassVar[None] = None

    text: str
    label: str = ""

    @property
    def subject(self) -> str:
        """What an encoder embeds to place the record in a cluster: never the label."""
        return self.text

    @property
    def identity(self) -> tuple[str, ...]:
        """Equal for two records that count as the same one: the text alone, since one of them may have no label yet."""
        return (folded(self.text),)

    @property
    def is_complete(self) -> bool:
        """Whether the record can be measured on: it has a label."""
        return bool(self.label)


@dataclass(frozen=True, slots=True)
class Document(_Whole):
    """A text with nothing to answer."""

    required: ClassVar[tuple[str, ...]] = ("text",)

    text: str

    @property
    def subject(self) -> str:
        """What an encoder embeds to place the record in a cluster."""
        return self.text


@dataclass(frozen=True, slots=True)
class Preference(_Whole):
    """A prompt and two answers to it, of which somebody prefers one."""

    required: ClassVar[tuple[str, ...]] = ("prompt", "chosen", "rejected")

    prompt: str
    chosen: str
    rejected: str

    @property
    def question(self) -> str:
        """What is asked."""
        return self.prompt

    @property
    def subject(self) -> str:
        """What an encoder embeds to place the record in a cluster: never an answer."""
        return self.prompt

    @property
    def asked(self) -> Instruction:
        """The prompt, to be answered."""
        return Instruction(self.prompt)

    @property
    def answers(self) -> tuple[Instruction, Instruction]:
        """The prompt with the preferred answer, and with the other one."""
        return Instruction(self.prompt, output=self.chosen), Instruction(self.prompt, output=self.rejected)


@dataclass(frozen=True, slots=True)
class Choice:
    """A public question with options, one of them right. No site trains on it.

    Attributes:
        instruction: What is asked; never empty.
        input: What it is asked of; may be empty.
        options: At least two, all different, none empty.
        answer: The place of the right one.
    """

    required: ClassVar[tuple[str, ...]] = ("instruction", "options", "answer")

    instruction: str
    input: str
    options: tuple[str, ...]
    answer: int

    @property
    def subject(self) -> str:
        """What an encoder embeds: never the options."""
        return Instruction(self.instruction, self.input).subject

    def answered(self) -> list[Instruction]:
        """The question with each option as its response."""
        return [Instruction(self.instruction, self.input, option) for option in self.options]


@dataclass(frozen=True, slots=True)
class Program:
    """A public problem whose answer is a function in Python. No site trains on it.

    Attributes:
        prompt: The beginning of a program, up to the function's signature and docstring.
        test: Python that defines ``check(candidate)``, which raises an AssertionError unless the function is right.
        entry_point: The function's name.
    """

    required: ClassVar[tuple[str, ...]] = ("prompt", "test", "entry_point")

    prompt: str
    test: str
    entry_point: str

    @property
    def subject(self) -> str:
        """What an encoder embeds: never the test."""
        return self.prompt


Record = Instruction | Labelled | Document | Preference
R = TypeVar("R", Instruction, Question, Labelled, Document, Preference, Choice, Program)

Kind = Literal["instruction", "labelled", "document", "preference"]
KINDS: dict[Kind, type[Instruction] | type[Labelled] | type[Document] | type[Preference]] = {
    "instruction": Instruction,
    "labelled": Labelled,
    "document": Document,
    "preference": Preference,
}


def digest(records: Iterable[Any]) -> str:
    """SHA-256 of a site's records in their order; as telling as they are, so it stays at the site."""
    return hashlib.sha256("\0".join(map(repr, records)).encode()).hexdigest()
