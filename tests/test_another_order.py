"""The processor that nobody has."""

from contextlib import nullcontext

import torch

from tests.another_order import UNITS, another_order


def test_products_are_off_by_roundings_and_alike_each_time():
    a, b = torch.randn(7, 33, generator=torch.Generator().manual_seed(0)), torch.ones(33, 5)
    plain = a @ b
    with another_order():
        first, again, row = a @ b, a @ b, a[:1] @ b
        shifted = torch.addmm(torch.ones(5), a, b)
    assert torch.equal(first, again)
    assert not torch.equal(first, plain) and not torch.equal(first[:1], row)
    assert not torch.equal(shifted, plain + 1)
    bound = UNITS * 2**-23 * (a.abs() @ b + 1)
    assert ((first - plain).abs() <= bound).all() and ((shifted - plain - 1).abs() <= bound).all()


def test_gradients_are_off_too():
    gradients = []
    for order in (nullcontext(), another_order()):
        x = torch.randn(4, 33, generator=torch.Generator().manual_seed(0), requires_grad=True)
        with order:
            torch.nn.functional.linear(x, torch.linspace(-1, 1, 165).view(5, 33)).sum().backward()
        gradients.append(x.grad)
    assert not torch.equal(*gradients)
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)


def test_afterwards_products_are_as_they_were():
    a, b = torch.randn(7, 33, generator=torch.Generator().manual_seed(0)), torch.ones(33, 5)
    plain = a @ b
    with another_order():
        assert not torch.equal(a @ b, plain)
    assert torch.equal(a @ b, plain)
