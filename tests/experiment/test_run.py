"""Whole runs of a tiny model: what they leave behind, and what stops them before they start."""

import json
import os
import shutil
import signal
import tomllib
from collections import namedtuple
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch
from safetensors.torch import load_file

from murmura import Experiment
from murmura.errors import CheckpointError, DataError, Interrupted, PrivacyError, RunError, may_pass
from murmura.experiment import simulation
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.precision import settled
from murmura.experiment.run import run
from murmura.federation.server.checkpoint import latest
from murmura.federation.server.rounds import Server
from murmura.runs import RunFolder, read
from murmura.runs.names import site_folder
from tests.experiment.small import ALGORITHMS, ATTACKED, SIZES, record, write_data, write_lines
from tests.forking import forks
from tests.methods.harness import same


def adapter(result, folder="adapter"):
    return load_file(result.folder / folder / "adapter_model.safetensors")


def test_a_run_leaves_all_its_files(make):
    experiment = make()
    result = run(experiment)
    folder = result.folder
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert names == {
        "config.toml",
        "environment.json",
        "sites.json",
        "data.json",
        "exclusions.json",
        "measured.json",
        "metrics.jsonl",
        "disclosure.json",
        "summary.json",
        "adapter",
        "checkpoint",
        "private",
        "report.html",
    }
    assert Experiment.load(folder / "config.toml") == settled(experiment)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows == result.rows
    assert [row["round"] for row in rows] == [0, 1, 2]
    assert rows[2]["heldout_loss"] < rows[0]["heldout_loss"]
    sites = json.loads((folder / "sites.json").read_text())
    assert {site["site"]: site["used"] for site in sites} == SIZES
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["rounds"] == 2 and summary["final"] == rows[-1]
    assert summary["bytes_up"] == sum(row["bytes_up"] for row in rows) > 0
    assert "FedAvg" in (folder / "report.html").read_text()


def test_a_run_tells_which_records_it_was_measured_on(quick, tmp_path):
    def measured(name, **data):
        return read(run(quick(run={"folder": str(tmp_path / name)}, data=data, method={"rounds": 1})).folder).measured

    first = measured("first")
    lines = (tmp_path / "heldout.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "moved.jsonl").write_text("".join(reversed(lines)))
    assert first.heldout.count == len(lines) and measured("same", heldout="moved.jsonl") == first
    (tmp_path / "edited.jsonl").write_text("".join([*lines[:-1], lines[-1].replace("explain", "describe")]))
    other = measured("other", heldout="edited.jsonl")
    assert other.heldout.count == first.heldout.count and other.heldout.digest != first.heldout.digest
    few = measured("few", heldout_records=2)
    assert few.heldout.count == 2 and few.heldout == few.nonmembers


@pytest.mark.parametrize("promises", [True, False])
def test_of_private_records_that_are_measured_on_a_promise_lets_the_number_alone_be_told(quick, promises):
    method = {"rounds": 1} | ({"name": "dplora", "noise_multiplier": 1.0} if promises else {})
    result = run(quick(data={"heldout": None, "heldout_records": 2}, method=method))
    found = read(result.folder).measured.heldout
    assert found.count == 2 and (found.digest is None) == promises


def test_peft_loads_the_adapter(quick, llama_folder):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    result = run(quick())
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(llama_folder), result.folder / "adapter")
    loaded = {name.replace(".default", ""): tensor for name, tensor in model.state_dict().items() if "lora_" in name}
    assert same(loaded, adapter(result))
    assert any(tensor.abs().max() > 0 for name, tensor in loaded.items() if "lora_B" in name)


