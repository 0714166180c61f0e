"""What a GPU is asked for while gradients are made, as far as that can be seen without one."""

from contextlib import contextmanager

import pytest
import torch

from murmura.errors import ModelError
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from murmura.training.repeatable import repeatable, repeats
from tests.training.helpers import random_state

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


def test_a_model_that_cannot_repeat_trains_all_the_same_and_the_run_says_so(monkeypatch, capsys):
    def states(input_ids):
        raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation, but you set it so")

    monkeypatch.setattr(torch, "zeros", lambda *shape, device, **options: torch.empty(*shape, **options))
    assert not repeats(states, GPU) and repeats(lambda input_ids: None, GPU)
    assert capsys.readouterr().err.count("does not repeat: cumsum_cuda_kernel") == 1
    with repeatable(GPU, strict=False):
        assert torch.is_deterministic_algorithms_warn_only_enabled()


def test_gradients_are_made_within_it(llama, monkeypatch):
    seen = []

    @contextmanager
    def noted(device, strict):
        seen.append((device, strict))
        yield

    bank = Bank(llama, LoraSpec(rank=2, alpha=4))
    bank.load([random_state(bank, 0)])
    monkeypatch.setattr("murmura.training.bank.repeatable", noted)
    with bank.trainable():
        pass
    with bank.per_example(torch.zeros(2, dtype=torch.long)):
        pass
    assert seen == [(bank.device, True)] * 2


def test_other_faults_stay_what_they_are():
    with pytest.raises(RuntimeError, match=r"^another$"), repeatable(GPU):
        raise RuntimeError("another")
