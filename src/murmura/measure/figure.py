"""What is known of one figure besides its value: its name, its meaning, and how it is written and drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from murmura.data.records import Kind
from murmura.runs.schema import Attack
from murmura.units import DASH, at_least, bound, count, decimal, duration, nonfinite, signed, size

GUESSING = 0.5
"""The AUC of an attack without skill."""

_END, _BRACKETS = re.compile(r"(?<=[.])\s+(?=[A-Z0-9])"), re.compile(r" \([^()]*(?:\([^()]*\)[^()]*)*\)")
_BETTER = {"lower": "Lower is better.", "higher": "Higher is better.", "": ""}


@dataclass(frozen=True, slots=True)
class Unit:
    """What a figure counts, and how it and its standard deviation are written."""

    name: str
    write: Callable[[float], str]
    write_sd: Callable[[float], str]


NATS = Unit("nats", decimal, decimal)
AUC = Unit("AUC, 0 to 1", decimal, decimal)
SHARE = Unit("share, 0 to 1", decimal, decimal)
DIFFERENCE = Unit("difference of two shares", signed, decimal)
EPSILON = Unit("ε", bound, bound)
LEAST_EPSILON = Unit("ε", at_least, at_least)
BITS = Unit("bits", decimal, decimal)
COINS = Unit("coins", count, count)
BYTES = Unit("bytes", size, size)
SECONDS = Unit("seconds", duration, duration)
TEXTS = Unit("texts", count, count)
TOKENS = Unit("tokens", lambda value: decimal(value, 1), lambda value: decimal(value, 1))
UNKNOWN = Unit("", lambda value: count(value) if value == int(value) else decimal(value), decimal)


@dataclass(frozen=True, slots=True)
class Drawn:
    """How a figure is drawn round by round.

    Attributes:
        axis: What its picture's y axis says; ``{per}`` stands for what a loss is a mean over.
        title: Of its picture, where that is not the figure's own.
        shows: What its line shows, for a caption that tells two lines apart.
        note: A sentence of the caption.
        beside: Key of the figure in whose picture it is drawn, hollow and dashed; it has none of its own then.
        level: Where there is a line across, if anywhere.
    """

    axis: str = ""
    title: str = ""
    shows: str = ""
    note: str = ""
    beside: str = ""
    level: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of a run.

    Attributes:
        key: In the rows of ``metrics.jsonl``. A row that also has ``KEY_n`` gives the number of texts that the figure
            is a share of; it is then shown with that number and a 95 % interval. A row that has ``KEY_low`` and
            ``KEY_high`` gives the ends of that interval itself, and ``KEY_guess`` what it comes to without skill
            (``measure.guessing``).
        title: Its name.
        short: Its name where there is little room, with a line break; the title if empty.
        unit: What it counts.
        meaning: In plain words, without which way is better.
        of: By kind of record, what it means there if that differs, behind the words for that kind in a report about
            several kinds.
        better: Which way is better, if either is.
        kind: The kind of record it is about; it is shown if there is a run of that kind.
        column: Whether the table has a column for it: always, or only where a run has measured it.
        line: Whether it is shown at the end of every round.
        target: What was attacked, where it comes of an attack: a key of ``attacks`` in a row, which says by which one
            and with how many records.
        of_members: Whether sites compute it from their own records, so that no ε covers it.
        total: Whether it is for the whole run, not for its last round.
        promise: Whether of several runs the largest counts, not the mean.
        drawn: How it is drawn; None where it is not.
    """

    key: str
    title: str
    short: str = ""
    unit: Unit = UNKNOWN
    meaning: str = ""
    of: Mapping[Kind, tuple[str, str]] = field(default_factory=dict)
    better: Literal["lower", "higher", ""] = ""
    kind: Kind | Literal[""] = ""
    column: Literal["always", "measured", ""] = ""
    line: bool = False
    target: str = ""
    of_members: bool = False
    total: bool = False
    promise: bool = False
    drawn: Drawn | None = None

    @property
    def heading(self) -> str:
        """Its name in the head of a table, on one or two lines."""
        return self.short or self.title

    @property
    def name(self) -> str:
        """Its name within a line of text."""
        return self.heading.replace("\n", " ")

    @property
    def direction(self) -> str:
        """Which way is better, as a sentence; empty where neither is."""
        return _BETTER[self.better]

    def meant(self, kinds: Sequence[Kind]) -> str:
        """What it means in a report on such kinds of record."""
        others = [self.of[kind] for kind in kinds if kind in self.of]
        if len(kinds) == 1 and others:
            meanings = [others[0][1]]
        else:
            usual = [] if others and len(others) == len(kinds) else [self.meaning]
            meanings = usual + [f"Of {whose}: {meaning}" for whose, meaning in others]
        return " ".join(f"{meaning} {self.direction}".strip() for meaning in meanings)

    def in_a_line(self, kinds: Sequence[Kind]) -> str:
        """The first sentence of what it means there, without brackets, and which way is better."""
        of = next((self.of[kind][1] for kind in kinds if kind in self.of), "") if len(kinds) == 1 else ""
        bare = _BRACKETS.sub("", of or self.meaning)
        return f"{_END.split(bare, maxsplit=1)[0].rstrip('.')}. {self.direction}".strip()

    def words(self, values: Mapping[str, Any]) -> str:
        """The figure of a row of ``metrics.jsonl``, with its interval and the attack that it comes of, where it has
        them; a dash if the row lacks it."""
        value, n, low = (values.get(f"{self.key}{end}") for end in ("", "_n", "_low"))
        if value is None:
            return DASH
        if not math.isfinite(value):
            return nonfinite(value)
        small = [between(value, n)] if n and low is None else []
        small += [f"{decimal(low)}–{decimal(values[f'{self.key}_high'])}"] if low is not None else []
        small += [f"n = {count(n)}"] if n and low is not None else []
        small += self.attacked(values)
        small += self.guessed(values.get(f"{self.key}_guess"))
        return f"{self.unit.write(value)} ({', '.join(small)})" if small else self.unit.write(value)

    def guessed(self, level: float | None) -> list[str]:
        """What the figure comes to by guessing, in words; empty where that is not known."""
        return [] if level is None else [f"guessing {self.unit.write(level)}"]

    def attacked(self, values: Mapping[str, Any]) -> list[str]:
        """By which attack, and with how many members, where that is told, and other records; empty where it comes of
        none."""
        told = (values.get("attacks") or {}).get(self.target)
        if not told:
            return []
        one = Attack(**told)
        others = count(one.others)
        records = f"{others} others" if one.members is None else f"n = {count(one.members)} + {others}"
        return [one.attack, records + ": says little" * one.says_little]


def between(share: float, n: float) -> str:
    """The 95 % interval of a share and of how many it is one: ``0.786–0.957, n = 50``."""
    low, high = interval(share, n)
    return f"{decimal(low)}–{decimal(high)}, n = {count(n)}"


@lru_cache(maxsize=4096)
def interval(share: float, n: float) -> tuple[float, float]:
    """The 95 % interval of a share of ``n``, at least 1 (Wilson 1927).

    The mean share of several runs or sites need not be a whole number of ``n``-ths: the interval then reaches from the
    lower end for the whole number below to the upper end for the one above. The runs are taken to be about the same
    ``n`` texts, so the interval is, if anything, too wide.
    """
    from scipy.stats import binomtest

    trials = int(n)
    hits = min(max(round(share * trials, 6), 0), trials)  # a share that is a sum may be beyond its ends by its rounding
    low, high = (binomtest(whole(hits), trials).proportion_ci(method="wilson") for whole in (math.floor, math.ceil))
    return float(low.low), float(high.high)
