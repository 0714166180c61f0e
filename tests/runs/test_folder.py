"""The run folder: what is refused before any work, and files that are replaced whole."""

import json
import math
import shutil
from collections import namedtuple

import pytest
from safetensors import SafetensorError

from murmura.errors import CheckpointError, may_pass
from murmura.runs import RunFolder


@pytest.fixture
def used(tmp_path):
    """A folder that holds a run."""
    folder = RunFolder(tmp_path / "runs" / "a")
    folder.prepare(resume=False, needed=0)
    folder.write_config("[run]\n[method]\n")
    (folder.checkpoint / "round-0001").mkdir()
    folder.write_metrics([{"round": 0}])
    return folder


def contents(folder):
    return {path.relative_to(folder.path).as_posix() for path in folder.path.rglob("*") if path.name != ".lock"}


def start(folder, *, resume=False, overwrite=False, needed=0):
    with folder.opened(resume=resume, overwrite=overwrite):
        folder.prepare(resume=resume, needed=needed)


def test_a_folder_with_a_run_is_not_overwritten_unasked(used):
    before = contents(used)
    with pytest.raises(CheckpointError, match="already holds a run"):
        start(used)
    assert contents(used) == before


def test_without_a_run_there_is_nothing_to_resume(tmp_path):
    with pytest.raises(CheckpointError, match="there is no run to resume"):
        start(RunFolder(tmp_path / "runs" / "a"), resume=True)
    assert not (tmp_path / "runs").exists()


def test_overwriting_keeps_the_run_and_says_where(used, capsys):
    old = contents(used)
    with used.opened(resume=False, overwrite=True):
        used.prepare(resume=False, needed=0)
        with pytest.raises(CheckpointError), RunFolder(used.path).locked():
            pytest.fail("locked twice")
    assert contents(RunFolder(used.previous)) == old and contents(used) == {"checkpoint", "private"}
    assert str(used.previous) in capsys.readouterr().err
    with RunFolder(used.previous).locked():  # nobody works there any more
        pass


def test_a_folder_that_is_gone_hides_no_error(tmp_path):
    folder = RunFolder(tmp_path / "a")
    with pytest.raises(ValueError, match="why the run stopped"), folder.locked():
        shutil.rmtree(folder.path)
        raise ValueError("why the run stopped")


