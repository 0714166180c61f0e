"""The work that all ways of a benchmark do: the same model, adapter, tokens, order and optimiser."""

from __future__ import annotations

import json
import random
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import torch

    from murmura.data.cloze import Cloze

TARGETS = ("q_proj", "v_proj")
RANK, ALPHA = 16, 32
# AdamW's ε. With the usual 1e-8 a first step is the sign of its gradient, also of a gradient of next to nothing, whose
# sign is only rounding: what ways learn could then not be compared.
EPS = 0.1
PREFIX = "base_model.model."
WORDS = ("the", "film", "is", "a", "long", "slow", "look", "at", "how", "people", "of", "one", "small", "town", "live")
VERBALISER = {"bad": ["bad", "dull", "awful"], "good": ["good", "great", "funny"]}


class Kept:
    """A dataclass that a driver leaves in a file for its ways."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        return cls(**json.loads(Path(path).read_text()))


@dataclass(frozen=True)
class Work(Kept):
    """One federated fine-tuning by FedAvg, in numbers: AdamW with ``EPS`` and no decay, no clipping, a mean of all.

    Attributes:
        model: folder of the base model.
        vocabulary: ids are drawn below it.
        sites: sites, all of which train in each round.
        steps: optimiser steps of a site in a round; it sees ``steps * batch`` records once.
        length: tokens of a record, which are random.
        labelled_half: whether only the second half of a record is labelled.
        order: [round][site][step] -> records of a step, so that each way takes the same ones together.
        tokens_per_pass: Murmura's ``training.tokens_per_pass``.
        cores: CPU cores in use.
        actors: processes that Flower simulates sites in; they share the cores.
        adapted: layers that carry adapters, as ``LoraSpec.layers``.
        quantization: of the frozen weights, as ``model.quantization``.
    """

    model: str
    vocabulary: int
    device: str
    dtype: str
    tokens_per_pass: int
    cores: int
    sites: int = 1
    rounds: int = 1
    steps: int = 1
    batch: int = 1
    length: int = 1
    labelled_half: bool = False
    order: Sequence[list[list[list[int]]]] = ()
    actors: int = 1
    lr: float = 1e-3
    adapted: str = "all"
    quantization: str | None = None

    @property
    def labelled(self) -> int:
        """How many of a record's last tokens are labelled."""
        return self.length // 2 if self.labelled_half else self.length

    def records(self, site: int) -> torch.Tensor:
        """A site's records, the same in each round, int64 [steps * batch, length]."""
        import torch

        generator = torch.Generator().manual_seed(1_000_003 * site)
        return torch.randint(3, self.vocabulary, (self.steps * self.batch, self.length), generator=generator)

    def labels(self, records: torch.Tensor) -> torch.Tensor:
        """What is to be predicted at each place, -100 where nothing is."""
        labels = records.clone()
        labels[:, : self.length - self.labelled] = -100
        return labels


