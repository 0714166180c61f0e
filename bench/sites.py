"""Many simulated sites in the memory of few: the same experiment with 1,000 sites and with 10.

Each runs in a process of its own through all that a user's run goes through (data, fleet, local engine, server,
measurements, checkpoints), with a small model that is built here. Replies go into a running mean, so a site adds only
its records, not its adapter.

    python bench/sites.py
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measure import MEMORY_IN_WORDS, Cost, machine, measure
from shapes import Shape, save_random, save_tokenizer

HERE = Path(__file__).parent
SHAPE = Shape(layers=4, hidden=256, intermediate=512, heads=4, key_value_heads=2, vocabulary=512)
RECORDS = 2  # of each site
RANK = 32


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=1000, help="sites of the one run")
    parser.add_argument("--few", type=int, default=10, help="sites of the other")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)  # the work of one process: a folder made here
    options = parser.parse_args(arguments)
    if options.one:
        simulate(options.one)
        return 0
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        save_random(folder / "model", SHAPE, "float32")
        save_tokenizer(folder / "model")
        print(f"machine: {machine()}")
        print(f"memory: {MEMORY_IN_WORDS}", flush=True)
        costs = {sites: once(folder, sites, options.rounds) for sites in (options.few, options.many)}
        for sites, cost in costs.items():
            print(f"{sites:6} sites: {cost.memory / 1e9:5.2f} GB at the peak, {cost.wall:6.1f} s", flush=True)
        print(f"all {options.many} adapters at once would take {options.many * adapter_bytes() / 1e9:.2f} GB")
        ratio = costs[options.many].memory / costs[options.few].memory
        print(f"peak memory of {options.many} sites / {options.few} sites: {ratio:.2f}")
    return 0


def adapter_bytes() -> int:
    """Bytes of one adapter on q and v: A [rank, in] and B [out, rank] in float32."""
    value = SHAPE.hidden * SHAPE.key_value_heads // SHAPE.heads
    return 4 * SHAPE.layers * RANK * (2 * SHAPE.hidden + SHAPE.hidden + value)


def once(folder: Path, sites: int, rounds: int) -> Cost:
    """One run in its own process."""
    place = folder / f"sites-{sites}"
    place.mkdir()
    write_records(place / "train.jsonl", sites * RECORDS, "note")
    write_records(place / "heldout.jsonl", 16, "public note")
    (place / "run.json").write_text(json.dumps(experiment(folder / "model", place, sites, rounds)))
    return measure(
        [sys.executable, str(HERE / "sites.py"), "--one", str(place)], {"HF_HUB_OFFLINE": "1"}, place / "log"
    )


def simulate(place: Path) -> None:
    from murmura.experiment import Experiment
    from murmura.experiment.run import run

    run(Experiment.of(json.loads((place / "run.json").read_text())))


def experiment(model: Path, place: Path, sites: int, rounds: int) -> dict[str, object]:
    files = {name: str(place / f"{name}.jsonl") for name in ("train", "heldout")}
    return {
        "run": {"folder": str(place / "run")},
        "model": {"name": str(model), "device": "cpu"},
        "lora": {"rank": RANK},
        "data": {**files, "max_length": 256, "sites": {"by": "partition", "count": sites}},
        "training": {"batch_size": RECORDS},
        "method": {"name": "fedit", "rounds": rounds},
        "evaluation": {"sample": 4},
    }


def write_records(path: Path, count: int, kind: str) -> None:
    lines = ({"instruction": f"File {kind} {k}.", "output": f"{kind} {k} is filed."} for k in range(count))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
