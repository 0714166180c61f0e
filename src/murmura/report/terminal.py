"""The table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from murmura.measure.figure import Figure
from murmura.report.comparison import sentences
from murmura.report.noted import noted
from murmura.report.table import Row, columns, promises

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_UNBOUNDED = 10_000


def show(rows: Sequence[Row], console: Console | None = None) -> None:
    """Print the rows; a terminal too narrow for all columns gets a column a method instead of a row a method.

    In a file or a pipe there is no edge to fold at: every line is written whole.
    """
    from rich.console import Console
    from rich.measure import Measurement

    console = console or Console(highlight=False)
    drawn = rich_table(rows)
    needed = Measurement.get(console, console.options.update(max_width=_UNBOUNDED), drawn).maximum
    if not console.is_terminal:
        console.width = max(needed, console.width)
    console.print(rich_table(rows, upright=True) if needed > console.width else drawn)
    for sentence in [*noted(rows), *sentences(rows), *promises(rows)]:
        console.print(sentence)


def rich_table(rows: Sequence[Row], upright: bool = False) -> Table:
    """The rows as a rich table, spreads, intervals and remarks on lines of their own.

    Args:
        upright: A line a figure and a column a method.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False, collapse_padding=True)
    if upright:
        drawn.add_column("")
        for row in rows:
            drawn.add_column(_method(row), justify="right", overflow="fold")
        for figure in columns(rows):
            drawn.add_row(Text(figure.title), *(_cell(figure, row) for row in rows))
        return drawn
    drawn.add_column("method", overflow="fold")
    for figure in columns(rows):
        drawn.add_column(figure.heading, justify="right", no_wrap=True)
    for row in rows:
        drawn.add_row(_method(row), *(_cell(figure, row) for figure in columns(rows)))
    return drawn


def _method(row: Row) -> Text:
    from rich.text import Text

    text = Text(row.label)
    if row.remark:
        text.append(f"\n{row.remark}", style="dim not bold")
    if row.state:
        text.append(f"\n{row.state}", style="yellow not bold")
    return text


def _cell(figure: Figure, row: Row) -> Text:
    from rich.text import Text

    cell = row.cells[figure.key]
    text = Text(cell.value(figure))
    for small in (cell.spread(figure), *cell.interval().split(", "), cell.together, cell.guessing(figure)):
        text.append(f"\n{small}" if small else "", style="dim")
    return text
