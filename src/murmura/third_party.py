"""Environment variables for the libraries under torch, which read them when first used."""

from __future__ import annotations

import os

SETTINGS = {
    # Torch's threads wait for each other by spinning. Where another process has one of the cores, each wait then costs
    # a slice of time: a first evaluation on two cores, one of them taken, took 263 s spinning and 38 s sleeping.
    "OMP_WAIT_POLICY": "PASSIVE",
    # MKL may add in another order where memory is aligned otherwise, which a copy of a model's file or a tensor that
    # came from a checkpoint may be. This makes results a matter of processor, threads and inputs alone.
    "MKL_CBWR": "AUTO,STRICT",
    # Without it, older versions of torch refuse to let a GPU add in one order.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
"""By name of an environment variable: what it is set to where the user has not set it."""


def settle() -> None:
    """Set what the user has not; without effect on libraries that are in use already."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
