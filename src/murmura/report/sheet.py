"""A small table in words, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table.

    Attributes:
        title: What is in it.
        headings: Of its columns.
        lines: The cells of each line, and a remark on it.
    """

    title: str
    headings: tuple[str, ...]
    lines: Sequence[tuple[tuple[str, ...], str]]
