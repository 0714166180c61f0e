"""Gradients on a GPU that are the same each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from murmura.errors import ModelError
from murmura.overlapping import Overlapping
from murmura.progress import say

_REFUSED = "does not have a deterministic implementation"  # what torch says of an operation


def _ordered() -> Callable[[], None]:
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    flags: Any = torch.utils.deterministic
    filled = flags.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    flags.fill_uninitialized_memory = False  # it is for finding faults, and takes time

    def restore() -> None:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        flags.fill_uninitialized_memory = filled

    return restore


def _strictly() -> Callable[[], None]:
    torch.use_deterministic_algorithms(True)
    return partial(torch.use_deterministic_algorithms, True, warn_only=True)


_ORDERED, _STRICT = Overlapping(_ordered), Overlapping(_strictly)  # the second one within the first alone


@contextmanager
def repeatable(device: torch.device, strict: bool = True) -> Iterator[None]:
    """While the block runs, a GPU adds in one order. Otherwise it is the one in which its threads finish, where rows of
    several slots are mixed and in attention's backward pass. On a CPU the order never varies.

    Args:
        strict: of operations that know no such order, none is let through, as attention's backward pass needs it; nor
            of blocks in other threads meanwhile, whose runs fail there and do not have these silently not repeat.

    Raises:
        ModelError: one was taken.
    """
    if device.type != "cuda":
        yield
        return
    try:
        with _ORDERED.block(), _STRICT.block() if strict else nullcontext():
            yield
    except RuntimeError as error:
        if _REFUSED not in str(error):
            raise
        what = f"training it on a GPU does not repeat: {str(error).partition(',')[0]}"
        elsewhere = "" if strict else ", or in a process of its own: another run of this one has to repeat"
        raise ModelError(what, fix=f"Train it on a CPU (model.device = 'cpu'){elsewhere}.") from error


@torch.no_grad()
def repeats(model: Any, device: torch.device) -> bool:
    """Whether all that a model does with two tokens can be done in one order; says so where it cannot.

    Models that sum up states have no such way on a GPU, unless kernels of their own are installed.
    """
    try:
        with repeatable(device):
            if device.type == "cuda":
                model(input_ids=torch.zeros(1, 2, dtype=torch.long, device=device))
    except ModelError as error:
        say(f"{error.what}. Runs with one seed will differ in the last digits")
        return False
    return True