@dataclass(frozen=True)
class ClozeWork(Work):
    """What ``lpfl.py`` measures: texts in patterns, and ``rounds`` steps of ``batch`` of them.

    Attributes:
        texts: how many are annotated; of random words, some longer than ``length`` tokens.
        patterns: each text goes into each one, at most ``length`` tokens together.
    """

    texts: int = 0
    patterns: tuple[str, ...] = (
        "{text} It was {blank}",
        "{text} All in all, it was {blank}",
        "{text} In summary, the film is {blank}",
        "Text: {text} Verdict: {blank}",
    )

    def all_texts(self) -> list[str]:
        draw = random.Random(0)
        return [" ".join(draw.choices(WORDS, k=draw.randint(self.length // 8, self.length))) for _ in range(self.texts)]

    def cloze(self) -> Cloze:
        """The questions, for the model's own tokenizer; a word counts with the average of its tokens, if several."""
        from transformers import AutoTokenizer

        from murmura.data.cloze import Cloze

        tokenizer = AutoTokenizer.from_pretrained(self.model)
        return Cloze(self.patterns, VERBALISER, tokenizer, self.length, masked=False, several_tokens="average")


@dataclass(frozen=True)
class WritingWork(Work):
    """What ``writing.py`` measures: ``texts`` prompts of 40 to 230 random tokens, each continued by 32 to 128.

    Attributes:
        batches: batch sizes that transformers' ``generate`` is tried with; Murmura takes the largest.
    """

    texts: int = 0
    batches: tuple[int, ...] = ()
    temperature: float = 0.8
    top_p: float = 0.95
    top_k: int = 50

    def prompts(self, texts: int | None = None) -> list[list[int]]:
        draw = random.Random(0)
        lengths = [draw.randint(40, 230) for _ in range(self.texts)]
        return [[draw.randrange(3, self.vocabulary) for _ in range(length)] for length in lengths][:texts]

    def limits(self) -> list[int]:
        draw = random.Random(1)
        return [draw.randint(32, 128) for _ in range(self.texts)]

    def site_of(self, text: int) -> int:
        return text % self.sites


def adapter_of(shapes: Mapping[str, tuple[int, ...]], site: int) -> dict[str, torch.Tensor]:
    """A site's adapter that does change what is written."""
    import torch

    state = initial(shapes)
    for name, tensor in state.items():
        generator = torch.Generator().manual_seed(zlib.crc32(f"{site} {name}".encode()))
        tensor.normal_(0, 0.02, generator=generator)
    return state


def tokens_of(written: Sequence[Sequence[int]]) -> torch.Tensor:
    """Token ids of texts, int64 [texts, longest], padded with -1."""
    import torch

    rows = [torch.tensor(list(text)) for text in written]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def base_model(work: Work) -> Any:
    """The base model from its folder, as an application of transformers loads it."""
    import torch
    from transformers import AutoModelForCausalLM

    from murmura.models.loading import quantized

    options: dict[str, Any] = {"dtype": getattr(torch, work.dtype), "device_map": {"": work.device}}
    if work.quantization:
        options["quantization_config"] = quantized(work.quantization, options["dtype"])
    return AutoModelForCausalLM.from_pretrained(work.model, **options)


def bank(work: Work) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """Murmura's bank on the base model, and the shapes of its adapters."""
    from murmura import models
    from murmura.training.bank import Bank
    from murmura.training.config import LoraSpec

    model = models.load(work.model, "causal", work.dtype, work.device, work.quantization).model
    found = Bank(model, LoraSpec(rank=RANK, alpha=ALPHA, targets=TARGETS, layers=work.adapted))
    return found, {entry.name: entry.shape for entry in found.manifest}


def initial(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """The adapter that all ways start from: A uniform, B zero; a tensor depends on its name only."""
    import torch

    state = {}
    for name, shape in shapes.items():
        state[name] = torch.zeros(shape)
        if ".lora_A." in name:
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            state[name].uniform_(-(shape[1] ** -0.5), shape[1] ** -0.5, generator=generator)
    return state


def learnt(adapter: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """How far each weight of an adapter is from where all ways start."""
    start = initial({name: tuple(tensor.shape) for name, tensor in adapter.items()})
    return {name: tensor - start[name] for name, tensor in adapter.items()}


def finish(out: str | Path, found: Mapping[str, torch.Tensor], seconds: list[float], gpu_peak: int) -> None:
    """Leave what was found, the seconds of each round and the peak of GPU memory (bytes) for the driver."""
    from safetensors.torch import save_file

    save_file({name: tensor.contiguous() for name, tensor in found.items()}, Path(out) / "found.safetensors")
    (Path(out) / "result.json").write_text(json.dumps({"seconds": seconds, "gpu_peak": gpu_peak}))


@contextmanager
def timing(seconds: list[float]) -> Iterator[None]:
    """Add how long the block takes."""
    begun = time.perf_counter()
    yield
    seconds.append(time.perf_counter() - begun)


def timed(act: Callable[[], Any], times: int) -> tuple[Any, list[float]]:
    """What it comes to the last time, and the seconds of each time."""
    seconds: list[float] = []
    for _ in range(times):
        with timing(seconds):
            result = act()
    return result, seconds


def gpu_peak(work: Any) -> int:
    """Most GPU memory that this process has had allocated, in bytes; 0 on a CPU."""
    import torch

    return int(torch.cuda.max_memory_allocated()) if work.device.startswith("cuda") else 0
