"""Many simulated sites in the memory of few: the same experiment with 1,000 sites and with 10.

Each runs in a process of its own through all that a user's run goes through (data, fleet, local engine, server,
measurements, checkpoints), with a small model that is built here. Replies go into a running mean, so a site adds only
its records, not its adapter. In PrE-Text sites vote, and train nothing.

    python bench/sites.py                                          FedIT
    python bench/sites.py --secure --many 300                      FedIT, in secure sums
    python bench/sites.py --method pretext --many 100000 --few 1000
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from measure import MEMORY_IN_WORDS, Cost, machine, measure
from shapes import SHAPES, Shape, save_random, save_tokenizer

HERE = Path(__file__).parent
# And the rank of its adapters, which are as large either way.
MODELS = {
    "small": (Shape(layers=4, hidden=256, intermediate=512, heads=4, key_value_heads=2, vocabulary=512), 32),
    "tiny": (SHAPES["tiny"], 256),
}
RECORDS = 2  # of each site


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=1000, help="sites of the one run")
    parser.add_argument("--few", type=int, default=10, help="sites of the other")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--method", choices=["fedit", "pretext"], default="fedit")
    parser.add_argument("--model", choices=list(MODELS), default="small")
    parser.add_argument("--secure", action="store_true", help="sums under masks")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)  # the work of one process: a folder made here
    options = parser.parse_args(arguments)
    if options.one:
        simulate(options.one)
        return 0
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        save_models(folder, options)
        print(f"machine: {machine()}")
        print(f"memory: {MEMORY_IN_WORDS}", flush=True)
        costs = {sites: once(folder, sites, options) for sites in (options.few, options.many)}
        for sites, cost in costs.items():
            print(f"{sites:6} sites: {cost.memory / 1e9:5.2f} GB at the peak, {cost.wall:6.1f} s", flush=True)
        if options.method == "fedit":
            every = options.many * adapter_bytes(options.model)
            print(f"all {options.many} adapters at once would take {every / 1e9:.2f} GB")
        few, many = costs[options.few], costs[options.many]
        each = (many.memory - few.memory) / (options.many - options.few)
        print(f"peak memory of {options.many} sites / {options.few} sites: {many.memory / few.memory:.2f}")
        print(
            f"{each / 1e3:.1f} kB a site more, and {1e3 * (many.wall - few.wall) / (options.many - options.few):.1f} ms"
        )
    return 0


def save_models(folder: Path, options: argparse.Namespace) -> None:
    """What a run needs: a model, and for PrE-Text an encoder, and one that fills in masks."""
    shape, _ = MODELS[options.model]
    save_random(folder / "model", shape, "float32")
    save_tokenizer(folder / "model")
    if options.method == "pretext":
        import torch
        from transformers import BertConfig, BertForMaskedLM, BertModel

        torch.manual_seed(0)
        small = BertConfig(
            vocab_size=shape.vocabulary,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
        )
        for name, model in {"encoder": BertModel(small), "masked": BertForMaskedLM(small)}.items():
            model.save_pretrained(folder / name)
            save_tokenizer(folder / name)


def adapter_bytes(model: str) -> int:
    """Bytes of one adapter on q and v: A [rank, in] and B [out, rank] in float32."""
    shape, rank = MODELS[model]
    value = shape.hidden * shape.key_value_heads // shape.heads
    return 4 * shape.layers * rank * (2 * shape.hidden + shape.hidden + value)


def once(folder: Path, sites: int, options: argparse.Namespace) -> Cost:
    """One run in its own process."""
    place = folder / f"sites-{sites}"
    place.mkdir()
    make = training if options.method == "fedit" else voting
    table = make(folder, place, sites, options)
    if options.secure:
        table |= {"aggregation": {"secure": True}, "evaluation": {"uploads": 0, "attacks": False}}
    (place / "run.json").write_text(json.dumps(table))
    return measure(
        [sys.executable, str(HERE / "sites.py"), "--one", str(place)], {"HF_HUB_OFFLINE": "1"}, place / "log"
    )


def simulate(place: Path) -> None:
    from murmura.experiment import Experiment
    from murmura.experiment.run import run

    run(Experiment.of(json.loads((place / "run.json").read_text())))


def training(folder: Path, place: Path, sites: int, options: argparse.Namespace) -> dict[str, object]:
    """An experiment in which sites train."""
    write_records(place / "train.jsonl", sites * RECORDS, "note")
    write_records(place / "heldout.jsonl", 16, "public note")
    return {
        **common(folder, place, sites),
        "lora": {"rank": MODELS[options.model][1]},
        "training": {"batch_size": RECORDS},
        "method": {"name": "fedit", "rounds": options.rounds},
        "evaluation": {"sample": 4},
    }


def voting(folder: Path, place: Path, sites: int, options: argparse.Namespace) -> dict[str, object]:
    """An experiment in which sites vote for public texts."""
    for name, kind, count in (("train", "note", sites), ("heldout", "public note", 16), ("public", "public file", 256)):
        write_lines(place / f"{name}.jsonl", ({"text": f"File {kind} {k}, which is filed."} for k in range(count)))
    method = {"name": "pretext", "rounds": options.rounds, "public": str(place / "public.jsonl"), "public_words": 3}
    method |= {"encoder": str(folder / "encoder"), "variation_model": str(folder / "masked"), "population": 64}
    method |= {"lookahead": 1, "text_tokens": 48, "samples": 0, "noise_multiplier": 0.5, "threshold": 0.0, "steps": 1}
    return {**common(folder, place, sites), "method": method}


def common(folder: Path, place: Path, sites: int) -> dict[str, object]:
    files = {name: str(place / f"{name}.jsonl") for name in ("train", "heldout")}
    return {
        "run": {"folder": str(place / "run")},
        "model": {"name": str(folder / "model"), "device": "cpu"},
        "data": {**files, "max_length": 256, "sites": {"by": "partition", "count": sites}},
    }


def write_records(path: Path, count: int, kind: str) -> None:
    write_lines(path, ({"instruction": f"File {kind} {k}.", "output": f"{kind} {k} is filed."} for k in range(count)))


def write_lines(path: Path, lines: Iterable[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
