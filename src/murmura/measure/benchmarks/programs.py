"""The program in an answer that may hold words, too."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings

from murmura.data.records import Program

_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n?", re.MULTILINE)
_BEGINS = re.compile(r"(?:import|from|def|class|async)\b|@")
_INDENT = "    "


def program(question: Program, answer: str) -> str:
    """The function that an answer gives, with what its prompt has before it.

    Fences (```) divide an answer into parts. The first part that defines the function takes its place behind the
    imports and helpers of the prompt: whole where it stands in fences and is code, else from its first line on that
    begins as code does, since a word alone is Python, too. If there is none, the function's body is what the answer
    begins with, where that continues the prompt; else what the first fences hold; else the answer from its first line
    on that begins as code does. A body is indented if need be. Whatever follows the last line up to which all is Python
    is left out.
    """
    defines = re.compile(rf"^def {re.escape(question.entry_point)}\b", re.MULTILINE)
    parts = _FENCE.split(answer)  # every second one stands in fences
    for place, part in enumerate(map(textwrap.dedent, parts)):
        if defines.search(part):
            head = question.prompt[: _start(defines, question.prompt)] + "\n"
            code = _python(head, part) if place % 2 else ""
            return head + code if defines.search(code) else _longest(head, _from_first_line(part))
    prompt = question.prompt.rstrip("\n") + "\n"
    fenced = next((textwrap.dedent(part) for part in parts[1::2] if part.strip()), None)
    start = _body(parts[0])
    if (fenced is None or parts[0].strip("\n")[:1].isspace()) and _python(prompt, start).strip():
        return _longest(prompt, start)
    return _longest(prompt, _body(fenced or _from_first_line(answer)))


def _start(defines: re.Pattern[str], prompt: str) -> int:
    found = defines.search(prompt)
    return found.start() if found else 0


def _from_first_line(text: str) -> str:
    """From the first line on that begins as code does; all of it if there is none."""
    lines = text.splitlines(keepends=True)
    first = next((place for place, line in enumerate(lines) if _BEGINS.match(line)), 0)
    return "".join(lines[first:])


def _body(code: str) -> str:
    code = re.sub(r"\A {3}(?=\S)", _INDENT, code.strip("\n"))  # of sentence pieces the decoder takes the first space
    lines = code.splitlines(keepends=True)
    indented = not lines or lines[0][:1].isspace()
    return "".join(lines if indented else [_INDENT + line if line.strip() else line for line in lines])


def _longest(head: str, code: str) -> str:
    """The head and as many of the code's first lines as make Python with it; all of them if no number does."""
    return head + (_python(head, code) or code)


def _python(head: str, code: str) -> str:
    """As many of the code's first lines as make Python behind the head; empty if no number does."""
    lines = code.splitlines(keepends=True)
    found = ("".join(lines[:count]) for count in range(len(lines), 0, -1))
    return next((first for first in found if _is_python(head + first)), "")


def _is_python(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the model wrote
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return False
    return True
