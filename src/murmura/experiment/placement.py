"""Over how many worker processes and GPUs a simulation spreads its sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from murmura.experiment.config import Experiment

_WORKERS = 2  # where there is no GPU


def gpus_for(device: str) -> int:
    """On how many GPUs workers compute that are told this device; 0 for one that is named, or for none."""
    import torch

    return torch.cuda.device_count() if device in ("auto", "cuda") else 0


def count_workers(experiment: Experiment, gpus: int) -> int:
    """As many as asked for, or one for each GPU."""
    return experiment.run.workers or gpus or _WORKERS
