"""LP-FL's two costs against what they need at least, each way in a process of its own from start to exit.

(a) Murmura's annotation: from texts to soft labels, through all patterns,
(p) the plain passes that takes: the same tokens, made before, through a PEFT model and its head at the blank only,
(s) Murmura's training step of a batch in all patterns,
(l) Murmura's step of a batch that has as many records as (s) has texts times patterns.

    python bench/lpfl.py                                   the table of README (ways a p s l, three times in turn)
    python bench/lpfl.py --random tiny --length 64         any shape with random weights; nothing is downloaded
    python bench/lpfl.py --device cuda --dtype bfloat16 --texts 10000
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from cohort import SAME, on_gpu, python_path
from measure import MEMORY_IN_WORDS, cores, machine, measure
from shapes import SHAPES, save_random, save_tokenizer, shape
from work import ClozeWork

HERE = Path(__file__).parent
WAYS = {
    "a": "Murmura, annotation",
    "p": "plain passes with PEFT",
    "s": "Murmura, step in patterns",
    "l": "Murmura, larger batch",
}
PAIRS = (("a", "p"), ("s", "l"))


@dataclass(frozen=True)
class Figures:
    """What one run of one way cost: seconds of all texts or of a step, bytes at the peak."""

    seconds: float
    memory: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if soft labels of (a) and (p) differ by more than they may, else 0."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        work = the_work(options, folder)
        work.write(folder / "work.json")
        print(f"machine: {machine()}")
        print(f"work: {in_words(work, options)}")
        print(f"memory: {'peak that CUDA allocated' if on_gpu(work) else MEMORY_IN_WORDS}", flush=True)
        figures: dict[str, list[Figures]] = {way: [] for way in options.ways}
        for repeat in range(options.repeats):
            for way in options.ways:
                figures[way].append(once(way, work, folder))
                print(f"  run {repeat + 1} {way}: {show(figures[way][-1])}", flush=True)
        print_table({way: middle(found) for way, found in figures.items()}, options.repeats)
        return print_difference(options.ways, folder, strict=work.dtype == "float32" and not on_gpu(work))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model", default="smollm2-135m", help="an alias, a folder or a Hugging Face id")
    model.add_argument("--random", choices=SHAPES, help="a model of this shape with random weights")
    for name, default in (("texts", 100), ("length", 128), ("steps", 5), ("batch", 8), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--ways", default="a,p,s,l", help="which ways, in the order they take turns")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument(
        "--tokens-per-pass", type=int, help="Murmura's training.tokens_per_pass; annotation takes twice"
    )
    parser.add_argument("--cores", type=int, default=cores(), help="CPU cores to use")
    options = parser.parse_args(arguments)
    options.ways = options.ways.split(",")
    if not set(options.ways) <= WAYS.keys():
        parser.error("--ways: a, p, s and l, with commas")
    if options.steps < 2:
        parser.error("--steps: at least 2, the first is not timed")
    return options


def the_work(options: argparse.Namespace, folder: Path) -> ClozeWork:
    if options.random:
        model = folder / "model"
        save_random(model, shape(options.random), options.dtype)
        save_tokenizer(model)
    else:
        from murmura.models import resolve

        model = resolve(options.model)
    defaults = {"cpu": 1024, "cuda": 16_384}
    return ClozeWork(
        model=str(model), vocabulary=json.loads((model / "config.json").read_text())["vocab_size"], sites=1,
        rounds=options.steps, steps=1, batch=options.batch, length=options.length, labelled=1, order=[],
        device=options.device, dtype=options.dtype,
        tokens_per_pass=options.tokens_per_pass or defaults[options.device.partition(":")[0]],
        cores=options.cores, actors=1, texts=options.texts,
    )  # fmt: skip


def once(way: str, work: ClozeWork, folder: Path) -> Figures:
    """Run one way in its own process; soft labels stay in ``folder/WAY``."""
    out = folder / way
    out.mkdir(exist_ok=True)
    environment = {
        "OMP_NUM_THREADS": str(work.cores), "MKL_NUM_THREADS": str(work.cores), "PYTHONPATH": python_path(),
        "HF_HUB_OFFLINE": "1",
        "OMP_WAIT_POLICY": "PASSIVE",  # as `murmura run` sets it; for all ways, so that a busy core disturbs none more
    }  # fmt: skip
    program = HERE / ("way_cloze_passes.py" if way == "p" else "way_cloze.py")
    cost = measure([sys.executable, str(program), str(folder / "work.json"), str(out), way], environment, out / "log")
    result = json.loads((out / "result.json").read_text())
    return Figures(median(result["seconds"][1:]), result["gpu_peak"] if on_gpu(work) else cost.memory)


def in_words(work: ClozeWork, options: argparse.Namespace) -> str:
    model = f"random {options.random}" if options.random else options.model
    return (
        f"{model} in {work.dtype}, {work.texts} texts x {len(work.patterns)} patterns of at most {work.length} tokens; "
        f"{work.rounds} steps of {work.batch} x {len(work.patterns)}; {work.cores} cores, "
        f"{work.tokens_per_pass} tokens a pass, {2 * work.tokens_per_pass} to annotate"
    )


def middle(found: Sequence[Figures]) -> Figures:
    return Figures(median(f.seconds for f in found), int(median(f.memory for f in found)))


def show(figures: Figures) -> str:
    return f"{figures.seconds:7.3f} s {figures.memory / 1e9:9.2f} GB"


def print_table(medians: Mapping[str, Figures], repeats: int) -> None:
    print(f"\n{f'medians of {repeats}':30}{'seconds':>10}{'peak memory':>14}")
    for way, found in medians.items():
        print(f"{f'({way}) {WAYS[way]}':30}{found.seconds:8.3f} s{found.memory / 1e9:11.2f} GB")
    for way, other in PAIRS:
        if way in medians and other in medians:
            time = medians[way].seconds / medians[other].seconds
            memory = medians[way].memory / medians[other].memory
            print(f"{f'({way}) against ({other})':30}{time:7.2f}x the time{memory:5.2f}x memory")


def print_difference(ways: Sequence[str], folder: Path, *, strict: bool) -> int:
    """Print how far soft labels of (a) and (p) are apart; 1 if ``strict`` and it is too far."""
    if not {"a", "p"} <= set(ways):
        return 0
    from safetensors.torch import load_file

    found, plain = (load_file(folder / way / "adapter.safetensors")["labels"] for way in ("a", "p"))
    far = float((found - plain).abs().max())
    verdict = "the same" if far <= SAME else "NOT the same"
    print(f"soft labels of (a) and (p): largest difference {far:.1e}" + (f", {verdict}" if strict else ""))
    return int(strict and far > SAME)


if __name__ == "__main__":
    sys.exit(main())
