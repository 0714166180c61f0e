import pytest
import torch

from murmura.finite import is_finite


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_one_odd_number_is_found_wherever_it_is(dtype, odd):
    for shape in [(1,), (67,), (5, 3, 2)]:
        tensor = torch.linspace(-3, 3, steps=torch.Size(shape).numel()).to(dtype).reshape(shape)
        assert is_finite(tensor)
        for place in range(tensor.numel()):
            one = tensor.clone()
            one.view(-1)[place] = odd
            assert not is_finite(one)
            assert not is_finite(torch.stack([one, one]).transpose(0, -1))  # not contiguous


def test_the_largest_numbers_are_finite_and_so_is_nothing():
    largest = torch.finfo(torch.float32).max
    assert is_finite(torch.tensor([largest, largest, -largest]))  # whose sum is not
    assert is_finite(torch.zeros(0, 3)) and is_finite(torch.tensor(2.0)) and is_finite(torch.tensor([2, 3]))
