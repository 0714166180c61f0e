"""Tables and notes for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from murmura.report.content import Block, Entry, FirstScreen, Paragraph, Table
from murmura.report.in_short import in_short
from murmura.report.sections.results import remarks, summary
from murmura.report.table import Row

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

_UNBOUNDED = 10_000


def show(rows: Sequence[Row], console: Console | None = None, which: Sequence[str] = ()) -> None:
    """Print what to know first, and the rows.

    A terminal too narrow for all columns gets a column a method instead of a row a method.
    In a file or a pipe there is no edge to fold at: every line is written whole.

    Args:
        which: of several rows, which is better (``in_short``).
    """
    from rich.measure import Measurement

    console, table = wide(0, console), summary(rows)
    needed = Measurement.get(console, console.options.update(max_width=_UNBOUNDED), draw(table)).maximum
    wide(needed, console)
    show_answers(in_short(rows, which), console)
    console.print(draw(table, upright=needed > console.width))
    for sentence in remarks(rows):
        console.print(sentence)


def show_answers(answers: FirstScreen, console: Console) -> None:
    """A paragraph a question."""
    from rich.text import Text

    for question, told in answers.answers.items():
        console.print(Text.assemble((question, "bold"), " ", " ".join(told)))
    console.print()


def show_blocks(blocks: Sequence[Block], console: Console | None = None) -> None:
    """Print the answers, sentences and tables of a section."""
    console = wide(140, console)
    for block in blocks:
        if isinstance(block, FirstScreen):
            show_answers(block, console)
        elif isinstance(block, Table):
            if block.title:
                console.print(block.title)
            console.print(draw(block))
        elif isinstance(block, Paragraph):
            console.print(block.text)


def wide(least: int, console: Console | None = None) -> Console:
    """Standard output, or this console; in a file or a pipe, where nothing has an edge, at least so many characters
    wide. What stands in brackets is text: runs, sites and arms may be called so."""
    from rich.console import Console

    console = console or Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(least, console.width)
    return console


def facts(told: Iterable[tuple[str, str]]) -> Drawn:
    """Names and what there is to say of each, one a line."""
    from rich.table import Table as Drawn
    from rich.text import Text

    drawn = Drawn(box=None, show_header=False, padding=(0, 2, 0, 2))
    drawn.add_column(style="dim", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, text in told:
        drawn.add_row(name, Text(text))
    return drawn


def draw(table: Table, upright: bool = False) -> Drawn:
    """A table as rich draws it, small print on lines of its own; that of names beside the row, unless they are short of
    room.

    Args:
        upright: A column for each row of the table.
    """
    from rich import box
    from rich.table import Table as Drawn
    from rich.text import Text

    drawn = Drawn(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False, collapse_padding=True)
    if upright:
        drawn.add_column("")
        for row in table.entries:
            drawn.add_column(_text(row[0]), justify="right", overflow="fold")
        for title, *cells in list(zip(table.columns, *table.entries, strict=True))[1:]:
            drawn.add_row(title, *map(_text, cells))
        return drawn
    for place, title in enumerate(table.short or table.columns):
        words = place in table.text
        whole = not words or place in table.unbroken
        drawn.add_column(title, justify="left" if words else "right", overflow="fold", no_wrap=whole)
    for place, (name, *cells) in enumerate(table.entries, start=1):
        if table.total and place == len(table.rows):
            drawn.add_section()
        beside = [] if table.short else [", ".join(name.small)]  # what is said of a row stands at its end
        drawn.add_row(Text(name.text) if beside else _text(name), *map(_text, cells), *beside)
    return drawn


def _text(entry: Entry) -> Text:
    from rich.text import Text

    text = Text(entry.text)
    for small in entry.small:
        text.append(f"\n{small}", style="dim not bold")
    if entry.alert:
        text.append(f"\n{entry.alert}", style="yellow not bold")
    return text
