"""The arithmetic of a run: what "auto" comes to on its device, and whether that device is slow at what is asked for."""

from __future__ import annotations

from collections.abc import Mapping

from murmura import models
from murmura.config import shown
from murmura.errors import ModelError
from murmura.experiment.config import Experiment, ModelConfig
from murmura.precision import in_bfloat16, slowdown

_SLOW = 1.2  # from this factor on it is worth a word


def device_name(model: ModelConfig) -> str:
    """The device of a model, as torch names it, whether there is one here or not."""
    import torch

    if model.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return model.device


def automatic(model: ModelConfig) -> dict[str, str]:
    """What "auto" comes to here, option by option: bfloat16 where the device multiplies it natively; weights in float16
    are left to themselves."""
    native = model.load_dtype != "float16" and in_bfloat16("auto", device_name(model))
    return {
        "training.precision": "bfloat16" if native else "float32",
        "run.decode_dtype": "bfloat16" if native else "model",
    }


def settled(experiment: Experiment, begun: Experiment | None = None) -> Experiment:
    """The experiment with its arithmetic written out, in place of "auto".

    Args:
        begun: the experiment as an earlier part of the run had it, which keeps what it began with.
    """
    sections = {}
    for key, here in automatic(experiment.model).items():
        name, _, option = key.partition(".")
        section = getattr(experiment, name)
        if getattr(section, option) == "auto":
            kept = here if begun is None else getattr(getattr(begun, name), option)
            sections[name] = section.model_copy(update={option: here if kept == "auto" else kept})
    return experiment.model_copy(update=sections)


def stays(before: Mapping[str, str], begun: Experiment, now: Experiment) -> str | None:
    """That a run goes on upon another kind of device than before with the arithmetic that it had, in words.

    Args:
        before: what "auto" came to there.
        begun: the experiment as it was.
        now: the experiment, settled.
    """
    here = automatic(now.model)
    stay = []
    for key in here:
        name, _, option = key.partition(".")
        was, value = (getattr(getattr(one, name), option) for one in (begun, now))
        if before.get(key, here[key]) != here[key] and was == value:
            stay.append(f"{key} stays {shown(value)}")
    if not stay:
        return None
    natively = "multiplies" if in_bfloat16("auto", device_name(now.model)) else "does not multiply"
    return f"this device, unlike the one before, {natively} bfloat16 natively; {' and '.join(stay)}"


def multiplied_in(experiment: Experiment) -> tuple[str, str]:
    """In which numbers frozen weights are multiplied in training, and in writing."""
    model, device = experiment.model, device_name(experiment.model)
    own = models.weights_dtype(model.load_dtype, device)
    asked = experiment.training.precision, experiment.run.decode_dtype
    training, writing = ("bfloat16" if in_bfloat16(one, device) else own for one in asked)
    return training, writing


def slow(experiment: Experiment) -> str | None:
    """A warning where bfloat16 is asked for and the device has no instructions for it, with how slow it is."""
    asked = {
        "training.precision": experiment.training.precision,
        "run.decode_dtype": experiment.run.decode_dtype,
        "model.dtype": experiment.model.dtype,
    }
    names = [key for key, value in asked.items() if value == "bfloat16"]
    if not names or in_bfloat16("auto", device_name(experiment.model)):
        return None
    try:
        device = models.device_of(experiment.model.device)
    except ModelError:  # not here; a run would say so
        return None
    factor = slowdown(device)
    if factor < _SLOW:
        return None
    return (
        f"{' and '.join(names)}: bfloat16 was asked for, and this device has no instructions to multiply it: a small "
        f"product took {factor:.3g} times as long as in float32"
    )
