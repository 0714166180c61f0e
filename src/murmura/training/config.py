"""Options of an adapter and of local training."""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from murmura.config import Section
from murmura.precision import Precision

CACHE_BYTES = 2**29
"""How much of what frozen layers compute is kept in memory, if nobody says otherwise: some 1,800 records of 128 tokens
of a model 576 wide."""

Decay = Annotated[float, Field(ge=0, lt=1)]


class LoraSpec(Section):
    """Shape and scale of an adapter (Hu et al. 2021; rsLoRA: Kalajdzievski 2023; DoRA: Liu et al. 2024)."""

    rank: int = Field(16, ge=1)
    """r, the inner dimension of ΔW = s·B·A."""
    alpha: float = Field(32.0, gt=0)
    """Numerator of the scale s = α/r."""
    targets: tuple[str, ...] = Field(("q_proj", "v_proj"), min_length=1)
    """Modules that carry an adapter (suffix match, as in PEFT); ["default"] for PEFT's choice for the architecture,
    ["all-linear"] for every linear layer but the head."""
    layers: str = "all"
    """In which layers: "all", "last 8", or a range such as "22-29" (counted from 0, as PEFT's layers_to_transform).
    What the layers below the first of them compute for a record is computed once (run.cache_bytes)."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the adapter's input while training."""
    rslora: bool = False
    """Scale by α/√r instead of α/r."""
    dora: bool = False
    """DoRA (Liu et al. 2024): each target also has a vector of magnitudes, the lengths of its weight's rows, and B·A
    changes only in which direction the rows point."""

    @field_validator("layers")
    @classmethod
    def _says_layers(cls, value: str) -> str:
        if not re.fullmatch(r"all|last [1-9][0-9]*|[0-9]+-[0-9]+", value):
            raise ValueError('say "all", "last 8", or a range such as "22-29"')
        return value

    @property
    def scale(self) -> float:
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)


class LocalTraining(Section):
    """How a site trains in one round; the defaults are those of the Hugging Face Trainer where it has them."""

    lr: float = Field(3e-4, gt=0, le=1e30)
    """Learning rate of the first round."""
    lr_min: float = Field(1e-6, ge=0)
    """The rate that the cosine approaches in the last rounds; not above lr."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """cosine: the rate falls along a cosine over the rounds; constant: it stays. Within a round it is constant."""
    epochs: int = Field(1, ge=1)
    """Passes over a site's records in one round; not used with max_steps."""
    max_steps: int | None = Field(None, ge=1)
    """Exactly this many optimiser steps per round; records are sampled down to batch_size·max_steps, or repeated."""
    batch_size: int = Field(8, ge=1)
    """Records per optimiser step at each site."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """The optimiser; its state is reset in every round."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    """AdamW's decay rates."""
    eps: float = Field(1e-8, gt=0)
    """AdamW's ε."""
    weight_decay: float = Field(0.0, ge=0)
    """Weight decay: decoupled from the gradient with AdamW, part of it with SGD."""
    momentum: Decay = 0.0
    """SGD's momentum."""
    clip: float = Field(1.0, ge=0)
    """Largest gradient norm of a site's adapter; 0 for no clipping."""
    dpo_beta: float = Field(0.1, gt=0)
    """β of DPO, with preference records: the larger it is, the nearer the model stays to the one that training begins
    with."""
    tokens_per_pass: int | Literal["auto"] = "auto"
    """Padded tokens that go through the model at once: bounds memory and does not change results. auto: 256 on a CPU,
    384 with adapters in no more than half of the layers; as many as an eighth of its memory holds on a GPU; where noise
    hides single records, one record."""
    precision: Precision = "auto"
    """Of the base model's matrix products while training; adapters stay float32. auto: bfloat16 where the device
    multiplies it natively (GPUs from Ampere on, AMX, AVX-512 BF16, Arm with bf16), else float32."""

    def rate(self, done: int, of: int) -> float:
        """The learning rate where so many of all rounds, or of all steps, are done.

        The cosine (OpenFedLLM, Ye et al. 2024) is lr_min + ½(lr − lr_min)(1 + cos(π t / R)), with t = ``done`` counted
        from 0 and R = ``of``; it never quite reaches lr_min.
        """
        if self.schedule == "constant":
            return self.lr
        return self.lr_min + 0.5 * (self.lr - self.lr_min) * (1 + math.cos(math.pi * done / of))

    @field_validator("tokens_per_pass", mode="before")
    @classmethod
    def _auto_or_some(cls, value: object) -> object:
        if value != "auto" and not (isinstance(value, int) and value >= 1):
            raise ValueError('say "auto", or a whole number that is at least 1')  # pydantic would name a key of its own
        return value

    @model_validator(mode="after")
    def _options_that_do_nothing(self) -> LocalTraining:
        if self.schedule == "constant":
            self.refuse_idle(["lr_min"], "with schedule 'constant'")
        elif self.lr_min > self.lr:
            raise ValueError(f"lr_min ({self.lr_min:g}) is above lr ({self.lr:g})")
        if self.max_steps is not None:
            self.refuse_idle(["epochs"], "with max_steps, which says how long a round is")
        self.refuse_idle(["momentum"] if self.optimizer == "adamw" else ["betas", "eps"], f"with '{self.optimizer}'")
        return self
