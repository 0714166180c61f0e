"""Less noise from the libraries below: their bars and advice, and their multi-line errors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """No bars and advice from transformers: loading and saving take seconds, and what matters we check ourselves."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")  # of its own names
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def line(error: object) -> str:
    """The first line of a message, cut where it gets long."""
    text = str(error).strip().partition("\n")[0].strip() or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
