from __future__ import annotations

import json

import torch

from murmura.runs import RunFolder
from murmura.runs.machine import environment, peak_memory


def test_environment(tmp_path):
    found = environment(torch.device("cpu"), "hub a/b@1", 1000, 10, ("bfloat16", "float32"))
    assert found.torch == torch.__version__
    assert found.device.startswith("cpu: ")
    assert (found.model, found.parameters, found.trained) == ("hub a/b@1", 1000, 10)
    assert (found.training_precision, found.writing_precision) == ("bfloat16", "float32")
    assert {"torch", "transformers", "peft"} <= found.packages.keys()
    RunFolder(tmp_path).write_environment(found)
    assert json.loads((tmp_path / "environment.json").read_text())["packages"] == found.packages


def test_peak_memory_is_in_bytes():
    assert 50 * 2**20 < peak_memory(torch.device("cpu")) < 2**40
