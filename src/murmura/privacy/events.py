"""Events of ``dp_accounting``: what is in them, the same without some of it, and accountants of them."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from murmura.errors import PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def samplings() -> tuple[Any, ...]:
    """The kinds of events that sample, Poisson and of fixed size."""
    import dp_accounting as dp

    return dp.PoissonSampledDpEvent, dp.SampledWithoutReplacementDpEvent


def inverse_variance(event: Any) -> float | None:
    """1/z² of the one Gaussian release that a composition of Gaussian releases equals; of anything else None."""
    import dp_accounting as dp

    if isinstance(event, dp.NoOpDpEvent):
        return 0.0
    if isinstance(event, dp.NonPrivateDpEvent):
        return math.inf
    if isinstance(event, dp.GaussianDpEvent):
        try:
            return event.noise_multiplier**-2
        except (ZeroDivisionError, OverflowError):  # none, or next to none
            return math.inf
    if isinstance(event, dp.SelfComposedDpEvent):
        one = inverse_variance(event.event)
        return None if one is None else event.count * one
    if isinstance(event, dp.ComposedDpEvent):
        parts = [inverse_variance(part) for part in event.events]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None
    return None


def has_mixtures(event: DpEvent) -> bool:
    """Whether a part of the event is a mixture of Gaussians, which privacy loss distributions alone account for."""
    import dp_accounting as dp

    return _has(dp.dp_event.MixtureOfGaussiansDpEvent, event)


def has_integer_noise(event: DpEvent) -> bool:
    """Whether a part of the event has integer noise, which Rényi divergences alone account for."""
    from murmura.privacy.renyi import IntegerNoiseDpEvent

    return _has(IntegerNoiseDpEvent, event)


def _has(kind: Any, event: DpEvent) -> bool:
    import dp_accounting as dp

    def bare(part: Any) -> DpEvent:
        return dp.NoOpDpEvent() if isinstance(part, kind) else part

    return changed(event, bare) != event


def without(samplings: tuple[Any, ...], event: DpEvent) -> DpEvent:
    """The event for somebody who knows all samples of these kinds."""

    def change(part: Any) -> DpEvent:
        return part.event if isinstance(part, samplings) else part

    return changed(event, change)


def unsampled(event: DpEvent) -> DpEvent:
    """The event for somebody who knows every sample: no sampling is counted, which is sound."""
    return without(samplings(), event)


def changed(event: Any, change: Callable[[Any], DpEvent]) -> DpEvent:
    """The event with ``change`` applied to every part of it, the inner ones first."""
    import dp_accounting as dp

    if isinstance(event, dp.ComposedDpEvent):
        return change(dp.ComposedDpEvent([changed(part, change) for part in event.events]))
    if isinstance(event, dp.SelfComposedDpEvent):
        return change(dp.SelfComposedDpEvent(changed(event.event, change), event.count))
    if isinstance(event, dp.dp_event.RepeatAndSelectDpEvent):
        return change(dp.dp_event.RepeatAndSelectDpEvent(changed(event.event, change), event.mean, event.shape))
    if isinstance(event, dp.PoissonSampledDpEvent):
        return change(dp.PoissonSampledDpEvent(event.sampling_probability, changed(event.event, change)))
    if isinstance(event, dp.SampledWithoutReplacementDpEvent):
        inner = changed(event.event, change)
        return change(dp.SampledWithoutReplacementDpEvent(event.source_dataset_size, event.sample_size, inner))
    return change(event)


def compose(accountant: Any, event: DpEvent) -> Any:
    """The accountant of ``dp_accounting`` with an event in it, to be asked for ε and δ.

    Raises:
        PrivacyError: it does not know the event.
    """
    import dp_accounting as dp

    try:
        return accountant.compose(event)
    except dp.UnsupportedEventError as error:
        raise PrivacyError("this accountant does not support such a release", fix="Use another accountant.") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without the libraries' remarks: on orders at which a series does not converge, which are left out, and on numbers
    that overflow on the way. Either only raises ε."""
    logger = logging.getLogger("absl")

    def is_error(record: logging.LogRecord) -> bool:  # one for each entry, since it nests
        return record.levelno >= logging.ERROR

    logger.addFilter(is_error)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        logger.removeFilter(is_error)
