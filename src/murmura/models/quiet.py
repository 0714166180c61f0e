"""Less noise from the libraries below: their bars and advice, and their multi-line errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from murmura.overlapping import Overlapping


def _quietened() -> Callable[[], None]:
    from transformers.utils import logging

    restoring = ExitStack()
    restoring.callback(logging.set_verbosity, logging.get_verbosity())
    if logging.is_progress_bar_enabled():
        restoring.callback(logging.enable_progress_bar)
    restoring.enter_context(warnings.catch_warnings())
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")  # of its own names
    return restoring.close


_QUIET = Overlapping(_quietened)


def quiet() -> AbstractContextManager[None]:
    """No bars and advice from transformers: loading and saving take seconds, and what matters we check ourselves."""
    return _QUIET.block()


def line(error: object) -> str:
    """The first line of a message, cut where it gets long."""
    text = str(error).strip().partition("\n")[0].strip() or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
