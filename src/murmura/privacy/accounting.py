"""From an accounting event to ε.

Three accountants, each of which gives a valid upper bound on ε, so the least of them is one too, and counts:

* ``exact``: the closed form for Gaussian releases without sampling (Balle & Wang 2018, eq. 6);
* ``pld``: privacy loss distributions, composed numerically, rounded up (Koskela et al. 2020; Doroshenko et al. 2022);
* ``rdp``: Rényi divergences (``privacy.renyi``), looser, and what most papers print. It alone knows integer noise
  (``privacy.mechanisms``).

A sampling scheme that an accountant does not support under an adjacency is ignored, which is sound: knowing the sample
can only help an adversary. The result says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from murmura.errors import PrivacyError, nearest
from murmura.privacy.events import (
    changed,
    compose,
    has_integer_noise,
    inverse_variance,
    quiet,
    samplings,
    unsampled,
    without,
)

if TYPE_CHECKING:
    from dp_accounting import DpEvent

ACCOUNTANTS = ("rdp", "pld", "exact")
_BOUNDLESS = "too little noise for a bound to be computed"
_NOTE = "without amplification by sampling: {} does not support it under {}"

_GRID = 1e-4  # of a PLD, for an ε of about 2; the (upward) error is then some 1e-5 of ε


@dataclass(frozen=True)
class Epsilon:
    """An ε, and what it means.

    Args:
        value: an upper bound of ε; infinite without noise, or with next to none.
        accountant: ``exact``, ``pld`` or ``rdp``.
        delta: δ that belongs to it.
        adjacency: ``zero-out`` or ``replace-one``.
        note: what the accountant had to leave out, or why it has no bound, if anything.
    """

    value: float
    accountant: str
    delta: float
    adjacency: str
    note: str = ""


def epsilon(event: DpEvent, delta: float, adjacency: str, accountant: str = "best") -> Epsilon:
    """ε of an event at δ.

    Args:
        event: Gaussian releases, Poisson-sampled or sampled without replacement, releases with integer noise, and
            compositions of these. The multiplier of a Gaussian, like the sensitivity of integer noise, is relative to
            the distance between two neighbours' sums, whatever the adjacency.
        accountant: ``rdp``, ``pld``, ``exact`` or ``best``, the least of all bounds.

    Raises:
        PrivacyError: δ is not in (0, 1), or the accountant is unknown or does not know the event.
    """
    if not 0 < delta < 1:
        raise PrivacyError(f"δ = {delta}", fix="δ lies between 0 and 1; less than 1/number of units is usual.")
    if accountant == "best":
        return _best(event, delta, adjacency)
    if accountant not in ACCOUNTANTS:
        raise PrivacyError(f"accountant '{accountant}' is unknown", fix=nearest(accountant, (*ACCOUNTANTS, "best")))
    return _epsilon(_Same.of(event), delta, adjacency, accountant)


@dataclass(frozen=True)
class _Same:
    """An event with a hash, which those that hold lists have not."""

    text: str
    event: DpEvent = field(hash=False)

    @classmethod
    def of(cls, event: DpEvent) -> _Same:
        return cls(repr(event), event)


@lru_cache(maxsize=1024)
def _epsilon(same: _Same, delta: float, adjacency: str, accountant: str) -> Epsilon:
    """By one accountant. An ε may take seconds, and sites with equally many records have equal ledgers."""
    kept = without(_unknown_samplings(accountant, adjacency, same.event), same.event)
    note = "" if kept == same.event else _NOTE.format(accountant.upper(), adjacency)
    try:
        with quiet():
            value = {"exact": _exact, "pld": _pld, "rdp": _rdp}[accountant](kept, delta, adjacency)
    except (OverflowError, ZeroDivisionError, RecursionError):  # the last where a mixture has far too much noise
        value, note = math.inf, _BOUNDLESS
    return Epsilon(float(value), accountant, delta, adjacency, note)


def profile(
    event: DpEvent, adjacency: str, deltas: Sequence[float], epsilons: Sequence[float]
) -> tuple[list[float], list[float]]:
    """ε at each δ, and δ at each ε: each by the accountant that is tightest there.

    Args:
        deltas: in (0, 1).
        epsilons: at least 0.

    Raises:
        PrivacyError: no accountant knows the event.
    """
    bounds, shares = _tightest(_Same.of(event), adjacency, tuple(deltas), tuple(epsilons))
    return list(bounds), list(shares)


@lru_cache(maxsize=256)
def _tightest(
    same: _Same, adjacency: str, deltas: tuple[float, ...], epsilons: tuple[float, ...]
) -> tuple[list[float], list[float]]:
    found = []
    # The closed form is the least of what there is, where there is one: of Gaussian noise without sampling.
    for name in ACCOUNTANTS if inverse_variance(same.event) is None else ("exact",):
        kept = without(_unknown_samplings(name, adjacency, same.event), same.event)
        try:
            with quiet():
                found.append(_profile(name, kept, adjacency, deltas, epsilons))
        except (OverflowError, ZeroDivisionError):
            found.append(([math.inf] * len(deltas), [1.0] * len(epsilons)))
        except PrivacyError:
            continue
    if not found:
        raise PrivacyError("no accountant supports such a release")
    bounds, shares = ([min(one) for one in zip(*part, strict=True)] for part in zip(*found, strict=True))
    return bounds, [min(1.0, share) for share in shares]


def _profile(
    name: str, event: DpEvent, adjacency: str, deltas: Sequence[float], epsilons: Sequence[float]
) -> tuple[list[float], list[float]]:
    if name == "exact":
        return [_exact(event, delta, adjacency) for delta in deltas], [_exact_delta(event, one) for one in epsilons]
    if name == "rdp":
        from murmura.privacy import renyi

        accountant = renyi.accountant(event)
        if not (accountant.rdp > 0).all():
            raise OverflowError  # rounded to nothing, from which dp_accounting would make a δ of 0
    else:
        accountant = _losses(event, min(deltas, default=1e-5), adjacency)
    try:
        bounds = [float(accountant.get_epsilon(one)) for one in deltas]
        return bounds, [float(accountant.get_delta(one)) for one in epsilons]
    except ValueError as error:  # a logarithm of what was rounded to nothing
        raise OverflowError from error


def _best(event: DpEvent, delta: float, adjacency: str) -> Epsilon:
    """The least bound. The closed form is for Gaussian releases, of which it is the least, or for sampling ignored."""
    if has_integer_noise(event):
        return epsilon(event, delta, adjacency, "rdp")
    kept = unsampled(event)
    best = epsilon(kept, delta, adjacency, "exact")
    if kept != event:
        best = replace(best, note=_NOTE.format("the closed form", adjacency))
    for name in knowing(event, adjacency):
        best = min(best, epsilon(event, delta, adjacency, name), key=lambda one: one.value)
    return best


def knowing(event: DpEvent, adjacency: str) -> list[str]:
    """Accountants that know how this event samples, or how parts of it do; none where it does not, since then the
    closed form is the least."""
    bare = unsampled(event)
    return [name for name in ("pld", "rdp") if without(_unknown_samplings(name, adjacency, event), event) != bare]


def _unknown_samplings(accountant: str, adjacency: str, event: DpEvent) -> tuple[Any, ...]:
    """Kinds of sampling in an event that an accountant has no bound for under an adjacency.

    A unit that is blanked is replaced by one that contributes nothing. So of batches of fixed size the bound for a
    replaced unit counts under either adjacency; but no accountant composes those with Poisson samples.
    """
    poisson, fixed = samplings()
    if accountant == "rdp" and adjacency == "replace-one":
        return (poisson,)
    if accountant == "rdp":
        return (fixed,) if without((poisson,), event) != event else ()
    return (fixed,) if accountant == "pld" else ()


def _exact(event: DpEvent, delta: float, adjacency: str) -> float:
    import dp_accounting as dp

    inverse = inverse_variance(event)
    if inverse is None:
        raise _no_closed_form(event)
    if inverse == 0:
        return 0.0
    return dp.get_epsilon_gaussian(inverse**-0.5, delta)


def _no_closed_form(event: DpEvent) -> PrivacyError:
    if has_integer_noise(event):
        return PrivacyError("there is no closed form for integer noise", fix="Use the accountant 'rdp'.")
    return PrivacyError("there is no closed form for sampled steps", fix="Use the accountant 'pld'.")


def _exact_delta(event: DpEvent, epsilon: float) -> float:
    """δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), with μ = 1/z (Balle and Wang 2018, Theorem 8)."""
    from scipy.special import log_ndtr

    inverse = inverse_variance(event)
    if inverse is None:
        raise _no_closed_form(event)
    if inverse in (0.0, math.inf):
        return 1.0 if inverse else 0.0
    mu = math.sqrt(inverse)
    first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(math.exp(first) * -math.expm1(second - first))


def _rdp(event: DpEvent, delta: float, adjacency: str) -> float:
    return _renyi(_Same.of(event), delta)


@lru_cache(maxsize=1024)
def _renyi(same: _Same, delta: float) -> float:
    """ε by Rényi divergences, by which the grid of privacy loss distributions goes too."""
    from murmura.privacy import renyi

    return renyi.epsilon(same.event, delta)


def _pld(event: DpEvent, delta: float, adjacency: str) -> float:
    if inverse_variance(event) == math.inf:
        return math.inf
    return float(_losses(event, delta, adjacency).get_epsilon(delta))


def _losses(event: DpEvent, delta: float, adjacency: str) -> Any:
    """The accountant that has composed the event's privacy loss distributions, on a grid for its ε at δ."""
    import dp_accounting as dp

    from murmura.privacy import loss
    from murmura.privacy.renyi import rough_epsilon

    rough = rough_epsilon(event, delta, lambda one, at: _rdp(one, at, adjacency))
    if rough == math.inf:
        raise OverflowError
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    if inverse_variance(event) is None and adjacency == "replace-one":
        # Here dp_accounting wants the multiplier relative to how far one unit's presence moves the sum: half as far.
        relation = dp.NeighboringRelation.REPLACE_ONE
        event = changed(event, _doubled)
    # A grid as fine as ε is small, and no finer: the distribution of an ε of hundreds would fill the memory.
    return compose(loss.LossAccountant(relation, _GRID * max(rough / 2, 0.1)), event)


def _doubled(part: Any) -> DpEvent:
    import dp_accounting as dp

    return dp.GaussianDpEvent(2 * part.noise_multiplier) if isinstance(part, dp.GaussianDpEvent) else part
