"""JSON that any reader takes, and that gives back what was written.

JSON has no numbers that are not finite (RFC 8259, section 6), and the tokens that Python writes for them are refused
elsewhere. They are strings here: "NaN", "Infinity" and "-Infinity". A string that reads like one of these gets a
backslash before it, so that the two can be told apart.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_ALIKE = re.compile(r"\\*(NaN|-?Infinity)")
_ALIKE_IN_TEXT = re.compile(rf'"{_ALIKE.pattern}"')


def dumps(value: Any, indent: int | None = None) -> str:
    """A value as JSON. Tuples become lists.

    Raises:
        TypeError: it holds something that JSON has no form for.
    """
    # Nearly always there is nothing to put in other words, and all rounds so far are written after each one.
    with suppress(ValueError, TypeError):
        text = json.dumps(value, indent=indent, allow_nan=False)
        if not _ALIKE_IN_TEXT.search(text):
            return text
    return json.dumps(_written(value), indent=indent, allow_nan=False)


def loads(text: str) -> Any:
    """The inverse of ``dumps``.

    Raises:
        json.JSONDecodeError: the text is not JSON, from this line and column on.
        ValueError: it has a token that only Python takes for JSON.
    """
    return _read(json.loads(text, parse_constant=_refuse))


def _written(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str) and _ALIKE.fullmatch(value):
        return f"\\{value}"
    if isinstance(value, Mapping):
        return {key: _written(inner) for key, inner in value.items()}
    return [_written(inner) for inner in value] if isinstance(value, list | tuple) else value


def _read(value: Any) -> Any:
    if isinstance(value, str) and _ALIKE.fullmatch(value):
        return _WORDS[value] if value in _WORDS else value[1:]
    if isinstance(value, dict):
        return {key: _read(inner) for key, inner in value.items()}
    return [_read(inner) for inner in value] if isinstance(value, list) else value


def _refuse(token: str) -> Any:
    raise ValueError(f"{token} is no number of JSON")
