"""A comparison by the command line, stopped and given again."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial

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


def command(jobs):
    return [sys.executable, "-m", "murmura", "compare", "my.toml", "--jobs", str(jobs)]


@pytest.fixture
def options(tmp_path, llama_folder):
    """How the command is run, in a folder with its file and records."""
    small.write_data(tmp_path)
    (tmp_path / "my.toml").write_text(FILE.format(model=llama_folder))
    return {"cwd": tmp_path, "text": True, "stderr": subprocess.PIPE}


def stopped(options, jobs, how, once):
    """Send the signal to a comparison once there are such files, which it hands on to its runs; where they are."""
    # A shell that starts these tests in the background has them ignore SIGINT, and whatever they start.
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command(jobs), start_new_session=True, preexec_fn=heeding, **options)
    runs = options["cwd"] / "runs" / "small" / "runs"
    while not (found := sorted(runs.glob(once))) and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, how)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130 and f"go on with: murmura compare my.toml --jobs {jobs}" in told, told
    for folder in {path.parent for path in runs.glob("*/config.toml")}:  # of a run that were still at work, locked
        with RunFolder(folder).locked():
            pass
    return found


@pytest.mark.slow
def test_a_comparison_that_is_interrupted_ends_its_runs(options):
    stopped(options, 2, signal.SIGINT, "*/config.toml")  # as Ctrl-C does


@pytest.mark.slow
def test_a_comparison_that_is_stopped_goes_on_with_the_same_command(options, tmp_path):
    done = stopped(options, 1, signal.SIGTERM, "*/summary.json")  # as a batch system does
    before = [path.stat().st_mtime_ns for path in done]
    again = subprocess.run(command(1), check=True, stdout=subprocess.PIPE, **options)
    assert before == [path.stat().st_mtime_ns for path in done]
    found = json.loads((tmp_path / "runs" / "small" / "comparison.json").read_text())
    assert [sorted(arm["figures"]["heldout_loss"]) for arm in found["arms"]] == [["0"], ["0"]]
    assert re.search(r"near, seed 0, .*: (begins|goes on), and tells how far it is in runs/small/runs/", again.stderr)
    assert found["sentences"][0] in " ".join(again.stdout.split())
