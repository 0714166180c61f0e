"""What a well-formed reply is: what its verb's declared releases say that each field holds.

A site may be broken or lie. So nothing but the server's ledgers sees a reply before it is checked here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from murmura.errors import RunError
from murmura.federation.wire.messages import Payload, field_sizes
from murmura.federation.wire.releases import Kind, Release
from murmura.finite import is_finite

TEXTS = 1_000_000
"""Most texts in a field."""
CHARACTERS = 1_000_000
"""Most characters of a text, or of a word beside figures."""
LARGEST = 2**53
"""The largest whole number: up to it a float has all of them."""
_NO_NUMBER = "holds a NaN, an infinity, or numbers of a kind that nobody sends"
_REAL = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
_WHOLE = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool})


def malformed(fields: Payload, releases: Mapping[str, Release]) -> str | None:
    """Why a reply is not one that its verb declares, in words; None where it is. It quotes no value.

    A field that is None, or not there, passes: a verb may have nothing to tell. What a method cannot do without, it
    says itself (``Fleet.ask``, ``Fleet.sum``).

    Args:
        releases: of the verb, by the names of its fields.
    """
    for name, value in fields.items():
        if name not in releases:
            return "it holds a field that the verb does not declare"
        check = _CHECKS.get(releases[name].kind)
        if check is not None and value is not None and (why := check(value) or _unwritable(value)):
            return f"'{name}' {why}"
    return None


def well_formed(fields: Payload, releases: Mapping[str, Release]) -> Payload:
    """Those fields of a reply that are what its verb declares; arguments as of ``malformed``."""
    return {name: value for name, value in fields.items() if malformed({name: value}, releases) is None}


def sized(fields: Payload, releases: Mapping[str, Release]) -> tuple[dict[str, int], str | None]:
    """Bytes of each field of a reply that its verb declares, and why it is ``malformed``. What holds something that
    does not travel has no size."""
    try:
        sizes = field_sizes({name: one for name, one in fields.items() if name in releases})
    except RunError as error:
        return {}, error.what
    return sizes, malformed(fields, releases)


def is_count(value: Any, least: int = 0) -> bool:
    """Whether a value is a whole number from ``least`` to ``LARGEST``."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST


def _tensors(value: Any) -> str | None:
    for leaf in _leaves(value):
        if not isinstance(leaf, torch.Tensor | int | float):
            return "holds something that is neither a tensor nor a number"
        if not _is_finite(leaf):
            return _NO_NUMBER
    return None


def _counts(value: Any) -> str | None:
    for leaf in _leaves(value):
        if not (_are_counts(leaf) if isinstance(leaf, torch.Tensor) else is_count(leaf)):
            return "is no whole number from 0 on"
    return None


def _are_counts(values: torch.Tensor) -> bool:
    return values.dtype in _WHOLE and bool((values >= 0).all())


def _figures(value: Any) -> str | None:
    for leaf in _leaves(value):
        if isinstance(leaf, str):
            if len(leaf) > CHARACTERS:
                return f"holds a text of more than {CHARACTERS} characters"
        elif leaf is not None and not isinstance(leaf, torch.Tensor | int | float):
            return "holds something that is no figure"
        elif leaf is not None and not _is_finite(leaf):
            return _NO_NUMBER
    return None


def _texts(value: Any) -> str | None:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        return "is no list of texts"
    if len(value) > TEXTS:
        return f"holds more than {TEXTS} texts"
    if any(len(text) > CHARACTERS for text in value):
        return f"holds a text of more than {CHARACTERS} characters"
    return None


def _unwritable(value: Any) -> str | None:
    """JSON can hold half of a pair of surrogates, which no tokenizer takes and no file can hold."""
    try:
        for text in _leaves(value, names=True):
            if isinstance(text, str):
                text.encode()
    except UnicodeEncodeError:
        return "holds half a character"
    return None


_CHECKS: dict[Kind, Callable[[Any], str | None]] = {
    "weights": _tensors,
    "embeddings": _tensors,
    "votes": _tensors,
    "count": _counts,
    "metric": _figures,
    "text": _texts,
}


def _leaves(value: Any, names: bool = False) -> Iterator[Any]:
    """What tables and lists hold, however deep, and what it is called there, if that is asked for; without recursion,
    since a site chooses the depth."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            left.extend(one.values())
            left.extend(one if names else ())
        elif isinstance(one, list | tuple):
            left.extend(one)
        else:
            yield one


def _is_finite(value: torch.Tensor | int | float) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dtype in _WHOLE or (value.dtype in _REAL and is_finite(value))
    return abs(value) <= LARGEST if isinstance(value, int) else math.isfinite(value)
