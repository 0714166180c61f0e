"""Which devices multiply bfloat16 natively, also those that nobody here has, and what an option makes of it."""

import math
import os
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from murmura import precision
from murmura.precision import (
    gpu_multiplies,
    in_bfloat16,
    is_native,
    processor_multiplies,
    products,
    slowdown,
    with_float64,
)

AVX2 = {"fma", "avx2", "avx_vnni"}
COOPER_LAKE = AVX2 | {"avx512f", "avx512bw", "avx512_vnni", "avx512_bf16"}
SAPPHIRE_RAPIDS = COOPER_LAKE | {"amx_tile", "amx_int8", "amx_bf16", "avx512_fp16"}
GRAVITON_2, GRAVITON_3 = {"asimd", "asimddp"}, {"asimd", "asimddp", "sve", "i8mm", "bf16"}


@pytest.mark.parametrize(
    ("flags", "native"),
    [
        (AVX2, False),
        (AVX2 | {"avx512f", "avx512bw", "avx512_vnni"}, False),  # Cascade Lake
        (COOPER_LAKE, True),
        (SAPPHIRE_RAPIDS, True),
        (GRAVITON_2, False),
        (GRAVITON_3, True),
        ((), False),
    ],
)
def test_a_processor_needs_instructions(flags, native):
    assert processor_multiplies(flags, {}) == native


@pytest.mark.parametrize(
    ("environment", "native"),
    [
        ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, False),
        ({"ONEDNN_MAX_CPU_ISA": "avx2_vnni_2"}, False),
        ({"ONEDNN_MAX_CPU_ISA": "SSE41"}, False),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}, False),
        ({"DNNL_MAX_CPU_ISA": "AVX2"}, False),
        ({"ONEDNN_MAX_CPU_ISA": "", "DNNL_MAX_CPU_ISA": "AVX2"}, False),
        ({"ATEN_CPU_CAPABILITY": "avx2"}, False),
        ({"ATEN_CPU_CAPABILITY": "default"}, False),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}, True),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX", "ATEN_CPU_CAPABILITY": "avx512"}, True),
        ({"ONEDNN_MAX_CPU_ISA": "DEFAULT"}, True),
        ({"MKL_CBWR": "AVX2"}, True),  # MKL multiplies no bfloat16 for PyTorch
    ],
)
def test_a_processor_that_libraries_may_not_use_all_of_has_none(environment, native):
    assert processor_multiplies(SAPPHIRE_RAPIDS, environment) == native


def test_gpus_do_from_ampere_on(monkeypatch):
    assert [gpu_multiplies(one) for one in ((6, 1), (7, 5), (8, 0), (8, 9), (9, 0), (12, 0))] == [False] * 2 + [
        True
    ] * 4
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: {"cuda:1": (7, 5)}.get(device, (9, 0)))
    assert [is_native(device) for device in ("cuda", "cuda:0", "cuda:1", "cuda:5")] == [True, True, False, True]


def test_what_a_device_without_float64_cannot_hold_is_on_the_processor():
    assert [with_float64(torch.device(one)).type for one in ("mps", "cuda", "cpu")] == ["cpu", "cuda", "cpu"]


def test_other_devices_do_not():
    assert not is_native("mps")


def test_this_processor():
    """In the settings of `make processors` that have oneDNN do with less, whatever it has, float32 is chosen."""
    capped = os.environ.get("ONEDNN_MAX_CPU_ISA") in ("SSE41", "AVX2")
    takes = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    told = Path("/proc/cpuinfo").read_text() if sys.platform == "linux" else ""
    has = any(name in told.split() for name in ("avx512_bf16", "amx_bf16", "bf16"))
    if capped or not takes or not has:
        assert not is_native("cpu") and not in_bfloat16("auto", "cpu")
    elif not {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"} & os.environ.keys():
        assert is_native("cpu") and in_bfloat16("auto", torch.device("cpu"))


def test_where_no_linux_tells_it_there_are_no_instructions(monkeypatch, tmp_path):
    monkeypatch.setattr(precision, "Path", lambda name: tmp_path / "nothing")
    assert precision._flags.__wrapped__() == frozenset()


class Model(nn.Linear):
    """One that tells its type, as those of transformers do."""

    def __init__(self, dtype):
        super().__init__(4, 4, dtype=dtype)
        self.dtype = dtype


@pytest.mark.parametrize(
    ("asked", "native", "found"),
    [
        ("float32", True, torch.float32),
        ("bfloat16", False, torch.bfloat16),
        ("auto", True, torch.bfloat16),
        ("auto", False, torch.float32),
    ],
)
def test_products_are_in_what_was_asked_for(asked, native, found, monkeypatch):
    monkeypatch.setattr(precision, "is_native", lambda device: native)
    model, x = Model(torch.float32), torch.ones(2, 4)
    with products(model, torch.device("cpu"), asked):
        assert model(x).dtype == found


def test_a_model_in_bfloat16_is_left_to_itself():
    with products(Model(torch.bfloat16), torch.device("cpu"), "bfloat16"):
        assert not torch.is_autocast_enabled("cpu")


def test_the_probe_says_how_many_times_as_long_bfloat16_takes(monkeypatch):
    assert 0 < slowdown(torch.device("cpu")) < math.inf
    took = {torch.float32: 0.5, torch.bfloat16: 7.0}
    monkeypatch.setattr(precision, "_seconds", lambda device, dtype, repeats: took[dtype])
    assert slowdown(torch.device("cpu")) == 14
