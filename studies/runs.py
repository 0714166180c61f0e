"""What studies share: runs in processes of their own that can be stopped and given again, and their table."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from murmura import report


def work(folder: Path, table: Mapping[str, Any]) -> None:
    """Run one experiment in a process of its own, so that its peak memory is its own; resume it if it was stopped.

    A run that is finished is kept as it is.
    """
    if (folder / "summary.json").exists():
        return
    file = folder.parent / f"{folder.name}.toml"
    file.write_text(tomli_w.dumps(table))
    again = ["--resume"] if (folder / "config.toml").exists() else []
    subprocess.run([sys.executable, "-m", "murmura", "run", str(file), *again], check=True)


def show(folders: Sequence[Path], markdown: Path | None) -> None:
    """The table of all runs so far."""
    rows = report.table(report.read_all(folders))
    report.show(rows)
    if markdown is not None:
        markdown.write_text(report.markdown(rows))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """A JSONL file of them."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def shorten(text: str, words: int) -> str:
    """The first whole sentences of at most so many words in all; empty if even the first is longer."""
    taken: list[str] = []
    for sentence in re.split(r"(?<=[.!?])\s+", " ".join(text.split())):
        if len(" ".join([*taken, sentence]).split()) > words:
            break
        taken.append(sentence)
    return " ".join(taken)
