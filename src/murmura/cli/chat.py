"""``murmura chat``: ask the model of a run, before and after training side by side."""

from __future__ import annotations

import re
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from murmura.cli.of_run import Run, Site
from murmura.harmless import printable

_JOINERS = "\u200c\u200d"  # within words of Persian and Hindi, and of emoji


def chat(
    run: Run,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Maximum tokens per answer.")] = 256,
    site: Site = None,
) -> None:
    """Ask a run's model questions, and see what it answered before training and what it answers now.

    Each line is a question by itself, as the run's records are: the model is not told of earlier ones. Ctrl-D ends.
    """
    from rich.columns import Columns
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    from murmura.data.records import Instruction
    from murmura.experiment.trained import Trained, require_answers

    require_answers(run)
    trained, console = Trained.load(run, site), Console(highlight=False)
    asking = sys.stdin.isatty()
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # no tokenizer takes a text with bytes that are not UTF-8
    while True:
        if asking:
            console.print("> ", style="bold", end="")
        line = sys.stdin.readline()
        if not line:
            break
        if not line.strip():
            continue
        before, after = trained.answers([Instruction(line.strip())], [trained.before, trained.after], tokens)
        if not asking:
            console.print(Text(f"> {line.strip()}", style="bold"))
        wide = max(30, console.width // 2 - 2)
        panels = [
            Panel(Text(_shown(one.text) + ("" if one.finished else " …")), title=title, width=wide)
            for title, one in (("before", before), ("after", after))
        ]
        console.print(Columns(panels, padding=0))


def _shown(answer: str) -> str:
    """An answer without what a terminal would obey: what a model writes is not ours."""
    lines = (re.sub(r"\s", " ", line.expandtabs()) for line in answer.strip().splitlines())
    return "\n".join("".join(one if one in _JOINERS else printable(one) for one in line) for line in lines)
