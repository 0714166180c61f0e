"""What the server and the sites of a run know of its secure sums (``aggregation.secure``)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache, partial

import torch

from murmura.errors import ConfigError
from murmura.experiment.config import Experiment
from murmura.federation.method import Method
from murmura.federation.method_config import SampledMethodConfig
from murmura.federation.wire.cohorts import draw
from murmura.federation.wire.layout import Agreement, Layout
from murmura.federation.wire.masks import protocol_bytes
from murmura.federation.wire.neighbours import degree
from murmura.streams import Stream
from murmura.training.adapter import MAGNITUDE, State


def agreement(experiment: Experiment, method: Method, sites: Iterable[str]) -> Agreement | None:
    """What is known of secure sums without being told; None where sums are in clear.

    Args:
        sites: of the federation, in the order of the run.
    """
    options, names = method.rule.config.secure, list(sites)
    if not options:
        return None
    asked, drawn = experiment.method.cohort_size, None
    if isinstance(experiment.method, SampledMethodConfig):  # the sites of one process draw together
        drawn = lru_cache(maxsize=1)(partial(draw, names, asked, Stream(experiment.run.seed)))
    return Agreement(options, min(asked or len(names), len(names)), drawn)


def require_range(agreed: Agreement | None, adapter: State) -> None:
    """Hold DoRA's magnitudes to the range of secure sums: sites would clip what is beyond it, and so shorten rows of
    the frozen weights. Unlike A and B, magnitudes do not begin near zero.

    Raises:
        ConfigError: one is beyond it.
    """
    most = max((float(tensor.abs().max()) for name, tensor in adapter.items() if name.endswith(MAGNITUDE)), default=0.0)
    if agreed is not None and most > agreed.options.range:
        what = f"DoRA's magnitudes go up to {most:.3g}, and sites clip what they send to ±{agreed.options.range:g}"
        raise ConfigError(what, where="aggregation.secure.range", fix=f"Set it to {math.ceil(2 * most)}.")


def foreseen(method: Method, sites: int) -> tuple[float, int, int]:
    """What secure sums over so many sites make of the bytes of tensors.

    Returns:
        How many times as large uploads are, which are foreseen as float32; and bytes that each site sends, and is sent,
        besides.
    """
    options = method.rule.config.secure
    if not options:
        return 1.0, 0, 0
    found = degree(sites, sites, options)
    up, down = protocol_bytes(sites, None if found is None else found.neighbours)
    if method.traits.trained_at != "sites":
        return 1.0, up, down
    weighed = {"adapter": "examples"} if getattr(method, "weight", None) else {}
    like = {"adapter": torch.zeros(1), **dict.fromkeys(weighed.values(), 0)}
    return Layout.of(like, weighed, sites, options).bits / 32, up, down
