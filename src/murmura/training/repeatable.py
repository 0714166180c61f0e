"""Gradients on a GPU that are the same each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from murmura.errors import ModelError


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """While the block runs, a GPU adds in an order that does not depend on which of its threads is first, as it else
    does where rows of several slots are mixed and in attention's backward pass. A CPU always does.

    Raises:
        ModelError: the model takes an operation that has no such order.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    flags: Any = torch.utils.deterministic
    filled = flags.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    flags.fill_uninitialized_memory = False  # it is for finding faults, and takes time
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        what = f"training it on a GPU does not repeat: {str(error).partition(',')[0]}"
        raise ModelError(what, fix="Train it on a CPU: model.device = 'cpu'.") from error
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        flags.fill_uninitialized_memory = filled
