"""A step of DP-SGD on a LoRA adapter four ways, each in a process of its own from start to exit.

(h) Opacus' GradSampleModule, which hooks every adapted layer, on a PEFT model,
(g) Opacus' ghost clipping, which makes norms without gradients and goes backward twice, on the same,
(m) Murmura's private step,
(n) Murmura's step without privacy.

    python bench/dp.py                                     the table of README (ways h g m n, three times in turn)
    python bench/dp.py --random tiny --length 16           any shape with random weights; nothing is downloaded
    python bench/dp.py --random 1b --device cuda --dtype bfloat16 --batch 32
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

from cohort import SAME, python_path
from measure import MEMORY_IN_WORDS, cores, machine, measure
from shapes import SHAPES, save_random, shape
from work import Work

HERE = Path(__file__).parent
WAYS = {
    "h": (("way_opacus.py", "hooks"), "Opacus, hooks"),
    "g": (("way_opacus.py", "ghost"), "Opacus, ghost clipping"),
    "m": (("way_private.py", "private"), "Murmura"),
    "n": (("way_private.py", "plain"), "Murmura, not private"),
}
NORM, NOISE = 0.1, 1.0  # what examples are clipped to, and the noise in units of it; the first step has none


@dataclass(frozen=True)
class Figures:
    """What one run of one way cost: seconds of a step (the median, without the first), bytes at the peak."""

    step: float
    memory: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if adapters after the step without noise differ by more than they may, else 0."""
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
                figures[way].append(once(way, work, folder))
                print(f"  run {repeat + 1} {way}: {show(figures[way][-1])}", flush=True)
        print_table({way: middle(found) for way, found in figures.items()}, options.repeats)
        return print_differences(ways, folder, strict=work.dtype == "float32" and not on_gpu(work))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model", default="smollm2-135m", help="an alias, a folder or a Hugging Face id")
    model.add_argument("--random", choices=SHAPES, help="a model of this shape with random weights")
    for name, default in (("steps", 5), ("batch", 8), ("length", 128), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--labelled-half", action="store_true", help="label the second half of each record only")
    parser.add_argument("--ways", default="h,g,m,n", help="which ways, in the order they take turns")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--cores", type=int, default=cores(), help="CPU cores to use")
    options = parser.parse_args(arguments)
    options.ways = options.ways.split(",")
    if not set(options.ways) <= WAYS.keys():
        parser.error("--ways: h, g, m and n, with commas")
    if options.steps < 2:
        parser.error("--steps: at least 2, the first is not timed")
    return options


def available(ways: Sequence[str]) -> list[str]:
    """The ways that can be measured here; says what is missing for others."""
    if {"h", "g"} & set(ways) and importlib.util.find_spec("opacus") is None:
        print("ways (h) and (g) are left out: Opacus is not installed. pip install 'murmura[dev]'")
        return [way for way in ways if way not in ("h", "g")]
    return list(ways)


def the_work(options: argparse.Namespace, folder: Path) -> Work:
    """One site that takes all its records in one step a round."""
    if options.random:
        model = folder / "model"
        save_random(model, shape(options.random), options.dtype)
    else:
        from murmura.models import resolve

        model = resolve(options.model)
    return Work(
        model=str(model), vocabulary=json.loads((model / "config.json").read_text())["vocab_size"], sites=1,
        rounds=options.steps, steps=1, batch=options.batch, length=options.length,
        labelled=options.length // 2 if options.labelled_half else options.length, order=[],
        device=options.device, dtype=options.dtype, tokens_per_pass=options.batch * options.length,
        cores=options.cores, actors=1,
    )  # fmt: skip


def once(way: str, work: Work, folder: Path) -> Figures:
    """Run one way in its own process; its adapter after the first step stays in ``folder/WAY``."""
    out = folder / way
    out.mkdir(exist_ok=True)
    environment = {
        "OMP_NUM_THREADS": str(work.cores), "MKL_NUM_THREADS": str(work.cores), "PYTHONPATH": python_path(),
        "HF_HUB_OFFLINE": "1",
        "OMP_WAIT_POLICY": "PASSIVE",  # as `murmura run` sets it; for all ways, so that a busy core disturbs none more
    }  # fmt: skip
    program, kind = WAYS[way][0]
    cost = measure(
        [sys.executable, str(HERE / program), str(folder / "work.json"), str(out), kind], environment, out / "log"
    )
    result = json.loads((out / "result.json").read_text())
    return Figures(median(result["seconds"][1:]), result["gpu_peak"] if on_gpu(work) else cost.memory)


def on_gpu(work: Work) -> bool:
    return work.device.startswith("cuda")


def in_words(work: Work, options: argparse.Namespace) -> str:
    model = f"random {options.random}" if options.random else options.model
    return (
        f"{model} in {work.dtype}, {work.rounds} steps of {work.batch} x {work.length} tokens "
        f"({work.labelled} labelled), {work.cores} cores, norm {NORM}, noise {NOISE}"
    )


def middle(found: Sequence[Figures]) -> Figures:
    return Figures(median(f.step for f in found), int(median(f.memory for f in found)))


def show(figures: Figures) -> str:
    return f"{figures.step:7.3f} s {figures.memory / 1e9:9.2f} GB"


def print_table(medians: Mapping[str, Figures], repeats: int) -> None:
    print(f"\n{f'medians of {repeats}':28}{'a step':>10}{'peak memory':>14}")
    for way, found in medians.items():
        print(f"{f'({way}) {WAYS[way][1]}':28}{found.step:8.3f} s{found.memory / 1e9:11.2f} GB")
    if "m" not in medians:
        return
    ours = medians["m"]
    for way in (way for way in ("h", "g") if way in medians):
        speed, memory = medians[way].step / ours.step, ours.memory / medians[way].memory
        print(f"{f'(m) against ({way})':28}{speed:7.2f}x faster{memory:7.2f}x memory")
    if "n" in medians:
        time, memory = ours.step / medians["n"].step, ours.memory / medians["n"].memory
        print(f"{'(m) against (n)':28}{time:7.2f}x the time{memory:5.2f}x memory")


def print_differences(ways: Sequence[str], folder: Path, *, strict: bool) -> int:
    """Print how far the private ways are apart after the step without noise; 1 if ``strict`` and it is too far."""
    from safetensors.torch import load_file

    adapters = {way: load_file(folder / way / "adapter.safetensors") for way in ways if way != "n"}
    status = 0
    for way in (way for way in adapters if way != "m" and "m" in adapters):
        far = max(float((tensor - adapters["m"][name]).abs().max()) for name, tensor in adapters[way].items())
        verdict = "the same" if far <= SAME else "NOT the same"
        print(f"clipped steps of (m) and ({way}): largest difference {far:.1e}" + (f", {verdict}" if strict else ""))
        status |= strict and far > SAME
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
