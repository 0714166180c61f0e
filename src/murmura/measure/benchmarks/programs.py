"""The program in an answer that may hold words, too."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Sequence

from murmura.data.records import Program

_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n?", re.MULTILINE)
_BEGINS = re.compile(r"(?:import|from|def|class|async)\b|@")
_INDENT = "    "


def program(question: Program, answer: str) -> str:
    """The function that an answer gives, with what its prompt has before it.

    Fences (```) divide an answer into parts. The code is the first part that defines the function, else the first one
    in fences, else all of the answer; from the first line on that begins as code does. Where it defines the function,
    it takes its place behind the imports and helpers of the prompt; else it is taken for the function's body, and
    indented if need be. What follows the last line up to which all is Python is left out.
    """
    defines = re.compile(rf"^def {re.escape(question.entry_point)}\b", re.MULTILINE)
    code = _code(answer, defines)
    if defines.search(code):
        head = question.prompt[: _start(defines, question.prompt)]
        return _longest(f"{head}\n", code.splitlines(keepends=True))
    return _longest(question.prompt.rstrip("\n") + "\n", _body(code).splitlines(keepends=True))


def _start(defines: re.Pattern[str], prompt: str) -> int:
    found = defines.search(prompt)
    return found.start() if found else 0


def _code(answer: str, defines: re.Pattern[str]) -> str:
    parts = [textwrap.dedent(part) for part in _FENCE.split(answer)]  # every second one stands in fences
    whole = next((part for part in parts if defines.search(part)), None)
    fenced = next((part for part in parts[1::2] if part.strip()), None)
    return fenced if whole is None and fenced is not None else _from_first_line(whole or answer)


def _from_first_line(text: str) -> str:
    """From the first line on that begins as code does; all of it if there is none."""
    lines = text.splitlines(keepends=True)
    first = next((place for place, line in enumerate(lines) if _BEGINS.match(line)), 0)
    return "".join(lines[first:])


def _body(code: str) -> str:
    lines = code.strip("\n").splitlines(keepends=True)
    indented = not lines or lines[0][:1].isspace()
    return "".join(lines if indented else [_INDENT + line if line.strip() else line for line in lines])


def _longest(head: str, lines: Sequence[str]) -> str:
    """The head and as many of the first lines as make Python with it; all of them if no number does."""
    for count in range(len(lines), 0, -1):
        found = head + "".join(lines[:count])
        if _is_python(found):
            return found
    return head + "".join(lines)


def _is_python(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the model wrote
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return False
    return True
