"""How replies become vectors of integers that can be summed under masks, and sums of vectors sums of replies.

A vector has one word for each field, which is 1 where the field is there and 0 where it is None, and behind it one word
for each of its numbers. Whole numbers stand as they are. Others are fixed point: multiplied by a power of two, the
largest with which no sum over the sites can overflow, and rounded towards zero, so that a clipped update stays within
its norm. What a layout is follows from public things alone: a reply that any site's is like, and the experiment's
options.

Words have 64 bits, or 32 where that is enough: where no whole number needs more by its type, and fixed point still
resolves 2⁻²⁰ of its range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
import torch

from murmura.aggregation.config import SecureSumConfig
from murmura.errors import RunError, SecureSumError
from murmura.federation.wire.messages import Payload
from murmura.federation.wire.sums import Sum

_FINE = 20  # bits below the range that fixed point resolves at least
_LACKING = 1024  # words that fields may take which a site does not have, however few it has
_SHORT = (torch.int8, torch.int16, torch.int32, torch.uint8, torch.bool)

MASKED = "masked"
"""The field of a masked reply: the vector, as int32 or int64."""

FALSE = "A site has sent a false part: start again with --resume, and if it happens again, look for it."
"""What to do where a sum says what no sites can have said together."""
_FIX = "Server and sites need the same experiment; if they have it, do not trust this server."

Kind = Literal["tensor", "whole tensor", "short tensor", "number", "whole number"]
"""Of what stands at a place: reals, or whole numbers of up to 64 or up to 32 bits, in a tensor or alone."""


@dataclass(frozen=True)
class Agreement:
    """What server and sites know of a run's secure sums without telling one another: from the experiment.

    Args:
        options: those of ``[aggregation.secure]``.
        cohort: how many sites a sum is asked of, at least.
        drawn: whom a round asks; None where that does not follow from the experiment.
    """

    options: SecureSumConfig
    cohort: int
    drawn: Callable[[int], Collection[str]] | None = None


@dataclass(frozen=True)
class SummedEntry:
    """A tensor or number of a reply.

    Args:
        field: its field.
        key: its name in a field of several; None where it is the field itself.
        kind: what it is.
        shape: of a tensor.
    """

    field: str
    key: str | None
    kind: Kind
    shape: tuple[int, ...] = ()

    @property
    def place(self) -> tuple[str, str | None]:
        return self.field, self.key

    @property
    def named(self) -> str:
        return f"'{self.field}'" if self.key is None else f"'{self.key}' in '{self.field}'"

    @property
    def words(self) -> int:
        return math.prod(self.shape)

    @property
    def is_whole(self) -> bool:
        return self.kind not in ("tensor", "number")

    @property
    def is_tensor(self) -> bool:
        return self.kind.endswith("tensor")


@dataclass(frozen=True)
class Layout:
    """Of the vectors of one sum.

    Args:
        entries: in the order of the vector.
        weights: by the name of a field, the one that its numbers are multiplied by.
        sites: how many were asked.
        options: those of ``[aggregation.secure]``.
    """

    entries: tuple[SummedEntry, ...]
    weights: Mapping[str, str]
    sites: int
    options: SecureSumConfig

    @classmethod
    def of(cls, like: Payload, weights: Mapping[str, str], sites: int, options: SecureSumConfig) -> Self:
        """For replies that are like this one.

        Raises:
            RunError: it holds what cannot be added up.
        """
        return cls(tuple(_entries(like)), dict(weights), sites, options)

    def to_payload(self) -> dict[str, Any]:
        """As JSON; what both sides know anyway is left out."""
        return {"entries": [[e.field, e.key, e.kind, list(e.shape)] for e in self.entries]}

    @cached_property
    def fields(self) -> list[str]:
        """In the order of the vector."""
        return list(dict.fromkeys(entry.field for entry in self.entries))

    @cached_property
    def bits(self) -> Literal[32, 64]:
        """Of a word."""
        long = any(entry.kind in ("whole tensor", "whole number") for entry in self.entries)
        least = self.options.range * 2.0**-_FINE
        reals = {entry.field for entry in self.entries if not entry.is_whole}
        return 64 if long or any(2.0 ** -self._shift(field, 32) > least for field in reals) else 32

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of a vector."""
        return np.dtype(np.uint32 if self.bits == 32 else np.uint64)

    @property
    def length(self) -> int:
        """Words of a vector."""
        return len(self.fields) + sum(entry.words for entry in self.entries)

    def sizes(self) -> dict[str, int]:
        """Bytes that each field takes in a vector."""
        words = dict.fromkeys(self.fields, 1)
        for entry in self.entries:
            words[entry.field] += entry.words
        return {field: count * self.bits // 8 for field, count in words.items()}

    # ---- at a site -----------------------------------------------------------------------------------------------

    def vector(self, reply: Payload) -> tuple[np.ndarray, list[str]]:
        """A reply as a vector, and what of it had to be clipped, in words for the site's owner.

        Raises:
            SecureSumError: the layout is not that of this reply.
            RunError: it holds a number that is not finite, or a whole number that could make a sum overflow.
        """
        self._require_own(reply)
        told: list[str] = []
        most = self.options.weight
        for name in {*self.weights.values()}:
            if reply.get(name) is not None and reply[name] > most:
                told.append(f"'{name}' is {reply[name]} and counts as {most} (aggregation.secure.weight)")
                reply = {**reply, name: most}
        parts: list[np.ndarray] = []
        for field in self.fields:
            value, clipped = reply.get(field), 0
            parts.append(np.array([value is not None], self.dtype))
            for entry in (entry for entry in self.entries if entry.field == field):
                words, beyond = self._words(entry, _at(value, entry), reply)
                parts.append(words)
                clipped += beyond
            if clipped:
                told.append(f"{clipped} numbers of '{field}' were clipped to ±{self.options.range:g}")
        return np.concatenate(parts), told

    def _words(self, entry: SummedEntry, value: Any, reply: Payload) -> tuple[np.ndarray, int]:
        """The words of one entry, and how many of its numbers were clipped."""
        if value is None:
            return np.zeros(entry.words, self.dtype), 0
        if entry.is_whole:
            whole = _array(value, np.int64)
            most = (2 ** (self.bits - 1) - 1) // self.sites
            if len(whole) and not -most <= whole.min() <= whole.max() <= most:
                raise RunError(
                    f"'{entry.field}' holds a whole number beyond ±{most}, with which a sum over {self.sites} sites "
                    f"could overflow {self.bits} bits"
                )
            return whole.astype(self.dtype), 0
        real = _array(value, np.float64)
        if not np.isfinite(real).all():
            raise RunError(f"'{entry.field}' holds a number that is not finite, which under masks would spoil the sum")
        bound = self.options.range
        clipped = int((np.abs(real) > bound).sum())
        weight = float(reply[self.weights[entry.field]]) if entry.field in self.weights else 1.0
        fixed = np.ldexp(np.clip(real, -bound, bound) * weight, self._shift(entry.field, self.bits))
        return np.trunc(fixed).astype(np.int64).astype(self.dtype), clipped

    def _require_own(self, reply: Payload) -> None:
        """Hold the layout to the one that the site would make of its own reply. Only of a field that it does not have,
        and of numbers that its tables lack, it does not know what they are, and sends zeros."""
        there = {field: _without_none(value) for field, value in reply.items() if value is not None}
        own = {entry.place: entry for entry in _entries(there)}
        for place in own.keys() - {entry.place for entry in self.entries}:
            raise SecureSumError(f"{own[place].named} has no place in the secure sum that was asked for", fix=_FIX)
        lacking = sum(entry.words for entry in self.entries if entry.field not in there)
        if lacking > max(_LACKING, sum(entry.words for entry in own.values())):
            raise SecureSumError("what the site does not have would take more places than what it has", fix=_FIX)
        for entry in self.entries:
            known = own.get(entry.place)
            if entry.field not in there or known == entry:
                continue
            if known is not None or entry.key is None:
                what = f"{entry.named} is not what the secure sum that was asked for has a place for"
                raise SecureSumError(what, fix=_FIX)
            if entry.is_tensor:
                raise SecureSumError(f"the tensor '{entry.key}' is missing in '{entry.field}'", fix=_FIX)
        for field, name in self.weights.items():
            if reply.get(field) is not None and not _is_weight(reply.get(name)):
                raise RunError(f"'{field}' is weighed by '{name}', which is {reply.get(name)!r} and no weight")

    # ---- at the server -------------------------------------------------------------------------------------------

    def misfit(self, reply: Payload) -> str | None:
        """Why a masked reply cannot be added to others, in words; None where it can."""
        found, dtype = reply.get(MASKED), torch.int32 if self.bits == 32 else torch.int64
        if isinstance(found, torch.Tensor) and found.dtype == dtype and tuple(found.shape) == (self.length,):
            return None
        return f"it is no masked vector of {self.length} words of {self.bits} bits"

    def sum(self, total: np.ndarray, sites: list[str]) -> Sum:
        """What a sum of vectors says, as ``Fleet.sum`` returns it; a table of numbers has all that it may have.

        Args:
            total: unmasked.
            sites: whose vectors are in it.

        Raises:
            RunError: it says of a field that so many of them have it as cannot be.
        """
        signed = total.view(np.int32 if self.bits == 32 else np.int64).astype(np.int64)
        found, start = Sum(list(sites)), 0
        for field in self.fields:
            there = int(signed[start])
            start += 1
            if not 0 <= there <= len(sites):
                what = f"'{field}' is said to be in {there} of the {len(sites)} replies that were added up"
                raise RunError(what, fix=FALSE)
            for entry in (entry for entry in self.entries if entry.field == field):
                value = self._value(entry, signed[start : start + entry.words])
                start += entry.words
                if not there:
                    continue
                if entry.key is None:
                    found.fields[field] = value
                else:
                    found.fields.setdefault(field, {})[entry.key] = value
            if there:
                found.heard[field] = there
        return found

    def _value(self, entry: SummedEntry, words: np.ndarray) -> Any:
        if entry.is_whole and not entry.is_tensor:
            return int(words[0])
        real = words.astype(np.float64)
        if not entry.is_whole:
            real = np.ldexp(real, -self._shift(entry.field, self.bits))
        return torch.from_numpy(real.reshape(entry.shape)) if entry.is_tensor else float(real[0])

    def _shift(self, field: str, bits: int) -> int:
        """log2 of what the numbers of a field are multiplied by: the largest with which all sites' bounds together stay
        below 2^(bits − 1)."""
        bound = self.options.range * (self.options.weight if field in self.weights else 1)
        return bits - 1 - math.frexp(self.sites * bound)[1]


def entries_of(terms: Any) -> tuple[SummedEntry, ...]:
    """The entries of the layout in the terms of a sum, where it has travelled as ``Layout.to_payload``.

    Raises:
        SecureSumError: it is none, or has a field twice, which would leave in two forms.
    """
    try:
        entries = tuple(
            SummedEntry(field, key, kind, tuple(shape)) for field, key, kind, shape in terms["layout"]["entries"]
        )
    except (KeyError, TypeError, ValueError):
        entries = ()
    if not entries or not all(map(_is_sound, entries)):
        raise SecureSumError("a secure sum is asked for, and what its layout is cannot be read", fix=_FIX)
    whole = {entry.field for entry in entries if entry.key is None}
    places = {entry.place for entry in entries if entry.key is None or entry.field not in whole}
    if len(places) < len(entries):
        raise SecureSumError("a field is to leave twice in one secure sum", fix=_FIX)
    return entries


def as_tensor(vector: np.ndarray) -> torch.Tensor:
    """A vector as it travels."""
    return torch.from_numpy(vector.view(np.int32 if vector.itemsize == 4 else np.int64))


def as_vector(travelled: torch.Tensor) -> np.ndarray:
    """The inverse of ``as_tensor``."""
    return travelled.numpy().view(np.uint32 if travelled.element_size() == 4 else np.uint64)


def _entries(like: Payload) -> Iterator[SummedEntry]:
    for field, value in like.items():
        for key, one in _leaves(value):
            if isinstance(one, torch.Tensor):
                kind: Kind = "tensor"
                if _is_whole(one):
                    kind = "short tensor" if one.dtype in _SHORT else "whole tensor"
                yield SummedEntry(field, key, kind, tuple(one.shape))
            elif isinstance(one, int | float):
                yield SummedEntry(field, key, "whole number" if _is_whole(one) else "number")
            else:
                raise RunError(f"a field '{field}' cannot be added up: it holds neither numbers nor tensors")


def _is_sound(entry: SummedEntry) -> bool:
    return (
        isinstance(entry.field, str)
        and isinstance(entry.key, str | None)
        and entry.kind in get_args(Kind)
        and all(type(length) is int and length >= 0 for length in entry.shape)
        and (entry.is_tensor or not entry.shape)
    )


def _without_none(value: Any) -> Any:
    return {key: one for key, one in value.items() if one is not None} if isinstance(value, Mapping) else value


def _leaves(value: Any) -> Iterator[tuple[str | None, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    else:
        yield None, value


def _at(value: Any, entry: SummedEntry) -> Any:
    return value.get(entry.key) if isinstance(value, Mapping) else value


def _is_whole(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not value.is_floating_point() and not value.is_complex()
    return isinstance(value, int)


def _is_weight(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0


def _array(value: Any, dtype: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy() if value.dtype != torch.bfloat16 else value.detach().cpu().float().numpy()
    return np.asarray(value, dtype).reshape(-1)
