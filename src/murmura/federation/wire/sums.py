"""What is kept of replies that are not looked at one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from murmura.aggregation.mean import StateSum
from murmura.errors import RunError
from murmura.federation.wire.messages import Payload
from murmura.federation.wire.well_formed import is_count
from murmura.finite import is_finite


@dataclass
class Sum:
    """What a server keeps of replies that it does not look at one by one.

    Args:
        sites: those that were added up.
        fields: of each field the sum: float64 tensors, numbers, or tables of numbers. A field that is None in a reply
            adds nothing.
        heard: of how many replies each of these is the sum.
    """

    sites: list[str] = dataclasses.field(default_factory=list)
    fields: Payload = dataclasses.field(default_factory=dict)
    heard: dict[str, int] = dataclasses.field(default_factory=dict)
    _states: dict[str, StateSum] = dataclasses.field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def mean(self, name: str) -> float | None:
        """Of a field of numbers, over the replies that have one; None where none has."""
        return float(self.fields[name]) / self.heard[name] if name in self.heard else None

    def add(self, site: str, fields: Payload, weights: Mapping[str, str] | None = None) -> None:
        """Add one site's reply.

        Args:
            weights: as of ``Fleet.sum``.

        Raises:
            RunError: a field is no number, tensor or table of these; or its tensors are not finite, or not those of the
                other sites.
        """
        self.sites.append(site)
        for name, value in fields.items():
            if value is None:
                continue
            self.heard[name] = self.heard.get(name, 0) + 1
            factor = float(fields[weights[name]]) if weights and name in weights else 1.0
            alone = isinstance(value, torch.Tensor)
            if alone or is_state(value):
                total = self._states.setdefault(name, StateSum()).add({name: value} if alone else value, factor)
                self.fields[name] = total.tensors[name] if alone else total.tensors
            else:
                self.fields[name] = _plus(self.fields.get(name), value, name)


def misfit(fields: Payload, like: Payload) -> str | None:
    """Why a reply cannot be added to others, in words; None where it can.

    Args:
        like: a reply as all should be: each of its tensors must be there, and no other in its state, in its shape and
            type, and finite; so must each whole number, and each table, with no other keys, of whole numbers;
            and where there are other numbers, these must be such.
    """
    for field, expected in like.items():
        found = fields.get(field)
        if isinstance(expected, torch.Tensor):
            pairs = [(field, found, expected)]
        elif is_state(expected):
            state = found if isinstance(found, Mapping) else {}
            if state.keys() - expected.keys():  # whose names are the site's to choose, and are not told
                return f"'{field}' holds what nobody asked for"
            pairs = [(name, state.get(name), one) for name, one in expected.items()]
        elif not _is_number(found, expected):
            return f"'{field}' is not the number, or the table of numbers, that it should be"
        else:
            continue
        for name, one, wanted in pairs:
            if why := _misfit(one, wanted):
                return f"'{name}' {why}"
    return None


def _is_number(found: Any, expected: Any) -> bool:
    """Whether a value is a number where that is expected, or a table of counts; a number that is not whole may be
    missing."""
    if isinstance(expected, Mapping):
        return isinstance(found, Mapping) and found.keys() <= expected.keys() and all(map(is_count, found.values()))
    if isinstance(expected, float):
        return found is None or (isinstance(found, int | float) and not isinstance(found, bool))
    return not isinstance(expected, int) or is_count(found)


def addable(fields: Payload, weights: Mapping[str, str] | None = None) -> str | None:
    """Why a reply cannot be added up at all, in words; None where it can, if its tensors have the others' shapes."""
    for name, value in fields.items():
        if not _has_numbers(value):
            return f"'{name}' holds neither numbers nor tensors"
        if weights and value is not None and name in weights and not is_count(fields.get(weights[name])):
            return f"'{weights[name]}', which '{name}' counts by, is no whole number"
    return None


def _has_numbers(value: Any) -> bool:
    """Whether a value is a number, a tensor, or one flat table of either; a site could nest tables without end."""
    if isinstance(value, Mapping):
        return is_state(value) or all(isinstance(one, int | float) for one in value.values())
    return value is None or isinstance(value, torch.Tensor | int | float)


def _misfit(found: Any, expected: torch.Tensor) -> str | None:
    if not isinstance(found, torch.Tensor):
        return "is missing" if found is None else "is no tensor"
    if found.shape != expected.shape:
        return f"has shape {tuple(found.shape)}, expected {tuple(expected.shape)}"
    if found.dtype != expected.dtype:  # what is finite in more bits may be none in these
        return f"is {found.dtype}, expected {expected.dtype}"
    return None if is_finite(found) else "holds a NaN or an infinity"


def is_state(value: Any) -> bool:
    """Whether a value is a table of tensors, and of one at least."""
    return isinstance(value, Mapping) and bool(value) and all(isinstance(one, torch.Tensor) for one in value.values())


def _plus(total: Any, value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        before = total or {}
        return {**before, **{key: _plus(before.get(key), one, name) for key, one in value.items()}}
    if isinstance(value, int | float):
        return value if total is None else total + value
    raise RunError(f"a field '{name}' cannot be added up: it holds neither numbers nor tensors")
