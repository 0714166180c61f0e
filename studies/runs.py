"""What studies share: options, runs in processes of their own that can be stopped and given again, and their table."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, stdev
from threading import Event
from types import SimpleNamespace
from typing import Any, TypeVar

import tomli_w

from murmura import report
from murmura.measure.catalogue import figure
from murmura.runs import RunFolder, RunRecord, read_all
from murmura.units import DASH, signed

T = TypeVar("T")

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
EVERY_LAYER = (*ATTENTION, "gate_proj", "up_proj", "down_proj")
QUERY_AND_VALUE = ("q_proj", "v_proj")
SENTIMENT = "What is the sentiment of this news? Please choose an answer from {negative/neutral/positive}."


def above(names: Sequence[str]) -> tuple[str, ...]:
    """These modules of the last eight of SmolLM2-135M's layers."""
    return tuple(f"{layer}.self_attn.{name}" for layer in range(22, 30) for name in names)


class Scale(SimpleNamespace):
    """How large a study is: numbers by their names."""

    def but(self, **changes: Any) -> Scale:
        """The same with some of them changed."""
        return Scale(**vars(self) | changes)


def scales(**numbers: tuple[Any, Any]) -> tuple[Scale, Scale]:
    """A small study and the full one, of what each has."""
    return tuple(Scale(**{name: pair[k] for name, pair in numbers.items()}) for k in (0, 1))  # type: ignore[return-value]


def begun(folder: Path, seed: int, model: str, rank: int, targets: Sequence[str]) -> dict[str, Any]:
    """What the experiment files of all studies begin with."""
    return {
        "run": {"name": folder.name, "folder": str(folder), "seed": seed},
        "model": {"name": model},
        "lora": {"rank": rank, "alpha": 2.0 * rank, "targets": list(targets)},
    }


def work(folder: Path, table: Mapping[str, Any]) -> None:
    """Run one experiment in a process of its own, so that its peak memory is its own; resume it if it was stopped.

    A run that is finished is kept as it is.
    """
    kept = RunFolder(folder)
    if kept.is_finished:
        return
    file = folder.parent / f"{folder.name}.toml"
    file.write_text(tomli_w.dumps(table))
    again = ["--resume"] if kept.holds_run else []
    subprocess.run([sys.executable, "-m", "murmura", "run", str(file), *again], check=True)


def together(jobs: Sequence[Callable[[], None]], at_once: int) -> None:
    """Do all jobs, so many at once; the first that fails ends the study when those that have begun are done."""
    failed = Event()

    def do(job: Callable[[], None]) -> None:
        if not failed.is_set():
            try:
                job()
            except BaseException:
                failed.set()
                raise

    with ThreadPoolExecutor(at_once) as pool:
        for one in [pool.submit(do, job) for job in jobs]:
            one.result()


def show(
    folders: Sequence[Path],
    keys: Sequence[str],
    markdown: Path | None,
    rounds: Sequence[str] = (),
    more: Sequence[str] = (),
) -> None:
    """The table of all runs so far, some figures (``keys``) seed by seed and some (``rounds``) round by round, and
    ``more`` tables in Markdown."""
    rows = report.table(read_all(folders))
    report.show(rows)
    tables = [by_seed(rows, key) for key in keys] + [by_round(rows, key) for key in rounds] + list(more)
    print("\n".join(tables))
    if markdown is not None:
        markdown.write_text("\n".join([report.markdown(rows), *tables]))


def finished(out: Path, names: Iterable[str]) -> list[Path]:
    """Folders of all runs ``NAME-seedN`` that are there, whichever arms and seeds were asked for this time."""
    return [path for name in names for path in sorted(out.glob(f"{name}-seed*")) if RunFolder(path).is_finished]


def by_seed(rows: Sequence[report.Row], key: str) -> str:
    """One figure before training and at the end, a column for each seed, as Markdown.

    After a figure comes its difference from that of the first row with the same seed: arms of one seed share their data
    and first adapter, so it spreads less than the figures do.
    """
    known = figure(key)
    runs: dict[str, dict[int | None, RunRecord]] = {}
    for row in rows:
        runs.setdefault(row.label, {}).update({run.seed: run for run in row.runs})
    seeds = sorted({seed for row in rows for seed in row.seeds})
    first = next(iter(runs.values()), {})
    lines = [[f"{known.title} by seed", *map(str, seeds)], ["---", *["--:"] * len(seeds)]]
    starts = [first[seed].before if seed in first else None for seed in seeds]
    lines.append(["before training", *(DASH if start is None else known.words(start.values) for start in starts)])
    for label, own in runs.items():
        cells = []
        for seed in seeds:
            end, reference = (one.last.values if (one := of.get(seed)) else {} for of in (own, first))
            words = known.words(end)
            if key in end and key in reference and own is not first:
                words += f" ({signed(end[key] - reference[key])})"
            cells.append(words)
        lines.append([label, *cells])
    return pipes(lines)


def by_round(rows: Sequence[report.Row], key: str) -> str:
    """One figure in every round, as Markdown: means over the seeds; round 0 is before training. Rows without it are
    left out."""
    known = figure(key)
    found = [
        (row.label, {point.round: point.cell.entry(known).words for point in row.series(key)})
        for row in rows
        if row.series(key)
    ]
    rounds = sorted({round for _, series in found for round in series})
    lines = [[f"{known.title} by round", *map(str, rounds)], ["---", *["--:"] * len(rounds)]]
    for label, series in found:
        lines.append([label, *(series.get(round, DASH) for round in rounds)])
    return pipes(lines)


def apart(one: Mapping[int, float], other: Mapping[int, float]) -> str:
    """By how much the first is larger with the same seed, in the mean and with its standard error; a dash for less than
    two seeds."""
    pairs = [one[seed] - other[seed] for seed in one if seed in other]
    return f"{signed(fmean(pairs))} ± {stdev(pairs) / len(pairs) ** 0.5:.3f}" if len(pairs) > 1 else DASH


def pipes(lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table of these lines, the rule below its head included."""
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


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
