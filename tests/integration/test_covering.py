"""A method that works with an encoder at the sites, another one and a masked model at the server, and no adapter."""

import json
import os
import sys
from collections import Counter
from importlib import import_module
from io import StringIO

import pytest
from rich.console import Console

import murmura.resources
from murmura import methods
from murmura.errors import ModelError, RunError
from murmura.experiment import worker
from murmura.experiment.config import Experiment
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.view import show
from murmura.experiment.run import run
from tests.conftest import make_bert, make_encoder
from tests.experiment.small import SIZES, experiment, write_data
from tests.integration import covered

SMALL, LARGE = 32, 64


@pytest.fixture(autouse=True)
def covering(monkeypatch):
    """The method's module, registered here and in worker processes."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(methods.METHODS, "builtin", dict(methods.METHODS.builtin))
    covered.register()
    monkeypatch.setattr(worker, "PROGRAM", (covered.__file__,))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return import_module("covering.method")


@pytest.fixture(scope="module")
def folders(tokenizer, tmp_path_factory):
    """Tiny models, by the option that names them."""
    root = tmp_path_factory.mktemp("resources")
    made = {
        "site_encoder": make_encoder(tokenizer, hidden=SMALL),
        "server_encoder": make_encoder(tokenizer, hidden=LARGE),
        "varying": make_bert(tokenizer),
    }
    for name, model in made.items():
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    return {name: str(root / name) for name in made}


@pytest.fixture
def make(tmp_path, llama_folder, folders):
    write_data(tmp_path)

    def made(method=None, **sections):
        return experiment(tmp_path, llama_folder, {"name": "covering", **folders, **(method or {})}, **sections)

    return made


@pytest.fixture
def loaded(monkeypatch):
    """How often each model is loaded in this process, by its folder's name."""
    import sentence_transformers

    counts = Counter()

    def counting(load):
        def counted(name, *rest, **options):
            counts[os.path.basename(name)] += 1
            return load(name, *rest, **options)

        return counted

    encoder, model = sentence_transformers.SentenceTransformer, murmura.resources.models.load
    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", counting(encoder))
    monkeypatch.setattr(murmura.resources.models, "load", counting(model))
    return counts


def test_it_goes_from_its_file_to_its_report_and_every_model_is_loaded_once(make, covering, loaded, tmp_path, folders):
    (tmp_path / "my.toml").write_text(make().dump(), encoding="utf-8")
    folder = run(Experiment.load(tmp_path / "my.toml")).folder
    left = json.loads((folder / "outcomes" / "covering.json").read_text())
    assert [sum(votes) for votes in left["votes"]] == [sum(SIZES.values())] * 2
    assert len(left["texts"]) == 4 and not set(left["texts"]) <= set(covering.BEGINNING)
    assert not (folder / "adapter").exists()
    assert {name: loaded[name] for name in folders} == dict.fromkeys(folders, 1)
    told = {one["option"]: one for one in json.loads((folder / "environment.json").read_text())["resources"]}
    assert {option: one["name"] for option, one in told.items()} == folders
    assert told["server_encoder"]["parameters"] > told["site_encoder"]["parameters"] > 0
    assert told["varying"]["source"] == f"folder {folders['varying']}"
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "masked language model" in page and "at the sites" in page and folders["server_encoder"] in page


@pytest.mark.slow
def test_worker_processes_give_the_same_and_load_what_sites_need_alone(make, loaded, tmp_path, forked_workers):
    found = {}
    for engine in ("local", "processes"):
        loaded.clear()
        folder = run(make(run={"engine": engine, "folder": str(tmp_path / engine)})).folder
        found[engine] = json.loads((folder / "outcomes" / "covering.json").read_text())
        assert loaded["site_encoder"] == (engine == "local") and loaded["server_encoder"] == loaded["varying"] == 1
    assert found["local"] == found["processes"]


def test_a_site_does_not_get_what_is_declared_for_the_server(make, covering, monkeypatch):
    vote = covering.Covering.vote

    def asking_for_more(self, cohort, ask):
        cohort.runtime.resources.language_model("varying")
        return vote(self, cohort, ask)

    asking_for_more.declaration = vote.declaration
    monkeypatch.setattr(covering.Covering, "vote", asking_for_more)
    with pytest.raises(RunError, match=r"does not declare 'varying' as a resource at the sites. .*site_encoder"):
        run(make())


@pytest.mark.parametrize("option", ["site_encoder", "varying"])
def test_what_cannot_be_found_is_told_before_the_run_begins(make, option, tmp_path):
    missing = make({option: str(tmp_path / "nowhere")})
    for tried in (dry_run, run):
        with pytest.raises(ModelError, match=rf"^method\.{option}: .*nowhere: there is no model"):
            tried(missing)
    assert not missing.run.path.exists()
    with pytest.raises(ModelError, match=rf"^method\.{option}: model 'nobody/nothing' is unavailable"):
        run(make({option: "nobody/nothing"}))
    [unknown] = dry_run(make({option: "nobody/nothing"})).plan.unknown
    assert unknown.startswith(f"method.{option}: ") and "nobody/nothing" in unknown


def test_a_model_of_another_kind_is_told_too(make, llama_folder):
    for tried in (dry_run, run):
        with pytest.raises(ModelError, match=r"^method\.varying: .*masked language model"):
            tried(make({"varying": str(llama_folder)}))


def test_the_dry_run_tells_which_models_are_used_where(make, loaded, folders):
    found = dry_run(make())
    out = Console(file=StringIO(), width=400)
    show(found, out)
    lines = out.file.getvalue().splitlines()
    for option, words in {"site_encoder": "at the sites", "varying": "masked language model"}.items():
        [line] = [line for line in lines if f"method.{option} " in line]
        assert words in line and folders[option] in line
    sizes = {one.option: one.parameters for one in found.plan.supplies}
    assert found.memory.resources == 4 * sum(sizes.values()) and not loaded
    apart = dry_run(make(run={"engine": "processes", "workers": 3})).memory
    assert apart.resources == 4 * (sizes["server_encoder"] + sizes["varying"] + 3 * sizes["site_encoder"])
