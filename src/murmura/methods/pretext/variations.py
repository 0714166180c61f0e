"""What varies the population's texts, by the method's options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murmura.methods.pretext.config import PretextConfig

if TYPE_CHECKING:
    from murmura.model_runtime import ModelRuntime
    from murmura.synthesis.variation import Variation

OPTION = "variation_model"
"""Of the method, which names the model."""


def variation_of(config: PretextConfig, runtime: ModelRuntime) -> Variation:
    """The variation that the options name, with its model.

    Raises:
        ConfigError: the model cannot vary texts of this length.
        ModelError: its weights cannot be loaded, or it is of another kind.
    """
    from murmura.generation.sampling import Sampling
    from murmura.synthesis.mask_fill import MaskFill
    from murmura.synthesis.variation import Continue, Paraphrase

    most, mended = config.text_tokens, config.torn == "mended"
    sampling = Sampling(temperature=config.variation_temperature, top_p=config.variation_top_p)
    if config.variation == "mask-fill":
        loaded = runtime.resources.language_model(OPTION)
        return MaskFill(loaded, share=config.changed, steps=config.steps, sampling=sampling, max_tokens=most)
    bench = runtime.another(OPTION)
    if config.variation == "continue":
        return Continue(bench, share=config.changed, sampling=sampling, max_tokens=most, mended=mended)
    return Paraphrase(bench, sampling=sampling, max_tokens=most, mended=mended)
