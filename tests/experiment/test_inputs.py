"""A run goes on with the files that it has read, or not at all."""

import json
import os
import shutil
from dataclasses import asdict
from importlib import import_module

import pytest
from safetensors.torch import load_file, save_file

from murmura.errors import CheckpointError, ConfigError
from murmura.experiment import Experiment
from murmura.experiment.inputs import inputs, require_same_inputs
from murmura.experiment.run import run
from murmura.runs.folder import RunFolder
from murmura.runs.names import INPUTS
from tests.experiment import small

pytestmark = pytest.mark.usefixtures("no_page")


@pytest.fixture
def asked(tmp_path, llama_folder):
    """An experiment with a model of its own, by its number of rounds."""
    small.write_data(tmp_path)
    shutil.copytree(llama_folder, tmp_path / "model")
    return lambda rounds: small.experiment(tmp_path, tmp_path / "model", {"rounds": rounds})


def other_weights(folder):
    weights = folder / "model" / "model.safetensors"
    save_file({name: 2 * tensor for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})


def other_heldout(folder):
    small.write_lines(folder / "heldout.jsonl", map(small.heldout, range(1, small.HELDOUT + 1)))


def as_old(folder):
    """Other records in as many characters, in a file with the time of the one before, as archives give it."""
    file = folder / "heldout.jsonl"
    about, text = file.stat(), file.read_text()
    (folder / "new").write_text(text.replace("letter", "answer"))
    os.utime(folder / "new", ns=(about.st_atime_ns, about.st_mtime_ns))
    (folder / "new").replace(file)
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (about.st_size, about.st_mtime_ns)


def another_site(folder):
    small.write_lines(folder / "sites" / "skin.jsonl", [small.record("skin", number) for number in range(1, 4)])


