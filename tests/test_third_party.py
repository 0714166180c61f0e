"""What is settled before torch loads."""

import os
import subprocess
import sys

import pytest

from murmura.third_party import SETTINGS, settle


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.delenv("OMP_WAIT_POLICY")
    settle()
    assert os.environ["MKL_CBWR"] == "COMPATIBLE"
    assert os.environ["OMP_WAIT_POLICY"] == SETTINGS["OMP_WAIT_POLICY"]


PROGRAM = """
import os, sys
from murmura.cli import app
app(["models", "list"], standalone_mode=False)
assert "torch" not in sys.modules
import torch
torch.ones(3, 5) @ torch.ones(5, 2)
"""


@pytest.mark.slow
def test_mkl_hears_of_it():
    import torch

    if not torch.backends.mkl.is_available():
        pytest.skip("this torch is built without MKL")
    bare = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    environment = bare | {"PYTHONPATH": os.pathsep.join(sys.path), "MKL_VERBOSE": "1"}
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert "CNR:AUTO,STRICT" in told.stdout
