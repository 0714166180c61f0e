"""What programs that compare ways share: their options, ways in turn, medians and differences."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from measure import MEMORY_IN_WORDS, cores, machine, measure
from shapes import SHAPES, save_random, save_tokenizer, shape
from work import Work

from murmura.third_party import settle

HERE = Path(__file__).parent
SAME = 1e-4  # of the largest value: how far apart what ways find may be that do the same in float32
Pair = tuple[str, str]
Made = TypeVar("Made", bound=Work)


@dataclass(frozen=True)
class Figures:
    """What one run of one way cost: seconds from start to exit, seconds of its work alone, bytes at the peak."""

    wall: float
    seconds: float
    memory: int


def plain_parser(what: str | None, ways: Sequence[str], **numbers: int) -> argparse.ArgumentParser:
    """Options that all have: which ways, where they compute, and whole numbers with these defaults."""
    made = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (numbers | {"repeats": 3}).items():
        made.add_argument(f"--{name}", type=int, default=default)
    made.add_argument(
        "--ways", type=lambda text: text.split(","), default=list(ways), help="which, in the order they take turns"
    )
    made.add_argument("--device", default="cpu", help="cpu or cuda")
    made.add_argument("--cores", type=int, default=cores(), help="CPU cores to use")
    return made


def parser(what: str | None, ways: Sequence[str], **numbers: int) -> argparse.ArgumentParser:
    """The same with a model."""
    made = plain_parser(what, ways, **numbers)
    model = made.add_mutually_exclusive_group()
    model.add_argument("--model", default="smollm2-135m", help="an alias, a folder or a Hugging Face id")
    model.add_argument("--random", choices=SHAPES, help="a model of this shape with random weights")
    made.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    made.add_argument("--quantization", choices=("int8", "4bit"), help="of the frozen weights, by bitsandbytes")
    return made


def training_parser(what: str | None, ways: Sequence[str], **numbers: int) -> argparse.ArgumentParser:
    """The same with what is trained."""
    made = parser(what, ways, **numbers)
    made.add_argument("--labelled-half", action="store_true", help="label the second half of each record only")
    made.add_argument("--adapted", default="all", help="layers that carry adapters, as lora.layers: 'last 8'")
    return made


def parse(made: argparse.ArgumentParser, ways: Sequence[str], arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options given; ends the program, with a message, where a way is none of these."""
    options = made.parse_args(arguments)
    if not set(options.ways) <= set(ways):
        made.error(f"--ways: {', '.join(ways)}, with commas")
    if getattr(options, "quantization", None) and options.device == "cpu":
        made.error("--quantization needs --device cuda")
    return options


def available(ways: Sequence[str], package: str, of: Sequence[str], name: str, fix: str) -> list[str]:
    """The ways that can be measured here; says what is missing for others, the ones ``of`` a package."""
    missing = [way for way in ways if way in of] if importlib.util.find_spec(package) is None else []
    if missing:
        named = " and ".join(f"({way})" for way in missing)
        print(f"left out: {named}, since {name} is not installed. {fix}")
    return [way for way in ways if way not in missing]


def work_of(kind: type[Made], options: argparse.Namespace, folder: Path, **fixed: Any) -> Made:
    """The work as the options say, but for what is fixed; a random model is made in the folder."""
    if options.random:
        model = folder / "model"
        sizes = {name: getattr(options, name, None) for name in ("layers", "hidden")}
        save_random(model, shape(options.random, **sizes), options.dtype, options.device)
        save_tokenizer(model)
    else:
        from murmura.models import resolve

        model = resolve(options.model)
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    told = {one.name: getattr(options, one.name) for one in fields(kind) if hasattr(options, one.name)}
    found = {"model": str(model), "vocabulary": vocabulary, "tokens_per_pass": tokens_per_pass(options, model)}
    return kind(**told | found | fixed)


def tokens_per_pass(options: argparse.Namespace, model: Path) -> int:
    """Murmura's ``training.tokens_per_pass``: as given, or what "auto" is for this model on this device."""
    from transformers import AutoConfig

    from murmura.training import passes
    from murmura.training.targets import layer_range

    config = AutoConfig.from_pretrained(model)
    adapted = layer_range(getattr(options, "adapted", "all"), config.num_hidden_layers)
    below = adapted.start if adapted else 0
    return passes.tokens_per_pass(getattr(options, "tokens_per_pass", None) or "auto", config, options.device, below)


def name_of(options: argparse.Namespace) -> str:
    """The model in words."""
    name = f"random {options.random}" if options.random else str(options.model)
    return f"{name}, {options.quantization}," if options.quantization else name


def on_gpu(work: Work) -> bool:
    return work.device.startswith("cuda")


def is_exact(work: Work) -> bool:
    """Whether ways that do the same must come out the same, but for the order of sums."""
    return work.dtype == "float32" and not on_gpu(work)


