"""Murmura: fine-tune a language model across many owners' few, private examples."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from murmura.third_party import settle

if TYPE_CHECKING:
    from murmura.experiment.config import Experiment
    from murmura.experiment.run import run

__version__ = "0.1.0"
__all__ = ["Experiment", "__version__", "run"]

settle()  # before torch is imported, by whichever part of this package is asked for first

# Imported when first asked for, so that ``import murmura`` is instant.
_HOMES = {"Experiment": "murmura.experiment.config", "run": "murmura.experiment.run"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'murmura' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
