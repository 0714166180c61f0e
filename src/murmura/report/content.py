"""What a report is made of: sections of blocks. The page, the terminal and Markdown each render the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from murmura.report.style import Style

_TEXT = 280  # characters of a text that are shown


@dataclass(frozen=True, slots=True)
class Span:
    """A bar for an interval, on a scale from 0 to 1: its ends, where the figure lies, and where guessing does."""

    low: float
    high: float
    at: float
    guess: float | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A cell of a table, a name in a heading or in a legend.

    Attributes:
        text: What it says.
        small: Small print below it.
        alert: A last line of small print, which warns.
        look: The mark before it.
        badge: Whether it stands in a badge, and whether that warns.
        shade: How deep its background is, in per cent.
        span: The bar below it, of the interval that its small print has.
    """

    text: str
    small: tuple[str, ...] = ()
    alert: str = ""
    look: Style | None = None
    badge: Literal["", "plain", "warn"] = ""
    shade: float = 0.0
    span: Span | None = None

    @property
    def words(self) -> str:
        """All of it on one line: ``2.500 ± 0.707 (0.562–0.688, error zone)``."""
        spread = [one for one in self.small if one.startswith("±")]
        more = ", ".join(one for one in (*self.small, self.alert) if one and one not in spread)
        return " ".join([self.text, *spread, *([f"({more})"] if more else [])])


def entry(text: str, *small: str | None) -> Entry:
    """A text with what there is to say below it."""
    return Entry(text, tuple(one for one in small if one))


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph; a sentence that a reader should not miss; or a file, in which spaces count."""

    text: str
    style: Literal["plain", "note", "file"] = "plain"


def note(text: str) -> Paragraph:
    """A sentence that a reader should not miss."""
    return Paragraph(text, "note")


@dataclass(frozen=True, slots=True)
class Warning:
    """What forbids a reading: in bold, in plain text and, if there are any, as a list."""

    strong: str
    text: str
    items: Sequence[Entry] = ()


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section, for one or several names."""

    names: Sequence[Entry]
    level: Literal[3, 4] = 3


@dataclass(frozen=True, slots=True)
class Table:
    """A table in words; the first cell of a row names it.

    Attributes:
        columns: Titles; empty for a table without a head.
        rows: The cells of each row.
        title: What is in it.
        text: Places of the columns that hold words, not numbers.
        unbroken: Places of those whose words have one line, however little room there is.
        short: Titles where there is little room.
        marked: Titles of the columns whose figures cannot be compared.
        total: Whether the last row is of all others together.
        stacked: Whether a narrow screen shows each row as a block of its own.
        css: The class that sets widths.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Entry | str]]
    title: str = ""
    text: Sequence[int] = (0,)
    unbroken: Sequence[int] = ()
    short: Sequence[str] = ()
    marked: frozenset[str] = frozenset()
    total: bool = False
    stacked: bool = False
    css: str = ""

    @property
    def entries(self) -> list[list[Entry]]:
        """The cells of each row, plain texts too."""
        return [[Entry(cell) if isinstance(cell, str) else cell for cell in row] for row in self.rows]


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture: a title, the SVG, a sentence on how to read it, and marks that are its own."""

    title: str
    svg: str
    caption: str
    legend: Sequence[Entry] = ()


@dataclass(frozen=True, slots=True)
class Pictures:
    """Pictures side by side, below the legend that they share; ``lines`` if its marks lie on lines."""

    pictures: Sequence[Picture]
    legend: Sequence[Entry] = ()
    lines: bool = True


@dataclass(frozen=True, slots=True)
class LabelledBar:
    """A name, its value in words and how long the bar is, in per cent."""

    name: str
    value: str
    share: float


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars one below the other, in the colour of a row."""

    bars: Sequence[LabelledBar]
    look: Style


@dataclass(frozen=True, slots=True)
class Definitions:
    """Terms and what they mean."""

    terms: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """The first screen: questions, with a short answer each and what there is to add to it, beside one picture."""

    answers: Mapping[str, Sequence[str]]
    picture: Picture | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """Small groups of blocks side by side."""

    groups: Sequence[Sequence[Block]]


@dataclass(frozen=True, slots=True)
class Details:
    """Blocks that are folded away behind a summary, unless ``opened``."""

    summary: str
    blocks: Sequence[Block]
    opened: bool = False
    css: str = ""


Block = Paragraph | Warning | Heading | Table | Pictures | Bars | Definitions | Listing | FirstScreen | Grid | Details


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A part of the report.

    Attributes:
        title: Its heading; none if empty.
        lead: What it is about.
        blocks: What is in it, from top to bottom.
    """

    title: str
    lead: str = ""
    blocks: Sequence[Block] = field(default_factory=list)


def folded(blocks: Sequence[Block], summary: str) -> list[Block]:
    """Long ones, behind a summary; as they are where that is empty."""
    return [Details(summary, blocks)] if summary else list(blocks)


def shortened(text: str) -> str:
    """A text on one line; of a long one the beginning."""
    line = " ".join(text.split())
    return line if len(line) <= _TEXT else f"{line[:_TEXT].rstrip()} …"


def capital(text: str) -> str:
    """With a capital letter first; the others as they are."""
    return text[:1].upper() + text[1:]
