"""Ways (h) and (g): Opacus on a PEFT model, as an application that uses both writes it."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
from dp import NOISE, NORM
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from peft_site import build, start
from torch.nn import functional as F
from work import EPS, Work, finish, gpu_peak, learnt, timing


def main(work: Work, out: str, way: str) -> None:
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    peft = build(work)
    set_peft_model_state_dict(peft, start(peft))
    peft.train()
    if way == "g":
        model: Any = GradSampleModuleFastGradientClipping(peft, max_grad_norm=NORM, use_ghost_clipping=True)
    else:
        model = GradSampleModule(peft)
    adapter, seconds = {}, list[float]()
    for round in range(work.rounds):
        with timing(seconds):
            step(work, model, way, round)
            if work.device.startswith("cuda"):
                torch.cuda.synchronize()
        if round == 0:
            adapter = {name: tensor.detach().cpu().clone() for name, tensor in get_peft_model_state_dict(peft).items()}
    finish(out, learnt(adapter), seconds, gpu_peak(work))


def step(work: Work, model: Any, way: str, round: int) -> None:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = (DPOptimizerFastGradientClipping if way == "g" else DPOptimizer)(
        torch.optim.AdamW(parameters, lr=work.lr, eps=EPS, weight_decay=0.0),
        noise_multiplier=NOISE if round else 0.0,
        max_grad_norm=NORM,
        expected_batch_size=work.batch,
    )
    optimizer.zero_grad()
    losses = record_losses(work, model)
    if way == "g":
        DPTensorFastGradientClipping(model, optimizer, losses).backward()
    else:
        losses.mean().backward()
    optimizer.step()


def record_losses(work: Work, model: Any) -> torch.Tensor:
    """Each record's mean token loss."""
    records = work.records(0)
    labels = work.labels(records)[:, 1:].to(work.device)
    # Opacus tells examples apart by the first dimension of every input, so positions have to have one.
    positions = torch.arange(work.length).expand(len(records), -1).to(work.device)
    logits = model(input_ids=records.to(work.device), position_ids=positions).logits[:, :-1]
    losses = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none").view(labels.shape)
    return losses.sum(1) / (labels >= 0).sum(1)


if __name__ == "__main__":
    main(Work.read(sys.argv[1]), sys.argv[2], sys.argv[3])
