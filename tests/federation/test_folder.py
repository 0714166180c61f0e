"""The run folder: what is refused before any work, and files that are replaced whole."""

from __future__ import annotations

import json
from collections import namedtuple

import pytest
import torch

from murmura.errors import CheckpointError
from murmura.federation.folder import RunFolder, peak_memory


@pytest.fixture
def used(tmp_path):
    """A folder that holds a run."""
    folder = RunFolder(tmp_path / "runs" / "a")
    folder.prepare(resume=False, overwrite=False, needed=0)
    folder.write_text("config.toml", "[run]\n")
    (folder.checkpoint / "round-0001").mkdir()
    folder.write_metrics([{"round": 0}])
    return folder


def contents(folder):
    return {path.relative_to(folder.path).as_posix() for path in folder.path.rglob("*")}


def test_a_folder_with_a_run_is_not_overwritten_unasked(used):
    before = contents(used)
    with pytest.raises(CheckpointError, match="holds a run already"):
        used.prepare(resume=False, overwrite=False, needed=0)
    assert contents(used) == before


def test_overwriting_starts_with_an_empty_folder(used):
    used.prepare(resume=False, overwrite=True, needed=0)
    assert contents(used) == {"checkpoint"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_going_on_removes_nothing(used, overwrite):
    before = contents(used)
    used.prepare(resume=True, overwrite=overwrite, needed=0)
    assert contents(used) == before


def test_a_folder_that_cannot_be_made_or_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written") as error:
        RunFolder(tmp_path / "file" / "run").prepare(resume=False, overwrite=False, needed=0)
    assert "run.folder" in error.value.fix


def test_a_full_disk_is_refused_before_anything_is_removed(used, monkeypatch):
    before = contents(used)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(2**40, 2**40, 100 * 2**20))
    with pytest.raises(CheckpointError, match="has 100 MiB left, this run needs 264 MiB"):
        used.prepare(resume=False, overwrite=True, needed=200 * 2**20)
    assert contents(used) == before
    used.prepare(resume=True, overwrite=False, needed=30 * 2**20)


def test_files_are_replaced_whole(used, monkeypatch):
    def stopped(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("os.replace", stopped)
        used.write_metrics([{"round": 0}, {"round": 1}])
    assert (used.path / "metrics.jsonl").read_text() == '{"round": 0}\n'
    used.write_metrics([{"round": 0}, {"round": 1}])
    assert (used.path / "metrics.jsonl").read_text() == '{"round": 0}\n{"round": 1}\n'


def test_environment(used):
    used.write_environment(torch.device("cpu"), 1000, 10)
    found = json.loads((used.path / "environment.json").read_text())
    assert found["torch"] == torch.__version__
    assert found["device"].startswith("cpu: ")
    assert {"torch", "transformers", "peft"} <= found["packages"].keys()


def test_peak_memory_is_in_bytes():
    assert 50 * 2**20 < peak_memory(torch.device("cpu")) < 2**40
