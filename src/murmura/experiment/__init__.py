"""An experiment: its file, and what is built from it. The only package that knows all the others."""

from murmura.experiment.config import Experiment

__all__ = ["Experiment"]
