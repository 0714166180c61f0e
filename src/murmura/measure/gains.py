"""How many sites gain, and whether that could be chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from murmura.runs.schema import PersonalModel
from murmura.units import decimal, listing

MODELS: Mapping[str, tuple[str, str, str]] = {
    "global": ("before", "shared", "the global model, beside the one before training"),
    "own": ("shared", "personal", "a model of its own, beside the global one"),
    "both": ("before", "personal", "a model of its own, beside the one before training"),
}
"""What is compared: two fields of a ``PersonalModel``, and how that is told."""
_NAMED = 6  # most sites that are named


@dataclass(frozen=True, slots=True)
class Gains:
    """Of sites at which two models were compared, by the loss on their own records that nobody has trained on.

    Attributes:
        sites: how many were compared.
        gain: how many have the lower loss with the second model.
        pay: names of those that have the higher one.
        p: two-sided, of the sign test: so uneven, if either were as likely at each site; equal losses do not count.
        low, high: of the share of sites like these that gain, its 95 % interval (Clopper and Pearson 1934), equal ones
            counted as no gain.
    """

    sites: int
    gain: int
    pay: tuple[str, ...]
    p: float
    low: float
    high: float

    @classmethod
    def of(cls, models: Sequence[PersonalModel], first: str, second: str) -> Gains:
        """
        Args:
            models: of at least one site.
            first, second: names of losses that they have.
        """
        from scipy.stats import binomtest

        changes = {one.site: getattr(one, second) - getattr(one, first) for one in models}
        gain = sum(change < 0 for change in changes.values())
        pay = tuple(site for site, change in changes.items() if change > 0)
        moved = gain + len(pay)
        p = float(binomtest(gain, moved).pvalue) if moved else 1.0
        interval = binomtest(gain, len(models)).proportion_ci()
        return cls(len(models), gain, pay, p, float(interval.low), float(interval.high))

    @property
    def words(self) -> str:
        """``5 of 6 sites gain (sign test: p = 0.219; 35.9 to 99.6 % of such sites); heart pays``."""
        p = "p < 0.001" if self.p < 0.001 else f"p = {decimal(self.p)}"
        told = f"{self.gain} of {self.sites} sites gain (sign test: {p}; "
        told += f"{100 * self.low:.1f} to {100 * self.high:.1f} % of such sites)"
        if not self.pay:
            return told
        few = listing(list(self.pay)) if len(self.pay) <= _NAMED else f"{len(self.pay)} sites"
        return f"{told}; {few} {'pays' if len(self.pay) == 1 else 'pay'}"


def summary(models: Sequence[PersonalModel]) -> list[str]:
    """Of each comparison how many sites gain, in a sentence."""
    return [f"With {what}: {Gains.of(models, *pair).words}." for *pair, what in MODELS.values()]
