"""How much memory a run will take, from sizes alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from murmura.experiment.config import Experiment
from murmura.experiment.model_spec import ModelSpec
from murmura.experiment.placement import count_workers, gpus_for
from murmura.experiment.resources import Supply
from murmura.experiment.validate import method_of
from murmura.precision import in_bfloat16
from murmura.resources import Side
from murmura.training.adapter import MAGNITUDE
from murmura.training.passes import inner_width, layer_configs, tokens_per_pass
from murmura.units import FLOAT32

_LIBRARIES = 500_000_000  # bytes that Python, torch and transformers take before any model, on a CPU
_LOST = 1.4  # times what tensors take between them is taken by a CPU's allocator, measured with SmolLM2-135M
_WHOLE = 7
"""Models that lie on a CPU beside one that trains whole, its gradient and its moments: as it was loaded, the server's,
what a site has trained, all sites' sum in float64 (two), and what a step of AdamW takes in passing (two). With 114 M
parameters a process took between 9 and 12 in all, by method, when that was looked at once."""
_LOGITS_AT_ONCE = 1024  # positions; see training.head
_FLOAT64, _BFLOAT16 = 8, 2  # bytes


@dataclass(frozen=True)
class Memory:
    """Bytes at the peak, by what takes them.

    Args:
        libraries: the process itself; 0 on a GPU, where it is elsewhere.
        base: the frozen model; where all of it trains, what lies of it beside the slot.
        slots: of adapters in the bank.
        adapters: the bank, with gradients and what the optimiser remembers.
        copies: numbers kept of each trainable parameter: itself, its gradient, the optimiser's moments.
        passing: activations and logits of one training pass, or keys and values while texts are written, whichever is
            larger; they are not there at one time.
        processes: that take all this on one device: the server's, and with engine 'processes' the workers there.
        resources: other models of all of these processes, as far as their sizes are known.
        states: hidden states of records, below all adapters; 0 on a GPU, where they are elsewhere.
    """

    libraries: int
    base: int
    slots: int
    adapters: int
    copies: int
    passing: int
    processes: int = 1
    resources: int = 0
    states: int = 0

    @property
    def each(self) -> int:
        return self.libraries + self.base + self.adapters + self.passing + self.states

    @property
    def total(self) -> int:
        return self.processes * self.each + self.resources


def peak(
    experiment: Experiment, model: ModelSpec, cohort: int, resources: Sequence[Supply] = (), records: int = 0
) -> Memory:
    """An estimate of the peak, for cohorts of so many sites, and so many records that are read again and again.

    A training pass keeps for each token and layer, from the first adapted one on, about 8 vectors as wide as the model
    and 3 as wide as its inner layer (counted for Llama and GPT-2 with frozen weights), and two copies of some logits;
    in bfloat16 half of it, and a copy of the base in that; with DoRA also each adapted layer's output, in float32. A
    writing pass keeps every layer's keys and values, and half of that of one layer; on a CPU, a copy of the base's
    weights too.
    """
    run, training, length = experiment.run, experiment.training, experiment.data.max_length
    slots = min(run.slots, cohort) if experiment.model.trainable == "adapter" else 1
    copies = 2 + (2 if training.optimizer == "adamw" else int(training.momentum > 0))
    text = model.config.get_text_config()  # of a model that also sees, the part that reads
    width, inner, layers, keys = _shape(text)
    kept = 8 * width + 3 * inner
    per_pass = tokens_per_pass(training.tokens_per_pass, model.config, model.device_name, model.below)
    number = _BFLOAT16 if in_bfloat16(training.precision, model.device_name) else model.element_bytes
    each = experiment.task.sequences * length
    tokens = max(each, min(per_pass, slots * training.batch_size * each))
    turned = tokens * sum(tensor.numel() for name, tensor in model.state.items() if name.endswith(MAGNITUDE)) * FLOAT32
    train = (
        tokens * (layers - model.below) * kept * number
        + 2 * min(tokens, _LOGITS_AT_ONCE) * text.vocab_size * FLOAT32
        + turned
        + (slots * model.trainable * _FLOAT64 if method_of(experiment).protects == "record" else 0)  # clipped gradients
    )
    write = run.decode_rows * (length + _answers(experiment)) * (2 * layers * keys + kept // 2) * model.element_bytes
    packed = model.parameters * (_BFLOAT16 if in_bfloat16(run.decode_dtype, model.device_name) else model.element_bytes)
    cast = model.parameters * _BFLOAT16 if number < model.element_bytes else 0
    on_gpu, processes = model.device_name.startswith("cuda"), _processes(experiment)
    lost = 1.0 if on_gpu else _LOST
    beside = 0 if on_gpu or experiment.model.trainable == "adapter" else _WHOLE * model.trainable * FLOAT32
    return Memory(
        libraries=0 if on_gpu else _LIBRARIES,
        base=model.base_bytes + beside,
        slots=slots,
        adapters=slots * model.trainable * FLOAT32 * copies,
        copies=copies,
        passing=int(max(train * lost + cast, write * lost + (0 if on_gpu else packed))),
        processes=processes,
        resources=_resources(resources, processes, on_gpu=on_gpu),
        states=0 if on_gpu else min(run.cache_bytes, states(experiment, model, records)),
    )


def states(experiment: Experiment, model: ModelSpec, records: int) -> int:
    """Most bytes of the hidden states of so many records below all adapters, each in all of its patterns, in one
    precision; 0 where they are not kept."""
    if not (model.below and experiment.run.cache_bytes):
        return 0
    width = int(model.config.get_text_config().hidden_size)
    patterns = len(getattr(experiment.method, "patterns", ())) or 1
    each = patterns * experiment.task.sequences * experiment.data.max_length
    return records * each * width * model.element_bytes


def _answers(experiment: Experiment) -> int:
    """Most tokens of an answer besides those of a record."""
    benchmarks = experiment.evaluation.benchmarks
    return max((options.tokens for options in benchmarks.named.values()), default=0) if benchmarks else 0


def _resources(resources: Sequence[Supply], processes: int, *, on_gpu: bool) -> int:
    """Bytes of other models. A process loads a model once, whatever it is used for; where there are workers, the sites
    are in those."""

    def loaded(*sides: Side) -> int:
        number = {"encoder": FLOAT32, "masked": element, "causal": element}
        models = {
            one.resource.name: (one.parameters or 0) * number[one.resource.kind]
            for one in resources
            if any(one.resource.needed_by(side) for side in sides)
        }
        return sum(models.values())

    element = _BFLOAT16 if on_gpu else FLOAT32
    return loaded("server", "site") if processes == 1 else loaded("server") + (processes - 1) * loaded("site")


def _processes(experiment: Experiment) -> int:
    """How many have a model on the server's device."""
    if experiment.run.engine == "local":
        return 1
    gpus = gpus_for(experiment.model.device)
    return 1 + math.ceil(count_workers(experiment, gpus) / max(gpus, 1))


def _shape(text: Any) -> tuple[int, int, int, int]:
    """Width, inner width, layers, and width of all keys of one token, in the layer where it is largest."""
    keys = max(_keys(layer) for layer in layer_configs(text))
    return int(text.hidden_size), inner_width(text), int(text.num_hidden_layers), keys


def _keys(layer: Any) -> int:
    """Width of all keys of one token; 0 without attention."""
    attention = int(getattr(layer, "num_attention_heads", None) or 0)
    if not attention:
        return 0
    keys = int(getattr(layer, "num_key_value_heads", None) or attention)
    return keys * int(getattr(layer, "head_dim", None) or layer.hidden_size // attention)
