"""A federation's sites and server work with the models that it was made with, or not at all."""

import json
import shutil
from contextlib import closing

import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from murmura import models
from murmura.cli import app
from murmura.errors import CheckpointError, ModelError
from murmura.experiment import Experiment
from murmura.experiment.federation import found
from murmura.experiment.forecast.terms import terms
from murmura.experiment.inputs import models_at_sites, require_same_models
from murmura.experiment.prepare import prepare
from murmura.experiment.run import run
from murmura.experiment.site_side import open_sites
from murmura.runs.names import FEDERATION, MODEL_DIGESTS
from tests.experiment import small
from tests.experiment.deployed import Near, founded

NAMED = r"model\.name = .*model \(in .*model\): this is not the model .* differs: {}\. Copy the model's folder"


@pytest.fixture
def asked(tmp_path, llama_folder):
    """An experiment with a model of its own."""
    small.write_data(tmp_path)
    shutil.copytree(llama_folder, tmp_path / "model")
    return small.experiment(tmp_path, tmp_path / "model")


def other_weights(model):
    weights = model / "model.safetensors"
    save_file({name: 2 * tensor for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})


def other_template(model):
    (model / "chat_template.jinja").write_text("{{ messages }}")


def no_config_of_writing(model):
    (model / "generation_config.json").unlink()


@pytest.mark.parametrize(
    ("change", "which"),
    [
        (other_weights, r"model\.safetensors"),
        (other_template, r"chat_template\.jinja"),
        (no_config_of_writing, r"generation_config\.json"),
    ],
)
def test_a_site_with_another_model_takes_part_in_nothing(asked, tmp_path, change, which):
    own = found(prepare(asked), tmp_path / "many", "127.0.0.1")["heart"]
    change(tmp_path / "model")
    for look in (terms, lambda folder: open_sites([folder])):
        with pytest.raises(ModelError, match=NAMED.format(which)):
            look(own)
    told = CliRunner().invoke(app, ["site", "init", str(own)])
    assert told.exit_code == 2 and "have the federation made anew" in " ".join(told.output.split())
    assert not (own / "public.json").exists()


def test_nor_does_a_server(asked, tmp_path, no_page):
    federation = founded(asked, tmp_path / "many")
    other_weights(tmp_path / "model")
    with pytest.raises(ModelError, match=NAMED.format(r"model\.safetensors")):
        run(federation.experiment, deployment=Near(federation))
    assert not (tmp_path / "many" / "run" / "config.toml").exists()


def test_it_may_lie_elsewhere_beside_files_that_nothing_reads(asked, tmp_path):
    folder = found(prepare(asked), tmp_path / "many", "127.0.0.1")["heart"]
    elsewhere = tmp_path / "elsewhere" / "model"
    shutil.copytree(tmp_path / "model", elsewhere)
    shutil.rmtree(tmp_path / "model")
    for name in ("README.md", "model.gguf", "pytorch_model.bin"):
        (elsewhere / name).touch()
    file = folder.parent / FEDERATION / "experiment.toml"
    file.write_text(file.read_text().replace(str(tmp_path / "model"), str(elsewhere)))
    with closing(open_sites([folder])) as host:
        assert host.sites["heart"].size == 6


@pytest.mark.parametrize("noted", [None, "[]"])
def test_what_nobody_has_noted_is_not_compared_and_told(asked, tmp_path, capsys, noted):
    """Of a model that its maker had not at hand, or by an earlier version."""
    folder = found(prepare(asked), tmp_path / "many", "127.0.0.1")["heart"]
    note = folder.parent / FEDERATION / MODEL_DIGESTS
    note.unlink() if noted is None else note.write_text(noted)
    other_weights(tmp_path / "model")
    open_sites([folder]).close()
    terms(folder)
    told = " ".join(capsys.readouterr().err.split())
    assert f"nobody has compared model.name = {tmp_path / 'model'} with what other members have" in told


def test_what_was_compared_is_not_told(asked, tmp_path, capsys):
    terms(found(prepare(asked), tmp_path / "many", "127.0.0.1")["heart"])
    assert "nobody has compared" not in capsys.readouterr().err


def test_a_server_tells_what_nobody_has_noted(asked, tmp_path, no_page, capsys):
    federation = founded(asked, tmp_path / "many")
    (federation.folder / FEDERATION / MODEL_DIGESTS).unlink()
    near = Near(federation)
    run(federation.experiment, deployment=near)
    near.leave()
    assert "nobody has compared model.name = " in capsys.readouterr().err


def test_whoever_makes_one_is_told_that_nothing_of_its_model_is_noted(asked, tmp_path, monkeypatch, capsys):
    plan = prepare(asked)
    monkeypatch.setattr(models, "kept", lambda name: None)
    found(plan, tmp_path / "many", "127.0.0.1")
    assert json.loads((tmp_path / "many" / FEDERATION / MODEL_DIGESTS).read_text()) == []
    assert "sites cannot tell whether theirs are the same" in " ".join(capsys.readouterr().err.split())


def test_a_model_that_is_not_here_yet_is_fetched_before_it_is_compared(asked, tmp_path, monkeypatch):
    federation, fetched = tmp_path / "many" / FEDERATION, []
    found(prepare(asked), tmp_path / "many", "127.0.0.1")
    other_weights(tmp_path / "model")

    def fetch(name):
        fetched.append(name)
        monkeypatch.setattr(models, "kept", lambda name: tmp_path / "model")

    monkeypatch.setattr(models, "kept", lambda name: None)
    monkeypatch.setattr(models, "resolve", fetch)
    require_same_models(federation, asked, "site")
    with pytest.raises(ModelError, match="not the model"):
        require_same_models(federation, asked, "site", fetch=True)
    assert fetched == [str(tmp_path / "model")]


@pytest.mark.parametrize("text", ["{}", "[1]", "[" * 5000, '[{"option": "model.name"}]'], ids=len)
def test_a_damaged_note_is_told(asked, tmp_path, text):
    (tmp_path / MODEL_DIGESTS).write_text(text)
    with pytest.raises(CheckpointError, match=rf"{MODEL_DIGESTS}.*Get it from whoever made the federation"):
        require_same_models(tmp_path, asked, "site")


def test_other_models_are_noted_that_sites_use_and_no_others(asked, tmp_path):
    table = {
        "model": {"name": "model"},
        "data": {"train": "sites", "heldout": "heldout.jsonl", "fields": {"text": "output"}},
        "method": {"name": "pretext", "public": "heldout.jsonl"}
        | dict.fromkeys(("generator", "encoder", "variation_model"), str(tmp_path / "model")),
    }
    noted = models_at_sites(Experiment.of(table, base=tmp_path))
    assert [one.option for one in noted] == ["model.name", "method.encoder"]