@pytest.mark.parametrize(
    ("change", "which"),
    [
        (as_old, r"data.heldout.*: heldout.jsonl"),
        (other_weights, r"model.name.*: model.safetensors"),
        (other_heldout, r"data.heldout.*: heldout.jsonl"),
        (another_site, r"data.train.*: skin.jsonl"),
    ],
)
def test_a_run_does_not_go_on_with_other_files(asked, tmp_path, change, which):
    run(asked(1))
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    change(tmp_path)
    with pytest.raises(CheckpointError, match=f"{which} changed since"):
        run(asked(2), resume=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == before


def test_it_goes_on_with_the_same_ones_whenever_they_were_written_and_whatever_lies_beside_them(asked, tmp_path):
    run(asked(1))
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    (tmp_path / "sites" / "README.md").write_text("About them.")
    (tmp_path / "sites" / ".hidden").write_text("nobody's")
    assert len(run(asked(2), resume=True).rows) == 3


def test_what_an_option_says_anew_is_the_options_business(asked, tmp_path):
    """Some may change when a run goes on; that is told, and others are refused by name."""
    run(asked(1))
    other = tmp_path / "other.jsonl"
    shutil.copy(tmp_path / "heldout.jsonl", other)
    moved = small.experiment(tmp_path, tmp_path / "model", {"rounds": 2}, data={"heldout": "other.jsonl"})
    require_same_inputs(RunFolder(tmp_path / "run"), moved)
    with pytest.raises(ConfigError, match=r"data\.heldout"):
        run(moved, resume=True)


def test_where_it_is_not_noted_nobody_knows(asked, tmp_path):
    run(asked(1))
    (tmp_path / "run" / INPUTS).unlink()
    with pytest.raises(CheckpointError, match="not noted here"):
        run(asked(2), resume=True)


@pytest.mark.parametrize("line", ["[]", '{"option": "data.train"}', '{"option": 1, "name": 2, "files": 3}'])
def test_a_damaged_note_is_told(asked, tmp_path, line):
    run(asked(1))
    (tmp_path / "run" / INPUTS).write_text(line + "\n")
    with pytest.raises(CheckpointError, match=r"inputs\.jsonl"):
        run(asked(2), resume=True)


def noted(experiment):
    return {one.option: set(one.files) for one in inputs(experiment)}


def test_of_a_model_is_noted_what_it_is_loaded_from(asked, tmp_path):
    folder = tmp_path / "model"
    before = noted(asked(1))["model.name"]
    (folder / "1_Pooling").mkdir()
    (folder / "checkpoint-5").mkdir()
    for name in ("model.onnx", "model.gguf", "tf_model.h5", "pytorch_model.bin", "README.md", "checkpoint-5/a.json"):
        (folder / name).touch()
    (folder / "1_Pooling" / "config.json").touch()
    assert noted(asked(1))["model.name"] == before | {"1_Pooling/config.json"}


def test_a_folder_that_is_called_like_a_model_is_none(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MURMURA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "smollm2-135m").mkdir()
    (tmp_path / "smollm2-135m" / "metrics.jsonl").touch()
    other = small.experiment(tmp_path, "smollm2-135m")
    assert "model.name" not in noted(other)


def test_models_are_noted_that_the_run_loads_and_no_others(asked, tmp_path):
    models = dict.fromkeys(("generator", "paraphraser", "variation_model"), str(tmp_path / "model"))
    table = {
        "model": {"name": "model"},
        "data": {"train": "sites", "heldout": "heldout.jsonl", "fields": {"text": "output"}},
        "method": {"name": "pretext", "public": "heldout.jsonl", **models},
    }
    found = noted(Experiment.of(table, base=tmp_path))
    assert found.keys() >= {"method.generator", "method.variation_model", "method.public"}
    assert "method.paraphraser" not in found


def test_what_is_ignored_among_sites_is_not_read(asked, tmp_path):
    (tmp_path / "sites" / "notes.txt").write_text("mine")
    ignoring = small.experiment(tmp_path, tmp_path / "model", data={"sites": {"ignore": ["notes.txt"]}})
    assert noted(ignoring)["data.train"] == {"heart.jsonl", "skin.jsonl"}


def test_an_index_that_is_made_in_a_pool_later_changes_nothing(asked, tmp_path):
    (tmp_path / "pool").mkdir()
    for name in ("pool.json", "vectors.npy", "approximate.faiss"):
        (tmp_path / "pool" / name).touch()
    augment = {"strategy": "random", "pool": "pool", "records": 1}
    assert noted(small.experiment(tmp_path, tmp_path / "model", augment=augment))["augment.pool"] == {"pool.json"}


def test_a_hubs_snapshot_without_weights_is_no_model(asked, tmp_path, monkeypatch):
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "config.json").touch()
    monkeypatch.setattr(import_module("murmura.models.locate"), "_kept_by_hub", lambda name: snapshot)
    other = small.experiment(tmp_path, "somebody/model")
    assert "model.name" not in noted(other)
    (snapshot / "model.safetensors").touch()
    assert noted(other)["model.name"] == {"config.json", "model.safetensors"}


def test_a_server_of_sites_elsewhere_reads_no_records_that_the_experiment_was_made_with(asked, tmp_path):
    away = small.experiment(tmp_path, tmp_path / "model", run={"engine": "flower"})
    assert noted(away).keys() == {"model.name"}


def test_what_is_noted_is_of_each_file_and_for_the_owner(asked, tmp_path):
    run(asked(1))
    lines = [json.loads(line) for line in (tmp_path / "run" / INPUTS).read_text().splitlines()]
    assert "private" in lines[0]
    found = {line["option"]: sorted(line["files"]) for line in lines[1:]}
    assert found["data.train"] == ["heart.jsonl", "skin.jsonl"] and found["data.heldout"] == ["heldout.jsonl"]
    assert "model.safetensors" in found["model.name"] and "data.encoder" not in found
    assert lines[1:] == [asdict(one) for one in inputs(asked(2))]
    require_same_inputs(RunFolder(tmp_path / "run"), asked(2))
