"""The same federated fine-tuning three ways, each in a process of its own from start to exit.

(a) a minimal application on Flower's simulation engine, which loads the base model for each site in each round,
(b) one resident model with a PEFT adapter, site after site,
(c) Murmura's bank, all sites at once.

    python bench/cohort.py                                 the table of README (ways a b c, three times in turn)
    python bench/cohort.py --labelled-half                 as in instruction tuning: only the second half is learnt
    python bench/cohort.py --random 1b --device cuda --dtype bfloat16 --sites 10 --batch 8 --length 128
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from measure import MEMORY_IN_WORDS, cores, machine, measure
from shapes import SHAPES, save_random, shape
from work import Work

HERE = Path(__file__).parent
WAYS = {
    "a": ("way_flower.py", "Flower simulation"),
    "b": ("way_peft.py", "PEFT, site by site"),
    "c": ("way_bank.py", "Murmura"),
}
SAME = 1e-4  # largest difference between final adapters of ways that do the same in float32


@dataclass(frozen=True)
class Figures:
    """What one run of one way cost: seconds from start to exit, seconds of its last round, bytes at the peak."""

    wall: float
    round: float
    memory: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if final adapters differ by more than they may, else 0."""
    options = parse(arguments)
    ways = available(options.ways)
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        work = the_work(options, folder)
        work.write(folder / "work.json")
        print(f"machine: {machine()}")
        print(f"work: {in_words(work, options)}")
        print(f"memory: {'peak that CUDA allocated' if on_gpu(work) else MEMORY_IN_WORDS}", flush=True)
        figures: dict[str, list[Figures]] = {way: [] for way in ways}
        for repeat in range(options.repeats):
            for way in ways:
                found = once(way, work, folder)
                figures[way].append(found)
                print(f"  run {repeat + 1} {way}: {show(found)}", flush=True)
        medians = {way: middle(found) for way, found in figures.items()}
        print_table(medians, options.repeats)
        return print_differences(ways, folder, strict=work.dtype == "float32" and not on_gpu(work))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model", default="smollm2-135m", help="an alias, a folder or a Hugging Face id")
    model.add_argument("--random", choices=SHAPES, help="a model of this shape with random weights")
    parser.add_argument("--layers", type=int, help="with --random: so many layers")
    parser.add_argument("--hidden", type=int, help="with --random: so wide")
    for name, default in (("sites", 4), ("rounds", 2), ("steps", 2), ("batch", 4), ("length", 64), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--labelled-half", action="store_true", help="label the second half of each record only")
    parser.add_argument("--ways", default="a,b,c", help="which ways, in the order they take turns")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--tokens-per-pass", type=int, help="Murmura's training.tokens_per_pass")
    parser.add_argument("--cores", type=int, default=cores(), help="CPU cores to use")
    parser.add_argument("--actors", type=int, default=1, help="processes that Flower simulates sites in")
    options = parser.parse_args(arguments)
    options.ways = options.ways.split(",")
    if not set(options.ways) <= WAYS.keys():
        parser.error("--ways: a, b and c, with commas")
    if (options.layers or options.hidden) and not options.random:
        parser.error("--layers and --hidden shape a model of --random")
    if not 1 <= options.actors <= options.cores:
        parser.error("--actors: at least 1, at most --cores")
    return options


def available(ways: Sequence[str]) -> list[str]:
    """The ways that can be measured here; says what is missing for others."""
    if "a" in ways and importlib.util.find_spec("flwr") is None:
        print("way (a) is left out: Flower is not installed. pip install 'murmura[flower-bench]'")
        return [way for way in ways if way != "a"]
    return list(ways)


def the_work(options: argparse.Namespace, folder: Path) -> Work:
    if options.random:
        model = folder / "model"
        save_random(model, shape(options.random, options.layers, options.hidden), options.dtype)
    else:
        from murmura.models import resolve

        model = resolve(options.model)
    defaults = {"cpu": 1024, "cuda": 16_384}
    return Work(
        model=str(model), vocabulary=json.loads((model / "config.json").read_text())["vocab_size"],
        sites=options.sites, rounds=options.rounds, steps=options.steps, batch=options.batch, length=options.length,
        labelled=options.length // 2 if options.labelled_half else options.length, order=orders(options),
        device=options.device, dtype=options.dtype,
        tokens_per_pass=options.tokens_per_pass or defaults[options.device.partition(":")[0]],
        cores=options.cores, actors=options.actors,
    )  # fmt: skip


def orders(options: argparse.Namespace) -> list[list[list[list[int]]]]:
    """The order in which Murmura will take each site's records."""
    from way_bank import stream

    from murmura.training.config import LocalTraining
    from murmura.training.loop import batches

    training = LocalTraining(batch_size=options.batch)
    count = options.steps * options.batch
    return [
        [list(batches(count, training, stream(site, round))) for site in range(options.sites)]
        for round in range(options.rounds)
    ]


def once(way: str, work: Work, folder: Path) -> Figures:
    """Run one way in its own process; its adapter stays in ``folder/WAY``."""
    out = folder / way
    out.mkdir(exist_ok=True)
    threads = str(work.cores // work.actors if way == "a" else work.cores)
    environment = {
        "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONPATH": python_path(), "HF_HUB_OFFLINE": "1",
        "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0",
        "FLWR_HOME": str(folder / "flower"),
        "OMP_WAIT_POLICY": "PASSIVE",  # as `murmura run` sets it; for all ways, so that a busy core disturbs none more
    }  # fmt: skip
    program = [sys.executable, str(HERE / WAYS[way][0]), str(folder / "work.json"), str(out)]
    cost = measure(program, environment, out / "log")
    result = json.loads((out / "result.json").read_text())
    return Figures(cost.wall, result["seconds"][-1], result["gpu_peak"] if on_gpu(work) else cost.memory)


def python_path() -> str:
    """Where the ways find each other's modules, also in processes that Ray starts."""
    import murmura

    return f"{HERE}:{Path(murmura.__file__).parents[1]}"


def on_gpu(work: Work) -> bool:
    return work.device.startswith("cuda")


def in_words(work: Work, options: argparse.Namespace) -> str:
    model = f"random {options.random}" if options.random else options.model
    return (
        f"{model} in {work.dtype}, {work.sites} sites x {work.rounds} rounds x {work.steps} steps of "
        f"{work.batch} x {work.length} tokens ({work.labelled} labelled), {work.cores} cores, "
        f"{work.tokens_per_pass} tokens a pass in (c)"
    )


def middle(found: Sequence[Figures]) -> Figures:
    return Figures(median(f.wall for f in found), median(f.round for f in found), int(median(f.memory for f in found)))


def show(figures: Figures) -> str:
    return f"{figures.wall:7.2f} s {figures.round:9.2f} s {figures.memory / 1e9:9.2f} GB"


def print_table(medians: Mapping[str, Figures], repeats: int) -> None:
    print(f"\n{f'medians of {repeats}':24}{'start to exit':>14}{'last round':>12}{'peak memory':>14}")
    for way, found in medians.items():
        print(f"{f'({way}) {WAYS[way][1]}':24}{found.wall:12.2f} s{found.round:10.2f} s{found.memory / 1e9:11.2f} GB")
    for way in (way for way in ("a", "b") if way in medians and "c" in medians):
        other, ours = medians[way], medians["c"]
        ratios = other.wall / ours.wall, other.round / ours.round, ours.memory / other.memory
        print(f"{f'(c) against ({way})':24}{ratios[0]:7.2f}x faster{ratios[1]:5.2f}x faster{ratios[2]:7.2f}x memory")


def print_differences(ways: Sequence[str], folder: Path, *, strict: bool) -> int:
    """Print how far final adapters are apart; 1 if ``strict`` and it is too far."""
    from safetensors.torch import load_file

    adapters = {way: load_file(folder / way / "adapter.safetensors") for way in ways}
    status = 0
    for way in (way for way in ways if way != "b" and "b" in ways):
        far = max(float((tensor - adapters["b"][name]).abs().max()) for name, tensor in adapters[way].items())
        verdict = "the same" if far <= SAME else "NOT the same"
        print(f"final adapters of ({way}) and (b): largest difference {far:.1e}" + (f", {verdict}" if strict else ""))
        status |= strict and far > SAME
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