def test_a_seed_gives_the_same_adapter_again_and_another_seed_another(quick, tmp_path):
    runs = [
        run(quick(run={"seed": seed, "folder": str(tmp_path / name)})) for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    first, again, other = (adapter(result) for result in runs)
    assert same(first, again)
    assert not same(first, other)


@pytest.mark.parametrize("algorithm", ["fedprox", "fedyogi", "fedadagrad"])
def test_every_algorithm_runs_and_changes_the_adapter(quick, algorithm):
    """The others do in forecast/test_dry_run."""
    result = run(quick(**ALGORITHMS[algorithm], evaluation={"attacks": False, "every": 2}))
    assert len(result.rows) == 3
    assert any(tensor.abs().max() > 0 for name, tensor in adapter(result).items() if "lora_B" in name)


def test_a_folder_that_holds_a_run_is_left_as_it_is(quick, monkeypatch):
    first = run(quick())
    before = {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")}
    monkeypatch.setattr("murmura.models.load", lambda *_: pytest.fail("refused only after the model was loaded"))
    with pytest.raises(CheckpointError, match=r"already holds a run.*--resume.*--overwrite"):
        run(quick(run={"seed": 1}))
    assert {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")} == before


def test_overwrite_starts_over(quick):
    first = run(quick())
    (first.folder / "sites").mkdir()
    second = run(quick(run={"seed": 1}), overwrite=True)
    assert not (second.folder / "sites").exists()
    assert json.loads((second.folder / "summary.json").read_text())["seed"] == 1


def left(folder):
    """All files of a run and what is in them."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("murmura.experiment.run.simulate", RunError("a worker did not start")),
        ("murmura.experiment.server_side.ServerSide.meet", RunError("a site did not join")),
        ("murmura.federation.server.rounds.Server._close", MemoryError()),
        ("murmura.federation.server.rounds.Server.rounds", KeyboardInterrupt()),
    ],
)
def test_a_new_run_that_fails_before_its_first_round_is_saved_tells_where_the_previous_one_is(
    quick, monkeypatch, capsys, where, error
):
    folder = RunFolder(run(quick(method={"rounds": 1})).folder)
    before = left(folder.path)

    def fails(*_, **__):
        raise error

    with monkeypatch.context() as patch, pytest.raises(type(error)):
        patch.setattr(where, fails)
        run(quick(run={"seed": 1}), overwrite=True)
    assert left(folder.previous) == before
    assert f"saved no round; the previous run is in {folder.previous}" in capsys.readouterr().err
    assert run(quick(run={"seed": 1}), overwrite=True).rows[-1]["round"] == 2
    assert left(folder.previous) == before  # what has saved no round displaces nothing
    original = {"folder": str(folder.previous)}
    assert run(quick(run=original, method={"rounds": 1}), resume=True).rows[-1]["round"] == 1


def begin_anew_and_die(experiment):
    """Overwrite a run with a new one that is killed before its first round."""
    Server.rounds = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    run(Experiment.of(tomllib.loads(experiment)), overwrite=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"resume": True}, {"overwrite": True}])
def test_a_new_run_that_is_killed_leaves_the_previous_one(quick, options):
    experiment = quick(method={"rounds": 1})
    folder = RunFolder(run(experiment).folder)
    before = left(folder.path)
    process = forks.Process(target=begin_anew_and_die, args=(experiment.dump(),))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert left(folder.previous) == before
    with pytest.raises(CheckpointError):
        run(experiment)
    assert run(experiment, **options).rows[-1]["round"] == 1
    assert left(folder.previous) == before


def begin_and_die_with_all_records_shared_out(experiment):
    simulation.Simulated = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    run(Experiment.of(tomllib.loads(experiment)))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"resume": True}, {"overwrite": True}])
def test_a_run_that_is_killed_once_records_are_shared_out_can_be_begun_again(quick, options):
    experiment = quick(method={"rounds": 1})
    process = forks.Process(target=begin_and_die_with_all_records_shared_out, args=(experiment.dump(),))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    kept = RunFolder(experiment.run.path).private
    assert list(kept.rglob(simulation.SITE_DATA))
    assert run(experiment, **options).rows[-1]["round"] == 1
    assert not list(kept.rglob(simulation.SITE_DATA))


def test_resume_goes_on_to_more_rounds(quick):
    run(quick(method={"rounds": 1}, training={"schedule": "constant"}))
    longer = quick(training={"schedule": "constant"})
    resumed = run(longer, resume=True)
    assert [row["round"] for row in resumed.rows] == [0, 1, 2]
    after = adapter(resumed)
    assert same(after, adapter(run(longer, overwrite=True)))


def test_resume_without_a_checkpoint_loses_nothing(quick):
    first = run(quick(method={"rounds": 1}))
    shutil.rmtree(first.folder / "checkpoint")
    before = left(first.folder)
    with pytest.raises(CheckpointError, match=r"its checkpoint is gone.*--overwrite"):
        run(quick(), resume=True)
    assert left(first.folder) == before


def test_resume_before_the_first_round_starts_it(quick, monkeypatch):
    def killed(*_):
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr("murmura.federation.server.rounds.Server.rounds", killed)
        run(quick(method={"rounds": 1}))
    assert len(run(quick(method={"rounds": 1}), resume=True).rows) == 2


def test_a_run_that_is_resumed_and_stops_again_is_not_finished(quick, monkeypatch):
    first = run(quick(method={"rounds": 1}, training={"schedule": "constant"}))

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("murmura.federation.site.cohort.train", stop)
    with pytest.raises(Interrupted):
        run(quick(training={"schedule": "constant"}), resume=True)
    assert not read(first.folder).finished


def test_an_interruption_before_the_run_began_is_told_from_one_after(quick, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("murmura.models.load", stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(quick())
    assert not isinstance(stopped.value, Interrupted)


def test_peak_memory_is_that_of_all_parts_of_a_run(quick, monkeypatch):
    monkeypatch.setattr("murmura.federation.server.rounds.peak_memory", lambda device: 9 * 10**9)
    run(quick(method={"rounds": 1}, training={"schedule": "constant"}))
    monkeypatch.setattr("murmura.federation.server.rounds.peak_memory", lambda device: 10**9)
    again = run(quick(training={"schedule": "constant"}), resume=True)
    assert json.loads((again.folder / "summary.json").read_text())["peak_memory"] == 9 * 10**9


@pytest.mark.parametrize("rule", ["mean", "ffa", "rolora", "fedsa", "fedex", "flora", "flexlora", "fair"])
def test_every_rule_runs_with_all_that_is_measured(quick, rule):
    rounds = 2 if rule in ("rolora", "fedsa", "fedex", "flora") else 1  # these do something else in the second
    result = run(quick(aggregation={"rule": rule}, method={"rounds": rounds}, evaluation=ATTACKED))
    assert all(row["attack_auc"] is not None for row in result.rows[1:])
    assert all((row.get("upload_auc") is not None) == (rule != "fedsa") for row in result.rows[1:])


def test_a_plan_that_cannot_be_kept_is_told_before_anything_is_written(quick, tmp_path):
    with pytest.raises(PrivacyError):
        run(quick(method={"name": "dplora", "noise_multiplier": 1.0, "delta": 1e-5}, training={"batch_size": 5}))
    assert not (tmp_path / "run" / "config.toml").exists()


def test_resume_of_nothing_is_refused(quick):
    with pytest.raises(CheckpointError, match="no run to resume"):
        run(quick(), resume=True)


Disk = namedtuple("Disk", "total used free")


def test_a_full_disk_is_refused_before_anything_is_overwritten(quick, monkeypatch):
    first = run(quick(method={"rounds": 1}))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Disk(10**9, 10**9 - 10**6, 10**6))
    monkeypatch.setattr("murmura.federation.site.cohort.train", lambda *_, **__: pytest.fail("trained on a full disk"))
    with pytest.raises(CheckpointError, match="the disk has 1 MiB left, this run needs 64 MiB"):
        run(quick(), overwrite=True)
    assert (first.folder / "summary.json").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_training(quick, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("murmura.federation.site.cohort.train", lambda *_, **__: pytest.fail("trained for nothing"))
    with pytest.raises(CheckpointError, match="cannot be written"):
        run(quick(run={"folder": str(tmp_path / "file" / "run")}))


def test_a_loss_that_is_no_number_names_round_site_and_step_and_keeps_the_checkpoint(quick):
    run(quick(method={"rounds": 1}, training={"schedule": "constant"}))
    # A step multiplies every weight by about lr·decay: the second one overflows, whatever the gradients are.
    broken = quick(training={"schedule": "constant", "lr": 1e30, "optimizer": "sgd", "weight_decay": 1.0})
    with pytest.raises(RunError, match=r"round 2, site \w+, step \d+"):
        run(broken, resume=True)
    assert [row["round"] for row in run(quick(training={"schedule": "constant"}), resume=True).rows] == [0, 1, 2]


def test_a_bad_record_is_named_or_skipped_and_counted(quick, tmp_path):
    good = [record("skin", number) for number in range(3)]
    write_lines(tmp_path / "sites" / "skin.jsonl", [good[0], {"instruction": "explain"}, *good[1:]])
    with pytest.raises(DataError, match=r"skin\.jsonl:2: record without 'output'.*--skip-bad"):
        run(quick())
    write_lines(tmp_path / "heldout.jsonl", [good[0], record("kidney", 0)])
    run(quick(data={"skip_bad": True}, method={"rounds": 1}))
    sites = json.loads((tmp_path / "run" / "sites.json").read_text())
    assert [site["records"] for site in sites] == [6, 3]
    assert json.loads((tmp_path / "run" / "data.json").read_text()) == {
        "bad": 1,
        "overlap": 1,
        "heldout": 0,
        "train": 0,
        "person_at": None,
        "asked": 0,
    }
    reasons = json.loads((tmp_path / "run" / "exclusions.json").read_text())
    skin, heldout = tmp_path / "sites" / "skin.jsonl", tmp_path / "heldout.jsonl"
    assert [(row["file"], row["line"], row["cause"]) for row in reasons] == [
        (str(skin), 2, "bad"),
        (str(heldout), 1, "overlap"),
    ]
    assert reasons[0]["reason"].startswith("record without 'output'")
    assert reasons[1]["reason"] == f"held out, and a site has it too: {skin}:1"


def test_held_out_records_that_do_not_fit_are_counted(quick, tmp_path, capsys):
    long = record("kidney", 9) | {"output": "please call the clinic " * 60}
    write_lines(tmp_path / "heldout.jsonl", [record("kidney", 0), long])
    run(quick(method={"rounds": 1}))
    assert json.loads((tmp_path / "run" / "data.json").read_text())["heldout"] == 1
    assert "1 record does not fit 128 tokens" in capsys.readouterr().err


def test_held_out_records_that_were_sites_own_are_disclosed_once(quick):
    options = {"data": {"heldout": None, "heldout_records": 4}}
    first = run(quick(method={"rounds": 1}, **options))
    for result in (first, run(quick(**options), resume=True)):
        found = [row for row in json.loads((result.folder / "disclosure.json").read_text()) if row["kind"] == "records"]
        assert [(row["messages"], row["protection"]) for row in found] == [(4, None)] and found[0]["bytes"] > 0
    sites = read(first.folder).sites
    assert [site.records for site in sites] == list(SIZES.values())
    assert sum(site.used for site in sites) == sum(SIZES.values()) - 4


SECRET = {
    "name": "dpfedavg",
    "noise_multiplier": 1.0,
    "sampler": {"kind": "poisson", "sites_per_round": 1},
    "rounds": 1,
}


def test_held_out_records_that_were_sites_own_are_disclosed_where_cohorts_are_secret(quick):
    result = run(quick(SECRET, data={"heldout": None, "heldout_records": 4}, evaluation={"attacks": False}))
    [found] = [row for row in json.loads((result.folder / "disclosure.json").read_text()) if row["kind"] == "records"]
    assert (found["verb"], found["messages"]) == ("(set apart)", 4)


@pytest.mark.parametrize("passing", [True, False])
def test_a_reason_that_is_kept_secret_tells_whether_it_may_pass(quick, monkeypatch, passing):
    def stop(*_):
        raise CheckpointError("so it stops", passing=passing)

    monkeypatch.setattr(RunFolder, "write_metrics", stop)
    with pytest.raises(RunError, match="the run stopped; the reason may tell") as error:
        run(quick(SECRET, evaluation={"attacks": False}))
    assert error.value.passing == may_pass(error.value) == passing


def test_a_record_held_out_and_private_is_refused(quick, tmp_path):
    write_lines(tmp_path / "heldout.jsonl", [record("skin", 1)])
    with pytest.raises(DataError, match="1 public record is also a private one, so it would"):
        run(quick())


NAMES = ("a/b", "..", ".", "clinic one", "%", "été")


def test_site_names_become_folders_that_stay_inside_the_run(tmp_path, quick):
    rows = [record("heart", number) | {"owner": name} for name in NAMES for number in range(NAMES.index(name), 12, 6)]
    write_lines(tmp_path / "all.jsonl", rows)
    by_owner = {"train": "all.jsonl", "sites": {"by": "column", "column": "owner"}}
    result = run(quick(data=by_owner, method={"name": "local", "rounds": 1}, evaluation={"attacks": False}))
    folders = sorted(path for path in (result.folder / "sites").iterdir())
    assert sorted(unquote(folder.name) for folder in folders) == sorted(NAMES)
    assert all((folder / "adapter_model.safetensors").exists() for folder in folders)
    assert not (tmp_path / "run" / "adapter_model.safetensors").exists()


@pytest.mark.parametrize("letters", [39, 40, 41])
def test_a_name_too_long_for_a_folder_is_refused_by_a_dry_run(tmp_path, quick, letters):
    rows = [record("heart", number) | {"owner": "ж" * letters} for number in range(6)]
    write_lines(tmp_path / "all.jsonl", rows)
    asked = quick(data={"train": "all.jsonl", "sites": {"by": "column", "column": "owner"}}, method={"rounds": 1})
    if letters <= 40:
        run(asked)
        return
    with pytest.raises(DataError, match="name takes 246 letters as a folder's, of at most 240") as refused:
        dry_run(asked)
    assert refused.value.where == f"site {'ж' * letters}"


def test_no_site_name_leads_out_of_its_folder():
    names = [*NAMES, "", "...", "%2E", "/", "a%2Fb", "../../a", "a\\b"]
    folders = [site_folder(name) for name in names]
    assert len(set(folders)) == len(names)
    assert all(folder.strip(".") and "/" not in folder and "\\" not in folder for folder in folders)
    assert [unquote(folder) for folder in folders if folder != "%"] == [name for name in names if name]


def test_full_parameter_training_leaves_a_model_whole_or_not_at_all(quick, tmp_path, llama_folder, monkeypatch):
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

    def full(self, folder):
        (Path(folder) / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    write_data(tmp_path, {"heart": 3, "skin": 2})
    experiment = quick(model={"trainable": "all"}, method={"rounds": 1}, training={"lr": 1e-3})
    with monkeypatch.context() as patch, pytest.raises(CheckpointError, match="No space left"):
        patch.setattr(PreTrainedModel, "save_pretrained", full)
        run(experiment)
    assert not any("model" in path.name for path in experiment.run.path.iterdir())
    result = run(experiment, resume=True)
    model = AutoModelForCausalLM.from_pretrained(result.folder / "model")
    assert model.config.vocab_size == len(AutoTokenizer.from_pretrained(result.folder / "model"))
    trained = latest(result.folder / "checkpoint").server["adapter"]
    assert same(dict(model.named_parameters()), trained)
    base = dict(AutoModelForCausalLM.from_pretrained(llama_folder).named_parameters())
    assert not any(torch.equal(base[name], tensor) for name, tensor in trained.items())
    assert not (result.folder / "adapter").exists()