@dataclass(frozen=True)
class Comparison:
    """Ways to do the same work, and what is compared of them.

    Attributes:
        names: each way in words.
        timed: what their seconds are of.
        pairs: the first of two is compared with the second.
        alike: pairs that must have found the same, by what they found.
        bounds: ways against which more time is taken, and not less.
        wall: whether the time from start to exit counts too.
        tokens: so many are written, and shown by the second; 0: seconds are shown.
    """

    names: Mapping[str, str]
    timed: str
    pairs: Sequence[Pair]
    alike: Mapping[str, Pair] = field(default_factory=dict)
    bounds: str = ""
    wall: bool = False
    tokens: int = 0

    def run(
        self, work: Work, words: str, options: argparse.Namespace, folder: Path, once: Callable[[str], Figures]
    ) -> int:
        """Run every way so many times, a b c a b c, print as it goes, then medians and how they compare; 1 if ways that
        must have found the same (in ``folder/WAY``) have not."""
        print(f"machine: {machine()}")
        print(f"work: {words}")
        print(f"memory: {'peak that CUDA allocated' if on_gpu(work) else MEMORY_IN_WORDS}", flush=True)
        figures: dict[str, list[Figures]] = {way: [] for way in options.ways}
        for repeat in range(options.repeats):
            for way in options.ways:
                figures[way].append(once(way))
                print(f"  run {repeat + 1} {way}: {self._show(figures[way][-1])}", flush=True)
        medians = {way: middle(found) for way, found in figures.items()}
        columns = f"{'start to exit':>14}" * self.wall + f"{self.timed:>14}{'peak memory':>14}"
        print(f"\n{f'medians of {options.repeats}':32}{columns}")
        for way, found in medians.items():
            print(f"{f'({way}) {self.names[way]}':32}{self._show(found)}")
        for one, other in self.pairs:
            if {one, other} <= medians.keys():
                print(f"{f'({one}) against ({other})':32}{self._ratios(medians[one], medians[other], other)}")
        alike = {words: pair for words, pair in self.alike.items() if medians.keys() >= {*pair}}
        return print_differences(folder, alike, strict=is_exact(work))

    def _show(self, found: Figures) -> str:
        speed = f"{self.tokens / found.seconds:12.1f}/s" if self.tokens else f"{found.seconds:12.4f} s"
        return f"{found.wall:12.2f} s" * self.wall + f"{speed}{found.memory / 1e9:11.2f} GB"

    def _ratios(self, one: Figures, other: Figures, way: str) -> str:
        speed, memory = other.seconds / one.seconds, one.memory / other.memory
        how = f"{1 / speed:9.2f}x the time" if way in self.bounds else f"{speed:9.2f}x faster"
        return f"{other.wall / one.wall:7.2f}x faster" * self.wall + f"{how}{memory:7.2f}x memory"


def run(
    program: str,
    work: Work,
    out: Path,
    way: str,
    seconds: Callable[[list[float]], float] = sum,
    threads: int | None = None,
) -> Figures:
    """Run a way in a process of its own, which leaves its results in ``out``; returns its cost.

    Args:
        program: file in this folder; it is called with the work's file, ``out`` and the way.
        seconds: what counts of all that it timed.
        threads: of one process; all cores if not given.
    """
    out.mkdir(exist_ok=True)
    file = out / "work.json"
    work.write(file)
    settle()  # as `murmura` does, for all ways alike
    environment = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads or work.cores))
    environment |= {"FLWR_HOME": str(out / "flower"), "PYTHONPATH": python_path(), "HF_HUB_OFFLINE": "1"}
    environment |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    cost = measure([sys.executable, str(HERE / program), str(file), str(out), way], environment, out / "log")
    result = json.loads((out / "result.json").read_text())
    return Figures(cost.wall, seconds(result["seconds"]), result["gpu_peak"] if on_gpu(work) else cost.memory)


def python_path() -> str:
    """Where ways find each other's modules and what this process has, also in processes that Ray starts."""
    import murmura

    here = [str(HERE), str(Path(murmura.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(filter(None, here))


def middle(found: Sequence[Figures]) -> Figures:
    """The median of each figure."""
    wall, seconds, memory = (median(column) for column in zip(*map(astuple, found), strict=True))
    return Figures(wall, seconds, int(memory))


def print_differences(folder: Path, pairs: Mapping[str, tuple[str, str]], *, strict: bool) -> int:
    """Print how far apart is what ways found, a line for each pair; 1 if ``strict`` and one is too far.

    A difference is in units of the largest value of the second of a pair.
    """
    import torch
    from safetensors.torch import load_file

    status = 0
    for words, ways in pairs.items():
        one, other = (load_file(folder / way / "found.safetensors") for way in ways)
        apart = torch.cat([(one[name] - other[name]).flatten() for name in other]).abs().max()
        far = float(apart / torch.cat([tensor.flatten() for tensor in other.values()]).abs().max())
        is_same = far <= SAME  # never so where a value is not a number
        verdict = "the same" if is_same else "NOT the same"
        print(f"{words}: largest difference {far:.1e} of the largest value" + (f", {verdict}" if strict else ""))
        status |= strict and not is_same
    return int(status)
