"""Texts in which there may be something that the other side has made up, as people are shown them."""

from __future__ import annotations

_MOST = 2000  # characters


def harmless(text: str) -> str:
    """A text in one line, as ``printable``. Of a long one the middle is left out, since it ends with what to do."""
    if len(text) > _MOST:
        text = f"{text[: _MOST // 2]} [...] {text[-_MOST // 2 :]}"
    return printable(text)


def printable(line: str) -> str:
    """A line of characters that do nothing on a terminal: others are escaped, as in Python."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)
