"""What a GPU is asked for while gradients are made, as far as that can be seen without one."""

import pytest
import torch

from murmura.errors import ModelError
from murmura.training.repeatable import repeatable

GPU = torch.device("cuda")


def test_a_gpu_adds_in_one_order_within_the_block_alone():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with repeatable(GPU):
            assert torch.are_deterministic_algorithms_enabled()
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
            assert not torch.utils.deterministic.fill_uninitialized_memory
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.utils.deterministic.fill_uninitialized_memory
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_cpu_is_left_alone():
    with repeatable(torch.device("cpu")):
        assert not torch.are_deterministic_algorithms_enabled()


def test_what_a_gpu_can_do_in_no_one_order_is_named():
    told = "cumsum_cuda_kernel does not have a deterministic implementation, but you set it so"
    with pytest.raises(ModelError, match=r"does not repeat: cumsum_\w+ does not have .*n\."), repeatable(GPU):
        raise RuntimeError(told)
    assert not torch.are_deterministic_algorithms_enabled()


def test_other_faults_stay_what_they_are():
    with pytest.raises(RuntimeError, match=r"^another$"), repeatable(GPU):
        raise RuntimeError("another")
