"""What writes texts at the server: a model that is loaded here, tuned or as it is, or an endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murmura.generation.sampling import Sampling
from murmura.methods.pretext.config import PretextConfig
from murmura.synthesis.endpoint import Endpoint
from murmura.synthesis.generators import Generator, Local
from murmura.synthesis.prompts import STOP
from murmura.training.adapter import State
from murmura.training.config import LoraSpec

if TYPE_CHECKING:
    from murmura.federation.server.rounds import Server
    from murmura.model_runtime import ModelRuntime

TUNED = "generator"
"""In the server's store: the adapter of the generator, after the rounds so far; not there before the first."""


def generator_of(config: PretextConfig, server: Server) -> Generator:
    """What writes the expanded texts.

    Raises:
        ConfigError: the endpoint cannot be asked as the options say.
        ModelError: the model's weights cannot be loaded.
    """
    if config.endpoint is None:
        return local(config, server.runtime, server.store.get(TUNED))
    return Endpoint(
        config.endpoint,
        config.generator,
        chat=config.endpoint_chat,
        temperature=config.temperature,
        top_p=config.top_p,
        max_tokens=config.sample_tokens,
        stop=STOP,
        concurrency=config.endpoint_requests,
        key_variable=config.endpoint_key,
    )


def local(config: PretextConfig, runtime: ModelRuntime, adapter: State | None = None) -> Local:
    """The generator that is loaded here.

    Args:
        adapter: what it was tuned to; None: nothing yet.

    Raises:
        ModelError: the model's weights cannot be loaded.
    """
    sampling = Sampling(temperature=config.temperature, top_p=config.top_p)
    return Local(bench_of(config, runtime), sampling=sampling, max_tokens=config.sample_tokens, adapter=adapter)


def bench_of(config: PretextConfig, runtime: ModelRuntime) -> ModelRuntime:
    """The generator's model, with room for the adapter that is tuned, if one is.

    Raises:
        ModelError: its weights cannot be loaded, or it has no such modules.
    """
    how = config.tuning
    lora = LoraSpec(rank=how.rank, alpha=how.alpha, targets=how.targets) if config.tunes else None
    return runtime.another("generator", lora)
