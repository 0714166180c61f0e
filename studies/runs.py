"""What studies share: the command line, sizes, records, what comparisons have left, and tables."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import tomli_w

from murmura.measure.statistics import differences, holm
from murmura.runs import RunFolder, RunRecord, read
from murmura.units import DASH, decimal

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
QUERY_AND_VALUE = ("q_proj", "v_proj")
SENTIMENT = "What is the sentiment of this news? Please choose an answer from {negative/neutral/positive}."


class Scale(SimpleNamespace):
    """How large a study is: numbers by their names."""

    def but(self, **changes: Any) -> Scale:
        """The same with some of them changed."""
        return Scale(**vars(self) | changes)


def scales(**numbers: tuple[Any, Any]) -> tuple[Scale, Scale]:
    """A small study and the full one, of what each has."""
    return tuple(Scale(**{name: pair[k] for name, pair in numbers.items()}) for k in (0, 1))  # type: ignore[return-value]


def parser(what: str | None, dtype: str = "auto") -> argparse.ArgumentParser:
    """The options that studies share."""
    made = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data", type=Path, help="folder of the JSONL files; what only reads runs needs none")
    made.add_argument("--out", type=Path, required=True, help="where the comparison is written, or its runs are")
    made.add_argument("--full", action="store_true", help="the full one, for a large machine")
    made.add_argument("--model", default="smollm2-135m")
    made.add_argument("--dtype", default=dtype, help="of the model's weights")
    return made


def parse(made: argparse.ArgumentParser, reading: str = "") -> argparse.Namespace:
    """What was asked for; records are needed, unless it is ``--reading`` of finished runs alone."""
    options = made.parse_args()
    if options.data is None and not (reading and getattr(options, reading)):
        made.error("--data is missing, the folder of the records")
    return options


def save(written: Mapping[str, Any], file: Path, runs: Path | None = None) -> None:
    """Write a comparison, and print the command that makes it; its runs go beside it if no folder is given."""
    file.write_text(tomli_w.dumps(written))
    print(f"murmura compare {file} --out {runs or file.parent}")


def finished(out: Path) -> Iterator[tuple[str, int, Path]]:
    """The folders of a comparison's finished runs, each with its arm and its seed."""
    for folder in sorted((out / "runs").glob("*-seed*")):
        arm, _, seed = folder.name.rpartition("-seed")
        if seed.isdigit() and RunFolder(folder).is_finished:  # beside one that was replaced lies its predecessor
            yield arm, int(seed), folder


def run_records(out: Path) -> dict[str, dict[int, RunRecord]]:
    """What a comparison's finished runs have written, by arm and seed."""
    found: dict[str, dict[int, RunRecord]] = {}
    for arm, seed, folder in finished(out):
        found.setdefault(arm, {})[seed] = read(folder)
    return found


def last_losses(found: Mapping[str, Mapping[int, RunRecord]]) -> dict[str, dict[int, float]]:
    """Held-out losses after the last round, by arm and seed."""
    return {arm: {seed: one.last.values["heldout_loss"] for seed, one in own.items()} for arm, own in found.items()}


def apart(one: Mapping[int, float], other: Mapping[int, float]) -> str:
    """By how much the first is larger, paired by seed; p is by itself."""
    found = differences({"": one}, other)
    return found[""].words if found else DASH


def pairs(found: Mapping[str, Mapping[int, float]], references: Sequence[str] = ()) -> str:
    """How every two arms differ in a figure, paired by seed, as Markdown: by itself, and with p corrected for all that
    are shown (Holm).

    Args:
        found: by arm and seed.
        references: show how others differ from these alone, no pair twice.
    """
    two = [] if references else list(combinations(found, 2))
    for place, reference in enumerate(references):
        two += [(one, reference) for one in found if one not in references[: place + 1]]
    named = {" − ".join(pair): differences({pair[0]: found[pair[0]]}, found[pair[1]]).get(pair[0]) for pair in two}
    corrected = holm({name: own.p for name, own in named.items() if own and own.p is not None})
    lines = []
    for name, own in named.items():
        p = corrected.get(name)
        lines.append([name, own.words if own else DASH, DASH if p is None else "< 0.001" if p < 0.001 else decimal(p)])
    return pipes(["pair", "difference", "p, corrected for all pairs"], lines, words=(0, 1))


def pipes(head: Sequence[str], lines: Iterable[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """A Markdown table; all columns are aligned at the right but those of words, which are given by their places."""
    rule = ["---" if place in words else "--:" for place in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file; one that is not there ends the study."""
    if not path.exists():
        raise SystemExit(f"{path}: no such file; --data names the folder that holds it")
    with path.open(encoding="utf-8") as lines:  # str.splitlines would also break at U+0085, which texts may hold
        return [json.loads(line) for line in lines]


def as_instructions(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Rows of a file as instruction, input and output: labelled sentences of news as questions about their sentiment,
    and an instruction that most rows have in common left out where a row has an input too."""
    if "text" in rows[0]:
        return [{"instruction": SENTIMENT, "input": row["text"], "output": row["label"]} for row in rows]
    common, times = Counter(row["instruction"] for row in rows).most_common(1)[0]
    drop = common if 2 * times > len(rows) else None
    return [
        {"instruction": row["input"], "input": "", "output": row["output"]}
        if row["instruction"] == drop and row["input"]
        else {name: row[name] for name in ("instruction", "input", "output")}
        for row in rows
    ]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """A JSONL file of them."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def build_pool(pool: Path, sources: Iterable[str], *options: str) -> None:
    """A pool of ``DOMAIN=FILE`` in a folder, with options of the command. One that is there is replaced, since it may
    be of other records: vectors that were computed are kept."""
    command = [sys.executable, "-m", "murmura", "pool", "build", *sources, "--out", str(pool), "--overwrite", *options]
    subprocess.run(command, check=True)


def shorten(text: str, words: int) -> str:
    """The first whole sentences of at most so many words in all; empty if even the first is longer."""
    taken: list[str] = []
    for sentence in re.split(r"(?<=[.!?])\s+", " ".join(text.split())):
        if len(" ".join([*taken, sentence]).split()) > words:
            break
        taken.append(sentence)
    return " ".join(taken)


def short_questions(data: Path, out: Path, words: int, most: int) -> None:
    """Write ``questions.jsonl`` of patients' questions and answers (``medical_icliniq.jsonl`` in a folder): whole
    sentences of at most so many words of either, no question twice, so many at most and in any order."""
    out.mkdir(parents=True, exist_ok=True)
    rows = read_rows(data / "medical_icliniq.jsonl")
    cut = [(shorten(row["input"], words), shorten(row["output"], words)) for row in rows]
    short = dict(pair for pair in cut if all(pair))
    kept = [{"instruction": question, "input": "", "output": answer} for question, answer in short.items()]
    Random(0).shuffle(kept)
    print(f"{len(short)} of {len(rows)} records are short enough, {min(len(short), most)} are used")
    write_rows(out / "questions.jsonl", kept[:most])


def of_questions(model: str, dtype: str, scale: Scale, sites: int, rank: int) -> dict[str, Any]:
    """The tables of a comparison whose sites share ``questions.jsonl`` evenly: where it runs, model and records."""
    return {
        "run": {"slots": sites},
        "model": {"name": model, "dtype": dtype},
        "lora": {"rank": rank, "alpha": 2.0 * rank, "targets": list(QUERY_AND_VALUE), "layers": scale.layers},
        "data": {
            "train": "questions.jsonl",
            "heldout_records": scale.heldout,
            "max_length": scale.max_length,
            "sites": {"by": "partition", "count": sites, "scheme": "iid"},
        },
    }