@pytest.mark.parametrize("name", ["config.toml", "sites/heart.jsonl", "model/weights", "outcomes/mine.json"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_no_run_wrote_is_not_written_over(tmp_path, name, overwrite):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    folder = RunFolder(tmp_path)
    with pytest.raises(CheckpointError, match="that no run wrote"):
        start(folder, overwrite=overwrite)
    assert (tmp_path / name).read_text() == "mine"
    assert not folder.holds_run


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_another_program_that_looks_alike_is_no_run(tmp_path, overwrite):
    (tmp_path / "checkpoint").mkdir()
    for name in ("config.toml", "checkpoint/best.pt"):
        (tmp_path / name).write_text("[model]")
    with pytest.raises(CheckpointError, match="that no run wrote"):
        start(RunFolder(tmp_path), overwrite=overwrite)
    assert (tmp_path / "checkpoint" / "best.pt").read_text() == "[model]"


def test_a_run_whose_experiment_was_damaged_is_one_all_the_same(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    for name in ("config.toml", ".lock"):
        (tmp_path / name).write_text("")
    assert RunFolder(tmp_path).holds_run


def test_locks_of_a_process_that_was_killed_before_it_kept_anything_are_nothing_to_lose(tmp_path):
    (tmp_path / "private" / "heart").mkdir(parents=True)
    (tmp_path / "private" / "heart" / ".lock").touch()
    folder = RunFolder(tmp_path)
    with folder.opened(resume=False, overwrite=False):
        folder.prepare(resume=False, needed=0)
    (tmp_path / "private" / "heart" / "privacy.journal").touch()
    with pytest.raises(CheckpointError, match="has a private that no run wrote"):
        start(folder)


def test_one_process_works_in_a_folder(used):
    other = RunFolder(used.path)
    with (
        used.locked(),
        pytest.raises(CheckpointError, match="another process is running in this folder"),
        other.locked(),
    ):
        pass
    with other.locked():
        pass


def test_a_start_that_comes_to_nothing_leaves_no_folder(tmp_path):
    with RunFolder(tmp_path / "run").locked():
        pass
    assert not (tmp_path / "run").exists()


def test_a_lock_does_not_hide_what_went_wrong_inside(used):
    with pytest.raises(FileNotFoundError), used.locked():
        raise FileNotFoundError


def test_a_run_that_goes_on_has_not_ended(used):
    used.summary.write_text("{}")
    used.report.write_text("")
    used.write_outcomes({"classifier.json": {}})
    before = contents(used)
    used.reopen(done=False)
    assert before - contents(used) == {"summary.json", "outcomes", "outcomes/classifier.json", "report.html"}
    used.reopen(done=False)


def test_going_on_removes_nothing(used):
    before = contents(used)
    start(used, resume=True)
    assert contents(used) == before


def test_what_a_method_leaves_has_a_folder_of_its_own(used):
    used.write_outcomes({})
    assert "outcomes" not in contents(used)
    used.write_outcomes({"votes.json": [1, 2]})
    assert json.loads((used.path / "outcomes" / "votes.json").read_text()) == [1, 2]
    used.write_outcomes({"texts": lambda folder: (folder / "one.txt").write_text("one")})
    assert (used.path / "outcomes" / "texts" / "one.txt").read_text() == "one"


def test_each_site_has_places_of_its_own(used):
    assert used.adapter_of("a/b") == used.path / "sites" / "a%2Fb"
    assert used.private_of("a/b") == used.path / "private" / "a%2Fb"
    assert used.sites_with_adapters == []
    for site in ("b", "a/b"):
        used.adapter_of(site).mkdir(parents=True)
    assert used.sites_with_adapters == ["a/b", "b"]


def test_a_folder_that_cannot_be_made_or_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written") as error:
        RunFolder(tmp_path / "file" / "run").prepare(resume=False, needed=0)
    assert "run.folder" in error.value.fix


def test_a_full_disk_is_refused_before_anything_is_moved(used, monkeypatch):
    before = contents(used)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(2**40, 2**40, 100 * 2**20))
    with pytest.raises(CheckpointError, match="has 100 MiB left, this run needs 264 MiB") as error:
        start(used, overwrite=True, needed=200 * 2**20)
    assert error.value.passing
    assert contents(used) == before
    start(used, resume=True, needed=30 * 2**20)


def test_files_are_replaced_whole(used, monkeypatch):
    def stopped(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("os.replace", stopped)
        used.write_metrics([{"round": 0}, {"round": 1}])
    assert used.metrics.read_text() == '{"round": 0}\n'
    used.write_metrics([{"round": 0}, {"round": 1}])
    assert used.metrics.read_text() == '{"round": 0}\n{"round": 1}\n'


def test_figures_that_are_not_finite_are_valid_json(used):
    used.write_metrics([{"round": 0, "heldout_loss": math.nan, "leakage": -math.inf}])
    assert used.metrics.read_text() == '{"round": 0, "heldout_loss": "NaN", "leakage": "-Infinity"}\n'


def test_a_full_disk_keeps_the_file_before(used, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(CheckpointError, match=r"cannot be written \(No space left"):
        used.write_metrics([])
    assert used.metrics.read_text() == '{"round": 0}\n'


def test_an_adapter_and_its_remark_take_their_place_together(used):
    for said in ("one", "two"):
        with used.replacing(used.adapter, "not for release") as draft:
            (draft / "weights").write_text(said)
            assert not (draft / "NOT_FOR_RELEASE.txt").exists()
    assert (used.adapter / "weights").read_text() == "two"
    assert (used.adapter / "NOT_FOR_RELEASE.txt").read_text() == "not for release"
    with pytest.raises(CheckpointError, match="No space left"), used.replacing(used.adapter) as draft:
        raise SafetensorError("Error while serializing: No space left on device")
    full = r"cannot be written \(No space left.*Free some space"
    with pytest.raises(CheckpointError, match=full) as told, used.replacing(used.adapter):
        raise Exception("No space left on device (os error 28)")  # as tokenizers says it
    assert may_pass(told.value) and (used.adapter / "weights").read_text() == "two"


def test_what_killed_processes_left_half_written_is_no_site_and_is_removed(used):
    for half in (used.site_adapters / ".heart.1.partial", used.adapter.with_name(".adapter.1.partial")):
        half.mkdir(parents=True)
        (half / "weights").touch()
    used.checkpoint.mkdir(exist_ok=True)
    (used.checkpoint / ".live.json.1.partial").touch()
    (used.site_adapters / "skin").mkdir()
    assert used.sites_with_adapters == ["skin"]
    used.prepare(resume=True, needed=0)
    assert [path.name for path in used.site_adapters.iterdir()] == ["skin"]
    assert not list(used.path.rglob("*.partial"))


def opened(folder):
    with folder.opened(resume=True, overwrite=False):
        pass


@pytest.mark.parametrize("afterwards", [RunFolder.drop_checkpoints, opened])
def test_of_checkpoints_that_a_killed_process_had_begun_to_remove_nothing_stays(used, monkeypatch, afterwards):
    """Its run is finished, and refuses to go on before it would make its folder ready."""
    (used.checkpoint / "round-0001" / "sums").touch()
    (used.checkpoint / "sent.json").touch()

    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", killed)
        used.drop_checkpoints()
    assert list(used.checkpoint.rglob("sums"))
    afterwards(used)
    assert not list(used.checkpoint.iterdir())
