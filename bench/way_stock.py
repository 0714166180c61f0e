"""Way (s) of engine.py: an application on Flower's own SuperLink and SuperNodes, of the kind that its LLM fine-tuning
example shows; each message makes a process that loads the model, puts the adapter in, trains and sends it back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from timed_fedavg import TimedFedAvg

client_app = ClientApp()
server_app = ServerApp()
ROUNDS, STEPS, BATCH, LENGTH = 4, 2, 4, 64


def build(folder: str) -> Any:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return get_peft_model(base, LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"]))


@client_app.train()
def train(message: Message, context: Context) -> Message:
    import torch
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    model = build(json.loads(str(context.run_config["murmura"]))["model"])
    set_peft_model_state_dict(model, message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, weight_decay=0.0)
    tokens = torch.randint(10, 40000, (STEPS, BATCH, LENGTH))
    model.train()
    for step in tokens:
        model(input_ids=step, labels=step).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    adapter = {name: tensor.detach() for name, tensor in get_peft_model_state_dict(model).items()}
    metrics = MetricRecord({"num-examples": STEPS * BATCH})
    return Message(RecordDict({"arrays": ArrayRecord(adapter), "metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    from peft import get_peft_model_state_dict

    told = json.loads(str(context.run_config["murmura"]))
    strategy = TimedFedAvg(fraction_evaluate=0.0, min_train_nodes=4, min_available_nodes=4)
    begin = ArrayRecord({k: v.detach() for k, v in get_peft_model_state_dict(build(told["model"])).items()})
    strategy.start(grid=grid, initial_arrays=begin, num_rounds=ROUNDS, train_config=ConfigRecord({}))
    Path(told["folder"], "stock.json").write_text(json.dumps(strategy.seconds))
