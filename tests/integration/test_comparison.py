"""A comparison by the command line, stopped and given again."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.experiment import small

FILE = """
[compare]
name = "small"
seeds = 2
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
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_comparison_that_is_stopped_ends_its_runs_and_goes_on_with_the_same_command(how, tmp_path, llama_folder):
    small.write_data(tmp_path)
    (tmp_path / "my.toml").write_text(FILE.format(model=llama_folder))
    command = [sys.executable, "-m", "murmura", "compare", "my.toml", "--jobs", "2"]
    options = {"cwd": tmp_path, "text": True, "stderr": subprocess.PIPE}
    first = subprocess.Popen(command, start_new_session=True, **options)
    runs = tmp_path / "runs" / "small" / "runs"
    while not (done := sorted(path.parent.name for path in runs.glob("*/summary.json"))) and first.poll() is None:
        time.sleep(0.05)
    os.killpg(first.pid, how)  # SIGINT as Ctrl-C does; a batch system ends with SIGTERM
    _, told = first.communicate(timeout=120)
    assert first.returncode == 130 and "go on with: murmura compare my.toml --jobs 2" in told, told
    before = {name: (runs / name / "summary.json").stat().st_mtime_ns for name in done}
    # Where a run were still at work, its folder would be locked.
    again = subprocess.run(command, check=True, stdout=subprocess.PIPE, **options)
    assert before == {name: (runs / name / "summary.json").stat().st_mtime_ns for name in done}
    found = json.loads((tmp_path / "runs" / "small" / "comparison.json").read_text())
    assert [sorted(arm["figures"]["heldout_loss"]) for arm in found["arms"]] == [["0", "1"], ["0", "1"]]
    assert found["sentences"][0] in " ".join(again.stdout.split())
