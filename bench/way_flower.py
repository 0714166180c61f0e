"""Way (a): a minimal application on Flower's simulation engine, of the kind that its LLM fine-tuning example shows.

Each message makes the site load the base model, put the adapter in, train and send the adapter back. Left out is what
would only make it slower: a trainer class, data sets, quantisation, evaluation.
"""

from __future__ import annotations

import sys

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from timed_fedavg import TimedFedAvg
from work import Work, finish, gpu_peak, learnt


def client(work_file: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        import peft_site

        work = Work.read(work_file)
        model = peft_site.build(work)
        adapter = message.content["arrays"].to_torch_state_dict()
        site = int(context.node_config["partition-id"])
        trained = peft_site.train(work, model, adapter, site, int(message.content["config"]["server-round"]) - 1)
        metrics = MetricRecord({"num-examples": work.steps * work.batch, "gpu-peak": gpu_peak(work)})
        return Message(RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics}), reply_to=message)

    return app


def server(work: Work, out: str) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        import peft_site

        begin = peft_site.start(peft_site.build(work))
        strategy = TimedFedAvg(fraction_evaluate=0.0, min_train_nodes=work.sites, min_available_nodes=work.sites)
        result = strategy.start(
            grid=grid, initial_arrays=ArrayRecord(begin), num_rounds=work.rounds, train_config=ConfigRecord({})
        )
        finish(out, learnt(result.arrays.to_torch_state_dict()), strategy.seconds, strategy.gpu_peak)

    return app


if __name__ == "__main__":
    the_work = Work.read(sys.argv[1])
    gpus = 1.0 / the_work.actors if the_work.device.startswith("cuda") else 0.0
    run_simulation(
        server(the_work, sys.argv[2]),
        client(sys.argv[1]),
        num_supernodes=the_work.sites,
        backend_config={
            "client_resources": {"num_cpus": the_work.cores // the_work.actors, "num_gpus": gpus},
            "init_args": {"num_cpus": the_work.cores, "include_dashboard": False},
        },
    )
