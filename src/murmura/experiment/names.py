"""What an experiment can be asked for by name: the methods, and what papers call their variants and parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from murmura import methods
from murmura.errors import ConfigError, nearest
from murmura.experiment.presets import presets

_SEEDS = "its seeds are expanded without any vote"


@dataclass(frozen=True, slots=True)
class Named:
    """What a name stands for.

    Attributes:
        method: name in ``[method]``.
        options: dotted key to value, what the name says beyond that.
        title: a sentence; the method's own if empty.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


def _aggregated(option: str, value: str, title: str) -> Named:
    return Named("fedit", {f"aggregation.{option}": value}, title)


_rule, _local, _step = (partial(_aggregated, option) for option in ("rule", "local", "server"))


def _augmented(strategy: str, title: str, **more: Any) -> Named:
    pool = {} if strategy == "self-instruct" else {"augment.pool": "FOLDER"}
    options = {"augment.strategy": strategy} | pool | {f"augment.{key}": value for key, value in more.items()}
    return Named("fedit", options, title)


_PARTS: Mapping[str, Named] = {
    "fedavg": Named("fedit", {}, "FedAvg (McMahan et al. 2017): sites train, and the server averages."),
    "fedprox": _local("fedprox", "FedProx (Li et al. 2020): sites are held near the adapter that they were sent."),
    "scaffold": _local("scaffold", "SCAFFOLD (Karimireddy et al. 2020): control variates take sites' drift out."),
    "fedavgm": _step("fedavgm", "FedAvgM (Hsu et al. 2019): the server steps with momentum."),
    "fedadam": _step("fedadam", "FedAdam (Reddi et al. 2021): the server steps as Adam does."),
    "fedyogi": _step("fedyogi", "FedYogi (Reddi et al. 2021): the server steps as Yogi does."),
    "fedadagrad": _step("fedadagrad", "FedAdagrad (Reddi et al. 2021): the server steps as Adagrad does."),
    "feddca": _augmented(
        "feddca",
        "FedDCA (Wang et al. 2024): sites send cluster centres, and the server gives each public records to "
        "train on besides, which together cover the domain.",
    ),
    "feddca*": _augmented(
        "feddca", "FedDCA* (Wang et al. 2024): FedDCA with a smaller encoder at the sites.", site_encoder="ENCODER"
    ),
    "less": _augmented("less", "FedAvg with public records that LESS chooses (Xia et al. 2024)."),
    "self-instruct": _augmented(
        "self-instruct", "FedAvg with records that a model writes at the sites (Self-Instruct, Wang et al. 2023)."
    ),
    "ffa-lora": _rule("ffa", "FFA-LoRA (Sun et al. 2024): FedAvg with A fixed."),
    "rolora": _rule("rolora", "RoLoRA (Chen et al. 2025): A and B by turns."),
    "fedsa-lora": _rule("fedsa", "FedSA-LoRA (Guo et al. 2024): A is shared, B stays at the site."),
    "fedex-lora": _rule("fedex", "FedEx-LoRA (Singhal et al. 2024): exact averaging, with a residual."),
    "flora": _rule("flora", "FLoRA (Wang et al. 2024): the sites' adapters are stacked."),
    "flexlora": _rule("flexlora", "FlexLoRA (Bai et al. 2024): products are averaged, and decomposed anew."),
    "median": _rule("median", "Coordinate-wise median (Yin et al. 2018), against sites that lie."),
    "trimmed-mean": _rule("trimmed-mean", "Coordinate-wise trimmed mean (Yin et al. 2018), against sites that lie."),
    "krum": _rule("krum", "Krum, or Multi-Krum (Blanchard et al. 2017), against sites that lie."),
    "lora-fair": _rule("fair", "LoRA-FAIR (Bian et al. 2024): averaging with a corrected B."),
    "fp-fl": Named("lpfl", {"model.trainable": "all"}, "FP-FL (Jiang et al. 2023): LP-FL with all parameters trained."),
    "expand-only": Named("pretext", {"method.seeds": "public"}, f"Expand-only (Hou et al. 2024): {_SEEDS}."),
    "expand-private": Named(
        "pretext",
        {"method.seeds": "private"},
        "Expand-private (Hou et al. 2024): the private texts themselves are expanded, without any guarantee.",
    ),
    "dp-prompt": Named(
        "pretext",
        {"method.seeds": "paraphrased", "method.samples": 0},  # what is trained on are the paraphrases
        "DP-Prompt (Utpala et al. 2023): sites paraphrase their texts under local differential privacy.",
    ),
    "popri": Named(
        "pretext",
        {"method.evolve": "preferences", "method.votes": "cosine"},
        "POPri (Hou et al. 2025): sites' noisy votes say which texts the generator should prefer to write.",
    ),
}


def names() -> dict[str, Named]:
    """All of them, the methods first."""
    found = {name: Named(name) for name in methods.METHODS}
    return found | {name: part for name, part in _PARTS.items() if name not in found}


def named(name: str) -> Named:
    """What is called so; hyphens and capitals do not matter.

    Raises:
        ConfigError: nothing is.
    """
    known = names()
    brought = methods.METHODS.keys() - methods.METHODS.builtin.keys()  # take no name from what is Murmura's
    alike = sorted((one for one in known if _plain(one) == _plain(name)), key=brought.__contains__)
    found = known.get(name) or (known[alike[0]] if alike else None)
    if found is None:
        raise ConfigError(f"there is no method '{name}'", fix=nearest(name.lower(), [*known, *presets()]))
    return found


def spelling(name: str) -> str | None:
    """How an experiment file says what is called ``name``, as the end of a message; None where no paper's name for
    something else is meant."""
    for called, what in names().items():
        if called not in methods.METHODS and _plain(called) == _plain(name):
            more = " and ".join(f'{key} = "{value}"' for key, value in what.options.items())
            written = f'method.name = "{what.method}"' + (f" with {more}" if more else "")
            return f"'{called}' is written {written}; see `murmura init {called}`."
    return None


def _plain(name: str) -> str:
    """``DP-FedAvg`` as ``dpfedavg``; FedDCA* may be called FedDCA-star."""
    return "".join(letter for letter in name.lower().replace("star", "*") if letter.isalnum() or letter == "*")
