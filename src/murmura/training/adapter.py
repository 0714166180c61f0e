"""The LoRA tensors of one site: their names, how they are mixed, and how they are stored.

With DoRA a module has a vector of magnitudes beside A and B. It goes where B goes: it trains, is frozen, travels and
stays at a site together with B, since both are about a weight's rows, and A is about its columns.

An adapter in memory is a ``State``: names as in a PEFT file, values float32 on the CPU. On disk it is a PEFT folder
(``adapter_config.json``, ``adapter_model.safetensors``) that ``peft``, ``transformers`` and vLLM load as it is.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from murmura.errors import ModelError
from murmura.streams import Stream
from murmura.training.config import LoraSpec

State = dict[str, torch.Tensor]

PEFT_PREFIX = "base_model.model."


MAGNITUDE = ".lora_magnitude_vector"
"""How the name of a module's magnitudes ends, as PEFT has it."""


_MORE_THAN_LORA = (
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "layer_replication",
    "lora_bias",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "use_bdlora",
    "use_qalora",
)
"""Options of PEFT's with which a layer computes something else than a bank's does."""
_CHANGE_THE_MODEL = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""How adapters begin that take what they begin with off the model's weights: they fit no other."""


def factor_of(name: str) -> str | None:
    """Which factor a tensor is, or goes with; None where it is of no adapter."""
    return "A" if ".lora_A." in name else "B" if ".lora_B." in name or name.endswith(MAGNITUDE) else None


def shapes_of(spec: LoraSpec, wide_in: int, wide_out: int) -> dict[str, tuple[int, ...]]:
    """The tensors that a module of this width has, by how their names end."""
    factors: dict[str, tuple[int, ...]] = {
        ".lora_A.weight": (spec.rank, wide_in),
        ".lora_B.weight": (wide_out, spec.rank),
    }
    return {**factors, MAGNITUDE: (wide_out,)} if spec.dora else factors


def mix(beta: float, first: State, second: State) -> State:
    """``β·first + (1−β)·second``, element by element on A and on B (Zhang et al. 2024, FewFedPIT:
    local aggregation sharing).

    β = 1 returns ``first`` itself, bit for bit, and β = 0 ``second``.
    """
    if beta == 1.0:
        return first
    if beta == 0.0:
        return second
    _same_tensors(first, second)
    return {name: torch.lerp(second[name], first[name], beta) for name in first}


def subtract(first: State, second: State) -> State:
    """``first − second`` for every tensor."""
    _same_tensors(first, second)
    return {name: first[name] - second[name] for name in first}


