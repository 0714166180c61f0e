"""One site's training with PEFT, as an application that uses PEFT writes it; for ways (a) and (b)."""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from work import ALPHA, EPS, RANK, TARGETS, Work, base_model, initial

from murmura.training.targets import layer_range

State = dict[str, torch.Tensor]


def build(work: Work) -> Any:
    model = base_model(work)
    layers = None if work.adapted == "all" else list(layer_range(work.adapted, model.config.num_hidden_layers))
    lora = {"r": RANK, "lora_alpha": ALPHA, "lora_dropout": 0.0, "target_modules": list(TARGETS)}
    return get_peft_model(model, LoraConfig(**lora, layers_to_transform=layers, task_type="CAUSAL_LM"))


def start(model: Any) -> State:
    return initial({name: tuple(tensor.shape) for name, tensor in get_peft_model_state_dict(model).items()})


def train(work: Work, model: Any, adapter: State, site: int, round: int) -> State:
    """The adapter after the site's steps, on the CPU."""
    set_peft_model_state_dict(model, adapter)
    model.train()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=work.lr, eps=EPS, weight_decay=0.0)
    records = work.records(site)
    labels = work.labels(records)
    for chosen in work.order[round][site]:
        optimizer.zero_grad()
        model(input_ids=records[chosen].to(work.device), labels=labels[chosen].to(work.device)).loss.backward()
        optimizer.step()
    return {name: tensor.detach().cpu().clone() for name, tensor in get_peft_model_state_dict(model).items()}
