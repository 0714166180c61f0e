"""A processor that nobody has: its matrix products are off as another order of their sums could make them.

What passes on one processor may miss its tolerance on the next, where sums are made in another order. This plugin moves
each element of a float32 product A·B by at most ``UNITS`` roundings of |A|·|B|, as an order of its sum may. By how much
depends on the value and the factors' shapes: the same product comes out the same each time, and a row comes out
differently in a larger batch, as with real libraries.

    python -m pytest -p tests.another_order tests/training
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

UNITS = 2.0
ATEN = torch.ops.aten
PRODUCTS = {ATEN.mm.default: 0, ATEN.bmm.default: 0, ATEN.addmm.default: 1, ATEN.baddbmm.default: 1}
"""By operator: where its two factors begin among its arguments."""
ATTENTION = ATEN._scaled_dot_product_flash_attention_for_cpu.default


class AnotherOrder(TorchDispatchMode):
    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = operator(*args, **kwargs)
        if operator in PRODUCTS and result.dtype == torch.float32:
            terms = {name: abs(value) for name, value in kwargs.items() if name in ("alpha", "beta")}
            size = operator(*(tensor.abs() for tensor in args), **terms)
            factors = args[PRODUCTS[operator] :]
            return moved(result, size, [length for factor in factors for length in factor.shape])
        if operator is ATTENTION and result[0].dtype == torch.float32:
            return moved(result[0], result[0].abs(), args[0].shape), *result[1:]
        return result


def moved(result, size, shape):
    """``result`` with errors of up to so many roundings of ``size``."""
    bits = result.contiguous().view(torch.int32)
    for length in shape:
        bits = (bits ^ (bits >> 15)) * 0x2C1B3C6D + length
    error = ((bits >> 8) & 0xFFFF).float() / 0x7FFF - 1
    return result + UNITS * 2.0**-24 * size * error.view_as(result)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    with AnotherOrder():
        return (yield)
