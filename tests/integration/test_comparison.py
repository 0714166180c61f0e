"""A comparison by the command line, stopped and given again."""

import json
import re
import subprocess
import sys
import time

import pytest

from murmura.runs.folder import RunFolder
from tests.experiment import small

FILE = """
[compare]
name = "small"
seeds = 1
[[compare.arms]]
name = "plain"
[[compare.arms]]
name = "near"
aggregation.local = "fedprox"
[model]
name = "{model}"
[lora]
rank = 2
[data]
train = "sites"
heldout = "heldout.jsonl"
max_length = 128
[method]
name = "fedit"
rounds = 2
[evaluation]
sample = 1
uploads = 0
"""


@pytest.mark.slow
def test_a_comparison_that_is_stopped_ends_its_runs_and_goes_on_with_the_same_command(tmp_path, llama_folder):
    small.write_data(tmp_path)
    (tmp_path / "my.toml").write_text(FILE.format(model=llama_folder))
    command = [sys.executable, "-m", "murmura", "compare", "my.toml", "--jobs", "2"]
    options = {"cwd": tmp_path, "text": True, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **options)
    runs = tmp_path / "runs" / "small" / "runs"
    while not any(runs.glob("*/config.toml")) and process.poll() is None:
        time.sleep(0.05)
    process.terminate()  # as a batch system does; it hands that on to its runs
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130 and "go on with: murmura compare my.toml --jobs 2" in told, told
    for file in runs.glob("*/config.toml"):  # of a run that were still at work, locked
        with RunFolder(file.parent).locked():
            pass
    again = subprocess.run(command, check=True, stdout=subprocess.PIPE, **options)
    found = json.loads((tmp_path / "runs" / "small" / "comparison.json").read_text())
    assert [sorted(arm["figures"]["heldout_loss"]) for arm in found["arms"]] == [["0"], ["0"]]
    for arm in ("plain", "near"):
        begins = rf"{arm}, seed 0, .*: (begins|goes on), and tells how far it is in runs/small/runs/"
        assert re.search(begins, again.stderr), again.stderr
    assert found["sentences"][0] in " ".join(again.stdout.split())
