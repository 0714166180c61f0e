"""Which modules of a model carry adapters, and in which of its layers they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from torch import nn

from murmura.errors import ModelError
from murmura.training.head import HEADS
from murmura.training.layer import is_conv1d


def target_names(model: nn.Module, targets: Sequence[str], layers: str = "all") -> list[str]:
    """Full names of the modules that carry an adapter, in the model's order.

    Args:
        targets: suffixes of module names as in PEFT; ``("default",)`` takes PEFT's choice for the architecture;
            ``("all-linear",)`` takes every linear layer except the output head.
        layers: in which of the model's layers; see ``LoraSpec.layers``.

    Raises:
        ModelError: a target that no module is called, or layers that the model does not have.
    """
    return _in_layers(model, _targeted(model, targets), layers)


def _targeted(model: nn.Module, targets: Sequence[str]) -> list[str]:
    """Modules that targets name, wherever they are."""
    if tuple(targets) == ("all-linear",):
        head = model.get_output_embeddings()  # type: ignore[operator]
        return [
            name
            for name, module in model.named_modules()
            if _is_linear(module) and module is not head and name.partition(".")[0] not in HEADS
        ]
    if tuple(targets) == ("default",):
        from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as DEFAULTS

        kind = str(model.config.model_type)  # type: ignore[union-attr]
        if kind not in DEFAULTS:
            raise ModelError(f"PEFT has no default adapter targets for {kind} models", fix="Name them: lora.targets.")
        targets = DEFAULTS[kind]
        if isinstance(targets, str):  # a pattern of whole names
            return [name for name, one in model.named_modules() if re.fullmatch(targets, name) and _is_linear(one)]
    modules = dict(model.named_modules())
    found: dict[str, None] = {}
    for target in targets:
        matches = [name for name in modules if name == target or name.endswith("." + target)]
        if not matches:
            kinds = sorted({name.rpartition(".")[2] for name, module in modules.items() if _is_linear(module)})
            what = f"no module of the model is called {target}"
            raise ModelError(what, fix=f"lora.targets may name: {', '.join(kinds)}.")
        found.update(dict.fromkeys(matches))
    return [name for name in modules if name in found]


def _in_layers(model: nn.Module, names: list[str], layers: str) -> list[str]:
    """Of these modules those that are in the layers asked for."""
    if layers == "all":
        return names
    places = {name: layer_of(model, name) for name in names}
    count = max((len(model.get_submodule(path)) for path, _ in filter(None, places.values())), default=0)  # type: ignore[arg-type]
    wanted = layer_range(layers, count) if count else range(0)
    if wanted is None:
        fix = f'Say "all", "last N" with N at most {count}, or a range within "0-{count - 1}".'
        raise ModelError(f'lora.layers is "{layers}", and the targets are in {count} layers', fix=fix)
    found = [name for name, place in places.items() if place is not None and place[1] in wanted]
    if not found:
        fix = "Change lora.layers or lora.targets."
        raise ModelError(f"no target of the adapter is in the layers {layers}", fix=fix)
    return found


def _is_linear(module: nn.Module) -> bool:
    # Some decoder layers, of linear attention, have "Linear" in their names too.
    return is_conv1d(module) or ("Linear" in type(module).__name__ and hasattr(module, "in_features"))


def layer_range(layers: str, count: int) -> range | None:
    """What ``LoraSpec.layers`` means in a model of so many layers; None where it does not have them."""
    if layers == "all":
        return range(count)
    if layers.startswith("last "):
        first, stop = count - int(layers.removeprefix("last ")), count
    else:
        first, last = (int(number) for number in layers.split("-"))
        stop = last + 1
    return range(first, stop) if 0 <= first < stop <= count else None


def first_adapted(model: nn.Module, names: Iterable[str]) -> tuple[str, int]:
    """The list of layers that all of the named modules are in, the head apart, and the first of its layers that has
    one; the first of all where they are in no one list."""
    places = {layer_of(model, name) for name in names if name.partition(".")[0] not in HEADS}
    found = [place for place in places if place is not None]
    if len(found) < len(places) or len({path for path, _ in found}) != 1:
        return "", 0
    return found[0][0], min(index for _, index in found)


def layer_of(model: nn.Module, name: str) -> tuple[str, int] | None:
    """The list of layers that a module is in, and of which of them it is a part."""
    path, rest = "", name
    while rest:
        part, _, rest = rest.partition(".")
        if isinstance(model.get_submodule(path), nn.ModuleList):
            return path, int(part)
        path = f"{path}.{part}".removeprefix(".")
    return None
