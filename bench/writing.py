"""Writing with transformers' ``generate``, with PEFT, and with Murmura, each in a process of its own.

(g) transformers' generate, greedily, at its best batch size,
(m) Murmura, greedily,
(r) transformers' generate, by sampling (temperature, top-k and top-p), at its best batch size,
(s) Murmura, by sampling,
(p) four sites' adapters one after the other, with PEFT, at its best batch size,
(f) Murmura, the four sites' adapters in one batch,
(l) llama.cpp, greedily, all texts as sequences of one batch, in float32.

    python bench/writing.py --repeats 2                    the table of README (ways g m r s p f l, in turn)
    python bench/writing.py --random tiny --texts 8        any shape with random weights; nothing is downloaded
    python bench/writing.py --random 1b --device cuda --dtype bfloat16
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import ways
from work import WritingWork

NAMES = {
    "g": "transformers, greedy",
    "m": "Murmura, greedy",
    "r": "transformers, sampled",
    "s": "Murmura, sampled",
    "p": "PEFT, adapter by adapter",
    "f": "Murmura, adapters at once",
    "l": "llama.cpp, greedy",
}
EXACT = [("m", "g"), ("f", "p")]
GREEDY = [*EXACT, ("m", "l")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 if greedy texts differ where they may not, else 0."""
    options = parse(arguments)
    options.ways = ways.available(options.ways, "llama_cpp", "l", "llama.cpp", "pip install llama-cpp-python gguf")
    with tempfile.TemporaryDirectory(prefix="bench") as temporary:
        folder = Path(temporary)
        work = ways.work_of(WritingWork, options, folder)
        written = sum(work.limits())
        words = (
            f"{ways.name_of(options)} in {work.dtype}, {work.texts} prompts of 40 to 230 random tokens, "
            f"{written} tokens written, 32 to 128 each; {work.sites} adapters in (p) and (f); "
            f"{work.cores} cores; batch sizes {', '.join(map(str, work.batches))} of generate"
        )

        def once(way: str) -> ways.Figures:
            program = "way_generate.py" if way in "grp" else "way_llama_cpp.py" if way == "l" else "way_write.py"
            return ways.run(program, work, folder / way, way)

        comparison = ways.Comparison(NAMES, "tokens", [("s", "r"), *GREEDY], tokens=written)
        comparison.run(work, words, options, folder, once)
        return print_same(folder, options.ways, strict=ways.is_exact(work))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ways.parser(__doc__, NAMES, sites=4, texts=64)
    told = "batch sizes that generate is tried with; Murmura takes the largest"
    parser.add_argument("--batches", type=lambda text: [*map(int, text.split(","))], default=[32, 64], help=told)
    options = ways.parse(parser, NAMES, arguments)
    if options.quantization:
        options.ways = [way for way in options.ways if way != "l"]  # it reads the weights as they are
    return options


def print_same(folder: Path, measured: Sequence[str], *, strict: bool) -> int:
    """Print for each greedy pair how many texts are the same, token for token; 1 if ``strict`` and one differs that
    must not. llama.cpp's own arithmetic decides between words that are almost equally likely."""
    from safetensors.torch import load_file

    status = 0
    for way, other in GREEDY:
        if way in measured and other in measured:
            ours, theirs = (load_file(folder / one / "found.safetensors")["tokens"] for one in (way, other))
            same = int((ours == theirs).all(1).sum())
            print(f"texts of ({way}) that are ({other})'s, token for token: {same} of {len(ours)}")
            status |= strict and (way, other) in EXACT and same < len(ours)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
