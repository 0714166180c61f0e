import ctypes
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from murmura.runs import RunFolder
from murmura.runs.machine import environment, peak_memory, return_freed_memory
from murmura.runs.names import ENVIRONMENT


def test_environment(tmp_path):
    found = environment(torch.device("cpu"), "hub a/b@1", 1000, 10, ("bfloat16", "float32"))
    assert found.torch == torch.__version__
    assert found.device.startswith("cpu: ")
    assert (found.model, found.parameters, found.trained) == ("hub a/b@1", 1000, 10)
    assert (found.training_precision, found.writing_precision) == ("bfloat16", "float32")
    assert {"torch", "transformers", "peft"} <= found.packages.keys()
    RunFolder(tmp_path).write(ENVIRONMENT, found)
    assert json.loads((tmp_path / "environment.json").read_text())["packages"] == found.packages


def test_peak_memory_is_in_bytes():
    assert 50 * 2**20 < peak_memory(torch.device("cpu")) < 2**40


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what is mapped from files")
def test_what_is_mapped_from_files_is_told_apart_from_what_a_process_has_for_itself(tmp_path):
    """As weights are that several processes read from one file."""
    cpu, size = torch.device("cpu"), 64 * 2**20
    np.ones(size, np.uint8).tofile(tmp_path / "weights")
    whole, own = peak_memory(cpu), peak_memory(cpu, mapped=False)
    weights = np.memmap(tmp_path / "weights", np.uint8, mode="r")
    assert weights.sum(dtype=np.int64) == size  # in memory by now
    assert peak_memory(cpu, mapped=False) < own + size // 4
    assert peak_memory(cpu) - peak_memory(cpu, mapped=False) > whole - own + size // 2


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc keeps what is freed")
def test_what_is_freed_between_other_things_is_returned():
    blocks = [np.ones(100_000, np.uint8) for _ in range(2000)]
    kept = blocks[::100]  # so that what is freed does not lie at the end, from where it would be returned anyway
    held = _resident()
    blocks.clear()
    return_freed_memory()
    assert len(kept) == 20 and held - _resident() > 150e6


def _resident():
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) * 1024
