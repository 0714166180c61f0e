"""A run that was killed, at whatever moment, and resumed ends as one that was never killed: bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.federation.world import instructions

VICTIM = Path(__file__).with_name("victim.py")
EXPERIMENT = """
[run]
seed = 3
slots = 2
[model]
name = "{model}"
[lora]
rank = 2
alpha = 4
dropout = 0.1
[data]
train = "sites"
heldout = "heldout.jsonl"
template = "chat"
max_length = 96
[training]
lr = 0.02
batch_size = 2
[method]
name = "fedit"
algorithm = "{algorithm}"
rounds = 3
sites_per_round = 2
[evaluation]
every = 2
sample = 2
uploads = 1
"""
# Each line is one run: where it is killed, and where again once it was resumed. Round 0 is saved before training.
STORIES = {
    # the server remembers a momentum
    "fedavgm": [
        "train:1",  # in the first round
        "write:1",  # before anything was saved
        "write:4 train:1 write:2",  # again, right after having gone on
        "rename:2 renamed:2",  # a checkpoint is complete but has no name yet; it has one and the older is still there
        "remove:2",  # the older one is half removed
        "metrics:4",  # after the last checkpoint
        "describe:1 describe:1",
        "finish:1",
        "0.3 0.2",
        "0.6",
        "0.9",
    ],
    # the sites remember their control variates, the server its own
    "scaffold": ["train:2", "write:7", "write:9 train:1", "0.5"],
    # the sites keep their adapters
    "local": ["train:3", "write:6 rename:1", "finish:2", "0.7"],
}
TIMES = {"seconds", "wall", "peak_memory"}


@pytest.fixture
def world(tmp_path, llama_folder):
    (tmp_path / "sites").mkdir()
    for k in range(3):
        write(tmp_path / "sites" / f"ward {k}.jsonl", instructions(3 + k, seed=k + 1))
    write(tmp_path / "heldout.jsonl", instructions(3, seed=100))
    return tmp_path, llama_folder


def write(path, records):
    path.write_text("".join(json.dumps(asdict(record)) + "\n" for record in records))


def left_behind(folder):
    """All that a run leaves, without times and without what says where and when it ran."""
    adapters = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("adapter_model.safetensors")}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    for row in [*rows, summary["final"], summary]:
        for name in TIMES & row.keys():
            del row[name]
    tables = [json.loads((folder / name).read_text()) for name in ("disclosure.json", "sites.json")]
    return adapters, rows, summary, tables


@pytest.mark.parametrize("algorithm", STORIES)
def test_bit_for_bit(world, algorithm):
    root, model = world
    (root / "experiment.toml").write_text(EXPERIMENT.format(model=model, algorithm=algorithm))
    done = subprocess.run(
        [sys.executable, str(VICTIM), str(root / "experiment.toml"), str(root)],
        input="\n".join(STORIES[algorithm]), text=True, capture_output=True, timeout=250,
        env=os.environ | {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    whole = left_behind(root / "whole")
    assert [row["round"] for row in whole[1]] == [0, 1, 2, 3]
    assert len(whole[0]) == (3 if algorithm == "local" else 1)
    for number, story in enumerate(STORIES[algorithm]):
        adapters, *rest = left_behind(root / str(number))
        assert adapters == whole[0], story
        assert rest == list(whole[1:]), story
        checkpoints = {path.name for path in (root / str(number) / "checkpoint").iterdir()}
        assert "round-0003" in checkpoints
