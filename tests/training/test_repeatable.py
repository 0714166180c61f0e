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


@pytest.mark.parametrize("first", [True, False], ids=["strict first", "strict second"])
@pytest.mark.parametrize("leaves", [0, 1], ids=["first leaves first", "second leaves first"])
def test_of_blocks_that_overlap_a_strict_one_is_strict_and_nothing_stays(first, leaves):
    """As in two threads: what each changes is the whole process's."""

    def mode():
        return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

    filled = torch.utils.deterministic.fill_uninitialized_memory
    kinds = [first, not first]
    blocks = [repeatable(GPU, strict=strict) for strict in kinds]
    try:
        for block in blocks:
            block.__enter__()
        assert mode() == (True, False)
        blocks.pop(leaves).__exit__(None, None, None)
        assert mode() == (True, not kinds[1 - leaves])
        blocks.pop().__exit__(None, None, None)
        assert mode() == (False, False) and torch.utils.deterministic.fill_uninitialized_memory == filled
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_run_that_may_not_repeat_is_told_that_another_one_has_to():
    fault = RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation, but you set it so")
    with pytest.raises(ModelError) as error, repeatable(GPU), repeatable(GPU, strict=False):
        raise fault
    assert "a process of its own" in error.value.fix


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
