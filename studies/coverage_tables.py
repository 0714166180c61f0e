"""What the study of coverage has found, kept on disk as it comes, and its tables in Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from murmura import atomic
from murmura.units import DASH, count, decimal, signed
from runs import pipes

PRIVATE = ("code", "math", "finance", "medical")
ORDER = ("local", "LESS", "random", "direct", "FedDCA*", "FedDCA")
"""As the paper's table 3 ranks strategies, ascending."""
FURTHER = (
    ("direct", "FedDCA"),
    ("FedDCA*, authors' projector", "FedDCA*"),
    ("FedDCA*", "FedDCA*, perfect projector"),
    ("FedDCA*, perfect projector", "FedDCA"),
    ("largest cluster", "FedDCA"),
    ("facility location among centres", "FedDCA"),
    ("FedDCA", "coverage"),
    ("FedDCA", "FedDCA, no record twice"),
    ("FedDCA, no record twice", "coverage, no record twice"),
    ("FedDCA", "random in the domain"),
)
"""What else is compared, the lower one first."""
Settings = Mapping[str, Mapping[str, Any]]
"""By private domain, what makes its setting other than the usual one."""


@dataclass(frozen=True)
class Found:
    """What one strategy came to, in one setting with one seed.

    Args:
        private: The sites' domain, or how a mixture of all domains was dealt out.
        options: What makes the setting other than the usual one.
        seed: Of all that is drawn.
        arm: The strategy.
        coverage: Of each domain that was measured.
        right: The share of what was fetched that is of the private domain; None where nothing or no single domain.
        distinct: How many different records were fetched.
    """

    private: str
    options: Mapping[str, Any]
    seed: int
    arm: str
    coverage: Mapping[str, float]
    right: float | None
    distinct: int

    @property
    def key(self) -> str:
        """What it is known by."""
        return key(self.private, self.options, self.seed, self.arm)


def key(private: str, options: Mapping[str, Any], seed: int, arm: str) -> str:
    """One name for one cell of the study."""
    return json.dumps([private, options, seed, arm], sort_keys=True)


class Results:
    """All that was found so far, in one JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        self._found = {one.key: one for one in (Found(**row) for row in rows)}

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def keep(self, found: Iterable[Found]) -> None:
        """Add some, on the disk too."""
        self._found |= {one.key: one for one in found}
        atomic.write(self._path, json.dumps([vars(one) for one in self._found.values()], indent=1).encode())

    def values(
        self,
        private: str,
        arm: str,
        seeds: Sequence[int],
        options: Mapping[str, Any] | None = None,
        of: Callable[[Found], float | None] | None = None,
    ) -> list[float]:
        """A figure for each seed that has it; by default the coverage of the private domain."""
        of = of or (lambda one: one.coverage[private])
        found = [self._found.get(key(private, options or {}, seed, arm)) for seed in seeds]
        return [value for one in found if one is not None and (value := of(one)) is not None]


def estimate(values: Sequence[float], words: Callable[[float], str] = decimal) -> str:
    """A mean and its standard error."""
    if len(values) < 2:
        return words(values[0]) if values else DASH
    return f"{words(fmean(values))} ± {decimal(stdev(values) / math.sqrt(len(values)), 4)}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; lines and columns without a figure are left out."""
    told = [line for line in lines if any(cell != DASH for cell in line[1:])]
    kept = [0, *(place for place in range(1, len(head)) if any(line[place] != DASH for line in told))]
    first, *rest = ([line[place] for place in kept] for line in (head, *told))
    return pipes(first, rest)


def coverages(results: Results, arms: Sequence[str], seeds: Sequence[int], settings: Settings | None = None) -> str:
    """Coverage of each private domain in its setting, the usual one if not given."""
    settings, lines = settings or {}, []
    for arm in arms:
        own = [results.values(private, arm, seeds, settings.get(private)) for private in PRIVATE]
        by_seed = [fmean(values) for values in zip(*own, strict=True)] if len(set(map(len, own))) == 1 else []
        lines.append([arm, *map(estimate, own), estimate(by_seed)])
    return table(["coverage", *PRIVATE, "mean"], lines)


def fetched(results: Results, arms: Sequence[str], seeds: Sequence[int], settings: Settings | None = None) -> str:
    """What was fetched in each domain's setting."""
    settings, lines = settings or {}, []
    for arm in arms:
        cells = []
        for private in PRIVATE:
            right = results.values(private, arm, seeds, settings.get(private), lambda one: one.right)
            distinct = results.values(private, arm, seeds, settings.get(private), lambda one: one.distinct)
            cells.append(f"{100 * fmean(right):.1f}%, {count(round(fmean(distinct)))}" if right else DASH)
        lines.append([arm, *cells])
    return table(["of the domain, different records", *PRIVATE], lines)


def orderings(
    results: Results, pairs: Iterable[tuple[str, str]], seeds: Sequence[int], settings: Settings | None = None
) -> str:
    """By how much one strategy covers more than another one, on the same private records."""
    settings, lines = settings or {}, []
    for lower, higher in pairs:
        cells, every = [], []
        for private in PRIVATE:
            own = settings.get(private)
            both = [[results.values(private, arm, [seed], own) for arm in (higher, lower)] for seed in seeds]
            differences = [one[0] - other[0] for one, other in both if one and other]
            every += differences
            cells.append(estimate(differences, lambda value: signed(value, 4)))
        held = f"{sum(value > 0 for value in every)} of {len(every)}" if every else DASH
        lines.append([f"{higher} − {lower}", *cells, held])
    return table(["difference", *PRIVATE, "above 0"], lines)


def papers_order(results: Results, seeds: Sequence[int], settings: Settings | None = None) -> list[tuple[str, str]]:
    """Each two strategies that follow one another in the paper's order, among those that there are."""
    own = settings or {}
    there = [arm for arm in ORDER if any(results.values(of, arm, seeds, own.get(of)) for of in PRIVATE)]
    return list(pairwise(there))


def curve(
    results: Results,
    name: str,
    values: Sequence[Any],
    usual: Any,
    arms: Sequence[str],
    seeds: Sequence[int],
    words: Callable[[Any], str] = str,
) -> str:
    """Coverage by one option, all else as usual; for each domain and strategy a line, if something else was tried."""
    lines = []
    for private in PRIVATE:
        for arm in arms:
            options = [{} if value == usual else {name: value} for value in values]
            found = [results.values(private, arm, seeds, own) for own in options]
            if any(own and one for own, one in zip(options, found, strict=True)):
                lines.append([f"{private}, {arm}", *map(estimate, found)])
    return table([name, *map(words, values)], lines)


def mixtures(results: Results, ways: Sequence[str], arms: Sequence[str], seeds: Sequence[int]) -> str:
    """Coverage of each domain where sites' records are of all domains."""
    lines = []
    for arm in arms:
        for way in ways:
            found = [
                results.values(way, arm, seeds, of=lambda one, domain=domain: one.coverage[domain])
                for domain in PRIVATE
            ]
            lines.append([f"{arm}, {way}", *map(estimate, found)])
    return table(["coverage of", *PRIVATE], lines)
