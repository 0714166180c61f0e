"""What FedDCA* saves a site: the size of the encoder that it needs, and how long it embeds its records.

    python studies/site_encoder.py --records FILE

FILE is JSONL with instruction, input and output, of which the first are a site's (``--count``). FedDCA's sites embed
them with the pool's encoder, those of FedDCA* with a small one (Wang et al. 2024, arXiv 2409.20135: BGE-large and
MiniLM). ``--large`` and ``--small`` name them. Without ``--large`` the large one has the shape of BGE-large, its
tokenizer, which is the small one's too, and random weights, which change neither figure. They take turns, after a first
batch that is not timed. Seconds are the processor's, summed over its cores, so that other work does not count.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from murmura import atomic
from murmura.data.records import Instruction
from murmura.models import resolve
from murmura.retrieval.encoder import Encoder
from murmura.units import count, size
from runs import pipes, read_rows

BGE_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
BGE_LARGE |= {"vocab_size": 30_522, "max_position_embeddings": 512}


@dataclass(frozen=True)
class Cost:
    """What one encoder takes at a site: numbers in its weights, bytes of them in float32, and the
    processor's seconds for all texts."""

    name: str
    parameters: int
    seconds: float

    @property
    def bytes(self) -> int:
        return 4 * self.parameters


def large(folder: Path, small: str) -> str:
    """An encoder of BGE-large's shape, in a folder."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    BertModel(BertConfig(**BGE_LARGE)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(resolve(small)).save_pretrained(folder)
    return str(folder)


def shortened(name: str, layers: int, folder: Path) -> Path:
    """The first layers of a sentence encoder, as an encoder of its own in a folder."""
    if not folder.exists():
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(resolve(name)), device="cpu")
        inner = model[0].auto_model
        inner.encoder.layer = inner.encoder.layer[:layers]
        inner.config.num_hidden_layers = layers
        with atomic.replacing_folder(folder) as draft:
            model.save(str(draft))
    return folder


def compared(names: dict[str, str], texts: Sequence[str], repeats: int) -> list[Cost]:
    """What encoders cost, by what they are called; each embeds all texts as often, by turns."""
    encoders = {called: Encoder(name, device="cpu") for called, name in names.items()}
    seconds: dict[str, list[float]] = {called: [] for called in names}
    for encoder in encoders.values():
        encoder.embed(texts[:2])
    for _ in range(repeats):
        for called, encoder in encoders.items():
            begun = time.process_time()
            encoder.embed(texts)
            seconds[called].append(time.process_time() - begun)
    return [Cost(called, one.parameters, median(seconds[called])) for called, one in encoders.items()]


def table(costs: Sequence[Cost], texts: int) -> str:
    """In Markdown; the last line is how many times as much the first one takes."""
    first, last = costs[0], costs[-1]
    head = ["encoder", "parameters", "float32 weights", f"processor seconds for {texts} records"]
    lines = [[one.name, count(one.parameters), size(one.bytes), f"{one.seconds:.2f}"] for one in costs]
    ratios = ["saved", *[f"{first.parameters / last.parameters:.1f} times"] * 2]
    return pipes(head, [*lines, [*ratios, f"{first.seconds / last.seconds:.1f} times"]])


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, required=True, help="a site's records, a JSONL file")
    parser.add_argument("--count", type=int, default=50, help="how many it has")
    parser.add_argument("--small", default="minilm", help="the site's encoder in FedDCA*")
    parser.add_argument("--large", help="the pool's; one of BGE-large's shape with random weights if not given")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rows = read_rows(options.records)[: options.count]
    texts = [Instruction(row["instruction"], row.get("input", ""), row["output"]).question for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        name = options.large or large(Path(folder), options.small)
        called = options.large or "of BGE-large's shape"
        print(table(compared({called: name, options.small: options.small}, texts, options.repeats), len(texts)))


if __name__ == "__main__":
    main()