def fingerprint(state: State) -> str:
    """SHA-256 of names, shapes and values, in whatever order they are; hexadecimal."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def zeros_like(state: State) -> State:
    """Zeros of the same names and shapes."""
    return {name: torch.zeros_like(tensor) for name, tensor in state.items()}


def fresh(shapes: Mapping[str, Sequence[int]], stream: Stream) -> State:
    """A fresh start: A Kaiming-uniform with a = √5 (that is, U(−1/√in, 1/√in)), all else zero; in the order of
    ``shapes``."""
    generator, state = stream.torch(), {}
    for name, shape in shapes.items():
        if ".lora_A." in name:
            bound = 1 / math.sqrt(shape[1])
            state[name] = torch.empty(*shape).uniform_(-bound, bound, generator=generator)
        else:
            state[name] = torch.zeros(*shape)
    return state


def rank_of(state: Mapping[str, torch.Tensor]) -> int | None:
    """r of an adapter; None for a state of all parameters."""
    return next((len(tensor) for name, tensor in state.items() if ".lora_A." in name), None)


def crop(state: State, rank: int) -> State:
    """The adapter of the first ``rank`` rows of every A and columns of every B, as views; magnitudes have no rank."""
    return {
        name: tensor[:rank] if ".lora_A." in name else tensor[:, :rank] if ".lora_B." in name else tensor
        for name, tensor in state.items()
    }


def split_residual(state: State) -> tuple[State, State]:
    """The adapter, and its residual: a low-rank change of the frozen weight, ``residual_B·residual_A`` (scale 1).

    It is what exact aggregation leaves over (FedEx-LoRA, FLoRA). Its tensors are ``….residual_A.weight`` [R, in] and
    ``….residual_B.weight`` [out, R].
    """
    residual = {name: tensor for name, tensor in state.items() if ".residual_" in name}
    return {name: tensor for name, tensor in state.items() if name not in residual}, residual


def beside(trained: State, start: State) -> State:
    """What was trained beside the residual of ``start``, which is not trained, with that residual."""
    return trained | split_residual(start)[1]


def has_ranks_of_weights(residual: State) -> bool:
    """Whether each factor of a residual has its other one, and they no higher a rank than a matrix [out, in] has."""
    over = {name: tensor for name, tensor in residual.items() if ".residual_A." in name}
    under = {name: residual.get(name.replace(".residual_A.", ".residual_B.")) for name in over}
    return len(residual) == 2 * len(over) and all(
        B is not None and A.ndim == B.ndim == 2 and len(A) == B.shape[1] <= min(A.shape[1], len(B))
        for A, B in zip(over.values(), under.values(), strict=True)
    )


def fold(state: State, spec: LoraSpec) -> tuple[State, LoraSpec]:
    """A plain adapter that stands for adapter and residual together, ``s·[B, R_B/s]·[A; R_A]``, and its spec.

    So the result of exact aggregation, of whatever rank, is an ordinary adapter to all who read PEFT folders. Zeros
    fill up residuals that are of smaller rank than others.

    Args:
        spec: of the run; s is its scale, whatever the rank of the state.
    """
    adapter, residual = split_residual(state)
    most = max((len(tensor) for name, tensor in residual.items() if ".residual_A." in name), default=0)
    folded = {}
    for name, tensor in adapter.items():
        if name.endswith(MAGNITUDE):
            folded[name] = tensor
            continue
        axis, factor = (0, 1.0) if ".lora_A." in name else (1, 1 / spec.scale)
        shape = list(tensor.shape)
        shape[axis] = most
        room, extra = torch.zeros(shape), residual.get(name.replace(".lora_", ".residual_"))
        if extra is not None:
            room.narrow(axis, 0, extra.shape[axis]).copy_(extra * factor)
        folded[name] = torch.cat([tensor, room], dim=axis)
    rank = rank_of(folded) or spec.rank
    if rank == spec.rank:
        return folded, spec
    return folded, spec.model_copy(update={"rank": rank, "alpha": spec.scale * (rank**0.5 if spec.rslora else rank)})


def is_same(first: State, second: State) -> bool:
    """Whether two states have the same tensors, value by value."""
    return first is second or (
        first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    )


def save_peft(
    folder: Path,
    state: State,
    spec: LoraSpec,
    base_name: str,
    *,
    fan_in_fan_out: bool = False,
    task_type: str = "CAUSAL_LM",
) -> None:
    """Write a PEFT folder.

    Args:
        folder: created if missing; files in it are replaced.
        state: names and shapes as in ``Bank.manifest``, for this spec; see ``fold`` for those of another rank.
        base_name: what ``adapter_config.json`` names as the base model.
        fan_in_fan_out: True for bases whose linear layers store ``[in, out]`` (GPT-2's Conv1D).
        task_type: PEFT's name of the task; masked models have none ("").
    """
    from peft import LoraConfig
    from safetensors.torch import save

    folder.mkdir(parents=True, exist_ok=True)
    modules = sorted({name.removeprefix(PEFT_PREFIX).rsplit(".lora_", 1)[0] for name in state})
    config = LoraConfig(
        r=spec.rank,
        # PEFT types alpha as an integer but divides by it; a whole number stays one for other readers.
        lora_alpha=int(spec.alpha) if float(spec.alpha).is_integer() else spec.alpha,
        lora_dropout=spec.dropout,
        use_rslora=spec.rslora,
        use_dora=spec.dora,
        target_modules=modules,
        fan_in_fan_out=fan_in_fan_out,
        task_type=task_type or None,
        base_model_name_or_path=base_name,
        inference_mode=True,
    )
    config.save_pretrained(str(folder))
    packed = save({name: tensor.contiguous() for name, tensor in state.items()})
    # Not save_file, which makes files that only their owner can read.
    (folder / "adapter_model.safetensors").write_bytes(packed)


def load_peft(folder: Path) -> tuple[State, LoraSpec]:
    """Read a PEFT folder written by us or by ``peft``.

    Returns:
        The tensors as float32 on the CPU, and their spec.

    Raises:
        ModelError: no adapter there, a damaged one, or one that uses a feature a bank slot does not have.
    """
    from peft import LoraConfig, PeftConfig
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not (folder / "adapter_config.json").is_file():
        raise ModelError("no adapter_config.json here", where=str(folder), fix="Give a folder that PEFT wrote.")
    try:
        config = PeftConfig.from_pretrained(str(folder))
    except (ValueError, TypeError, KeyError) as error:
        fix = "Restore it from where it was copied, or make the run again."
        raise ModelError(f"this is damaged ({error})", where=str(folder / "adapter_config.json"), fix=fix) from None
    weights = folder / "adapter_model.safetensors"
    if not weights.is_file():
        raise ModelError("no adapter_model.safetensors here", where=str(folder), fix="Save it with safetensors.")
    if not isinstance(config, LoraConfig):
        raise ModelError(f"a {config.peft_type} adapter, not LoRA", where=str(folder))
    unsupported = [key for key in _MORE_THAN_LORA if getattr(config, key, None)]
    unsupported += ["bias"] if config.bias != "none" else []
    if unsupported:
        fix = "Only plain LoRA and DoRA load."
        raise ModelError(f"the adapter uses {', '.join(unsupported)}", where=str(folder), fix=fix)
    begun = str(config.init_lora_weights)
    if begun.lower().startswith(_CHANGE_THE_MODEL):
        what = f"the adapter began with init_lora_weights = '{begun}', which changes the weights of the model beside it"
        fix = "Have PEFT write it as a plain one: save_pretrained with path_initial_model_for_weight_conversion."
        raise ModelError(what, where=str(folder), fix=fix)
    targets = config.target_modules or ()
    spec = LoraSpec(
        rank=config.r,
        alpha=float(config.lora_alpha),
        targets=(targets,) if isinstance(targets, str) else tuple(sorted(targets)),
        dropout=config.lora_dropout,
        rslora=config.use_rslora,
        dora=config.use_dora,
    )
    try:
        return {name: tensor.float() for name, tensor in load_file(weights).items()}, spec
    except SafetensorError as error:
        fix = "Restore it from where it was copied, or make the run again."
        raise ModelError(f"this is damaged ({error})", where=str(weights), fix=fix) from None


def _same_tensors(first: State, second: State) -> None:
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())
        raise ModelError(f"two adapters do not have the same tensors: {odd[0]} is in one of them only")
    for name in first:
        ours, theirs = tuple(first[name].shape), tuple(second[name].shape)
        if ours != theirs:
            raise ModelError(f"{name} has shape {ours} in one adapter, {theirs} in another")
