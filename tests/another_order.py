"""A processor that nobody has: its matrix products are off as another order of their sums could make them.

What passes on one processor may miss its tolerance on the next, where sums are made in another order. This plugin moves
each element of a float32 product A·B by at most ``UNITS`` roundings of |A|·|B|, as an order of its sum may. By how much
depends on the value and the factors' shapes: the same product comes out the same each time, and a row comes out
differently in a larger batch, as with real libraries.

    python -m pytest -p tests.another_order tests/training
"""

import warnings
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import library

UNITS = 2.0
ATEN = torch.ops.aten
PRODUCTS = {ATEN.mm.default: 0, ATEN.bmm.default: 0, ATEN.addmm.default: 1, ATEN.baddbmm.default: 1}
"""By operator: where its two factors begin among its arguments."""
ATTENTION = ATEN._scaled_dot_product_flash_attention_for_cpu.default


def of_products(operator, first):
    """What takes the place of an operator on the CPU; the rest of torch runs as it does."""
    own = library.get_kernel(operator, "CPU")

    def product(keys, *args, **kwargs):
        result = own.call_boxed(keys, *args, **kwargs)
        if result.dtype != torch.float32:
            return result
        terms = {name: abs(value) for name, value in kwargs.items() if name in ("alpha", "beta")}
        size = own.call_boxed(keys, *(tensor.abs() for tensor in args), **terms)
        return moved(result, size, [length for factor in args[first:] for length in factor.shape])

    return product


def of_attention(operator):
    own = library.get_kernel(operator, "CPU")

    def attention(keys, *args, **kwargs):
        result = own.call_boxed(keys, *args, **kwargs)
        if result[0].dtype != torch.float32:
            return result
        return moved(result[0], result[0].abs(), args[0].shape), *result[1:]

    return attention


def moved(result, size, shape):
    """``result`` with errors of up to so many roundings of ``size``; by NumPy, whose operations begin sooner."""
    of_shape = 0
    for length in shape:
        of_shape = (31 * of_shape + length) % 2**31
    bits = np.ascontiguousarray(result.numpy()).view(np.int32)
    bits = (bits ^ (bits >> 15)) * np.int32(0x2C1B3C6D) + np.int32(of_shape)
    bits = (bits ^ (bits >> 12)) * np.int32(0x297A2D39)
    error = (bits >> 8 & 0xFFFF).astype(np.float32) * np.float32(2 / 0xFFFF) - np.float32(1)
    return torch.addcmul(result, size, torch.from_numpy(error), value=UNITS * 2.0**-24)


@contextmanager
def another_order():
    """Products in this process are off; its other operators are as they were, and so as fast."""
    replaced = {operator: of_products(operator, first) for operator, first in PRODUCTS.items()}
    replaced[ATTENTION] = of_attention(ATTENTION)
    replacing = library.Library("aten", "IMPL")
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # that operators are replaced
        for operator, function in replaced.items():
            replacing.impl(operator, function, "CPU", with_keyset=True, allow_override=True)
    try:
        yield
    finally:
        replacing._destroy()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    with another_order():
        return (yield)
