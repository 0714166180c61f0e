"""An attack: how much likelier training has made the likeliest half of a record's tokens."""

from __future__ import annotations

import numpy as np

from murmura.measure.attacks import Passes


def upper_half(passes: Passes) -> float:
    """A record's score, which is higher, the more it looks like one that the model was trained on."""
    raised = np.sort(passes.raised)
    return float(raised[len(raised) // 2 :].mean())
