"""One seed gives the same numbers in every process, wherever its memory comes to lie: bit for bit."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from safetensors import safe_open
from safetensors.torch import load_file

from murmura.third_party import SETTINGS
from tests.experiment.small import BY_DEFAULT, experiment, write_data
from tests.training.helpers import assert_same

# What some runs need, for clusters, hub data, Parquet files, guarantees, or at their end, and most steps do not.
NOT_TO_TRAIN = (
    "sklearn",
    "datasets",
    "pandas",
    "pyarrow",
    "sentence_transformers",
    "dp_accounting",
    "gguf",
    "peft",
    "matplotlib",
    "openpyxl",
    "tensorboard",
    "mlflow",
    "wandb",
)
# As by the command line, but that it tells what its first step finds loaded, and makes no page.
PROGRAM = f"""
import sys
from murmura import report
from murmura.cli import app
from murmura.training import loop

def first_step(*inputs):
    loop._take_steps = plain
    print("LOADED", *(name for name in {NOT_TO_TRAIN} if name in sys.modules), flush=True)
    return plain(*inputs)

report.write = lambda *_: None
plain, loop._take_steps = loop._take_steps, first_step
app(prog_name="murmura")
"""


def shift(file, by):
    """Move the tensors of a safetensors file by so many bytes, by spaces at the end of its header."""
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    file.write_bytes((length + by).to_bytes(8, "little") + whole[8 : 8 + length] + b" " * by + whole[8 + length :])
    with safe_open(file, "pt") as still_read:
        assert still_read.keys()


@pytest.mark.slow
def test_a_run_repeats_itself_and_begins_to_train_without_what_only_others_need(tmp_path, llama_folder):
    """Two processes; in the second, hashes are others, and weights lie elsewhere in their cache lines."""
    runs = []
    for by, seed in ((0, "1"), (8, "2")):
        folder = tmp_path / seed
        shutil.copytree(llama_folder, folder / "model")
        shift(folder / "model" / "model.safetensors", by)
        write_data(folder)
        file = folder / "my.toml"
        file.write_text(experiment(folder, folder / "model", evaluation=BY_DEFAULT).dump(), encoding="utf-8")
        bare = {name: value for name, value in os.environ.items() if name not in SETTINGS}
        environment = bare | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        with (folder / "log").open("w") as log:
            command = [sys.executable, "-c", PROGRAM, "run", str(file)]
            runs.append((folder, subprocess.Popen(command, env=environment, stdout=log, stderr=log)))
    for folder, process in runs:
        code, log = process.wait(240), (folder / "log").read_text()
        assert code == 0 and "LOADED\n" in log, log
    first, second = (load_file(folder / "run/adapter/adapter_model.safetensors") for folder, _ in runs)
    assert_same(first, second)
    first, second = (measured(folder / "run") for folder, _ in runs)
    assert first == second


def measured(run):
    """All that was measured but what it took."""
    cost = ("seconds", "at_sites", "wall", "peak_memory")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in cost} for row in rows]
