"""What samplers, clippings and noises have in common: small frozen values, all of them public."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, TypeVar

from murmura.errors import PrivacyError, nearest

Unit = Literal["record", "site"]
Adjacency = Literal["zero-out", "replace-one"]

_SAME = 1e-6  # numbers that went through float32 still count as equal


@dataclass(frozen=True)
class PlanPart(ABC):
    """A part of a privacy plan.

    Attributes:
        kind: its name in JSON.
    """

    kind: ClassVar[str]

    @abstractmethod
    def describe(self) -> str:
        """A few words for people."""

    def to_json(self) -> dict[str, Any]:
        """Its kind and its fields."""
        return {"kind": self.kind, **asdict(self)}


P = TypeVar("P", bound=PlanPart)


def from_json(known: Mapping[str, type[P]], data: Mapping[str, Any]) -> P:
    """The part that ``PlanPart.to_json`` wrote.

    Raises:
        PrivacyError: unknown kind.
    """
    kind = data["kind"]
    check(kind in known, f"'{kind}' is unknown in a privacy plan", nearest(kind, known))
    return known[kind](**{name: value for name, value in data.items() if name != "kind"})


def check(holds: bool, what: str, fix: str) -> None:
    """Refuse what makes no sense.

    Raises:
        PrivacyError: unless it ``holds``.
    """
    if not holds:
        raise PrivacyError(what, fix=fix)


def at_least(value: float | None, planned: float) -> bool:
    """Whether a value that was used is as large as planned, but for float32's rounding."""
    return value is not None and value >= planned * (1 - _SAME)


def same(value: float, planned: float) -> bool:
    """Whether a value that was used is the planned one, but for float32's rounding."""
    return math.isclose(value, planned, rel_tol=_SAME)
