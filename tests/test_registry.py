"""Another package brings a method: it is found, listed, checked and run like those that are built in."""

import json
import sys
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import create_model
from safetensors.torch import load_file
from typer.testing import CliRunner

from murmura import methods
from murmura.audit.membership import MIN_K, Readings, scored
from murmura.audit.run import Options, audit
from murmura.cli import app
from murmura.errors import ConfigError
from murmura.experiment.config import Experiment
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.inputs import inputs_of
from murmura.experiment.names import named
from murmura.experiment.run import run
from murmura.experiment.schema import schema
from murmura.experiment.starter import starter
from murmura.experiment.validate import method_of
from murmura.generation.scoring import CloseScores
from murmura.measure.attacks import Passes
from murmura.privacy import run_ledgers
from murmura.report.run_facts import software
from murmura.runs import names
from murmura.runs.folder import RunFolder
from murmura.runs.record import read
from murmura.tasks import INSTRUCTION
from tests.experiment.small import experiment, record, write_data, write_lines

PLUGIN = Path(__file__).parent / "plugin"


@pytest.fixture
def plugin(monkeypatch):
    monkeypatch.syspath_prepend(str(PLUGIN))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "halves"]:
        del sys.modules[name]


def brought(folder, name, entries, group="methods"):
    """A distribution that has entry points and nothing else."""
    info = folder / f"{name}-2.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text(f"[murmura.{group}]\n" + "".join(f"{line}\n" for line in entries))
    return str(folder)


def test_a_tracker_that_a_package_brings_is_listed(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(brought(tmp_path, "elsewhere", ["notebook = elsewhere:Notebook"], "trackers"))
    assert "tracker notebook  [elsewhere 2.0]" in CliRunner().invoke(app, ["methods"]).stdout


def test_the_sites_of_an_engine_that_a_package_brings_are_simulated(llama_folder, monkeypatch, tmp_path):
    entries = ["ray = murmura.federation.engines.local:start", "torn = murmura.federation.engines.local:LocalEngine"]
    monkeypatch.syspath_prepend(brought(tmp_path, "elsewhere", entries, "engines"))
    write_data(tmp_path)
    method = {"name": "dplora", "rounds": 1, "noise_multiplier": 1.0}
    with pytest.raises(ConfigError, match="'torn' cannot be started") as caught:
        run(experiment(tmp_path, llama_folder, method, run={"engine": "torn", "folder": str(tmp_path / "torn")}))
    assert caught.value.where == "package elsewhere 2.0"
    folder = run(experiment(tmp_path, llama_folder, method, run={"engine": "ray"})).folder
    made = RunFolder(folder)
    assert read(folder).simulated and any(one.option == "data.train" for one in inputs_of(made))
    assert audit(folder, Options(texts=0)).models
    rmtree(made.private_of("skin"))
    assert "what site skin kept of this run is gone" in run_ledgers.read(folder).damaged["skin"]


def test_a_name_that_is_nearly_a_method_s_takes_nothing_from_it(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(
        brought(tmp_path, "elsewhere", ["dp-lora = elsewhere:Config", "fed-prox = elsewhere:Config"])
    )
    assert [named(name).method for name in ("dplora", "DPLoRA", "dp-lora")] == ["dplora", "dplora", "dp-lora"]
    assert [named(name).method for name in ("fedprox", "FedProx", "fed-prox")] == ["fedit", "fedit", "fed-prox"]


def test_its_options_are_not_told_in_words_of_others_that_are_called_alike(plugin, monkeypatch):
    kept = "# written records that a site trains on in a round"
    assert kept in starter("fewfedpit")
    options = methods.section("halves")
    with_keep = create_model("WithKeep", __base__=options, __doc__=options.__doc__, keep=(int, 1))
    monkeypatch.setattr(methods, "section", lambda name: with_keep)
    assert "keep = 1" in starter("halves") and kept not in starter("halves")


def test_without_the_package_there_is_no_such_method():
    with pytest.raises(ConfigError) as caught:
        methods.section("halves")
    assert "halves" in str(caught.value)


def test_it_is_listed_with_its_package_and_its_options_are_checked(plugin, tmp_path):
    assert (methods.METHODS["halves"].package, methods.METHODS["fedit"].package) == ("halves 1.0", "")
    assert list(methods.METHODS)[-1] == "halves" and len(methods.METHODS) == len(methods.METHODS.builtin) + 1
    assert "HalvesConfig" in schema()["$defs"]
    with pytest.raises(ConfigError) as caught:
        Experiment.of({"data": {"train": "x"}, "method": {"name": "halves", "frist": 1}})
    assert "'first'" in caught.value.fix


@pytest.mark.parametrize("first", [0, 1])
def test_it_runs_as_fedavg_does_on_those_records(plugin, llama_folder, tmp_path, first):
    write_data(tmp_path)
    table = {"training": {"lr_min": 0}, "evaluation": {"attacks": False}}
    ours = run(experiment(tmp_path, llama_folder, {"name": "halves", "rounds": 2, "first": first}, **table))
    for site, count in (("heart", 6), ("skin", 3)):
        write_lines(tmp_path / "sites" / f"{site}.jsonl", [record(site, k) for k in range(first, count, 2)])
    fedavg = experiment(tmp_path, llama_folder, {"rounds": 2}, run={"folder": str(tmp_path / "fedavg")}, **table)
    theirs = run(fedavg)
    mine, other = (load_file(one.folder / "adapter" / "adapter_model.safetensors") for one in (ours, theirs))
    assert mine.keys() == other.keys() and all(mine[name].equal(other[name]) for name in mine)
    told = {row["field"] for row in json.loads((ours.folder / "disclosure.json").read_text()) if row["verb"] == "train"}
    assert told == {"adapter", "examples", "loss"}
    told = [software(read(one.folder).environment) for one in (ours, theirs)]
    assert "halves 1.0 (method halves)" in told[0] and "halves" not in told[1]


@pytest.mark.parametrize("first", [0, 1])
def test_what_it_leaves_out_is_no_member_and_takes_no_steps(plugin, llama_folder, tmp_path, first):
    write_data(tmp_path)
    table = {"training": {"batch_size": 1}}
    ours = experiment(tmp_path, llama_folder, {"name": "halves", "rounds": 1, "first": first}, **table)
    records = [record("heart", k) for k in range(6)]
    assert method_of(ours).members(SimpleNamespace(records=records), None) == records[first::2]
    steps = [planned.steps for planned in dry_run(ours).rounds]
    for site, count in (("heart", 6), ("skin", 3)):
        write_lines(tmp_path / "sites" / f"{site}.jsonl", [record(site, k) for k in range(first, count, 2)])
    halves = dry_run(experiment(tmp_path, llama_folder, {"rounds": 1}, **table))
    assert steps == [planned.steps for planned in halves.rounds] and sum(steps) > 0


def test_its_attack_is_tried_beside_those_of_an_audit(plugin, llama_folder, tmp_path):
    write_data(tmp_path)
    write_lines(tmp_path / "heldout.jsonl", [record("kidney", number) for number in range(4)])  # of two halves
    made = run(experiment(tmp_path, llama_folder, {"name": "halves", "rounds": 1}, evaluation={"attacks": False}))
    [model, *_] = audit(made.folder, Options(texts=0)).models
    found = {one.attack: one.auc for one in model.attacks}
    assert {"upper-half", "loss difference", MIN_K} <= found.keys()
    lines = [json.loads(line) for line in (made.folder / names.AUDIT_SCORES).read_text().splitlines()]
    own = [line for line in lines if {"record", "upper-half"} <= line.keys()]
    assert own and all(line["upper-half"] > line["loss difference"] for line in own)  # of half of the tokens alone
    listed = CliRunner().invoke(app, ["methods"]).stdout
    assert "attack upper-half  [halves 1.0]" in listed and "halves  " in listed and "[halves 1.0] FedAvg" in listed


def test_an_attack_of_a_name_that_murmura_has_is_refused(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(brought(tmp_path, "elsewhere", ["loss difference = elsewhere:attack"], "attacks"))
    with pytest.raises(ConfigError) as caught:
        scored(INSTRUCTION, Readings({}, [], {}))
    assert caught.value.where == "package elsewhere 2.0"


@pytest.mark.parametrize("entry", ["fedit = elsewhere.config:Other", "halves = elsewhere.config:Other"])
def test_two_of_one_name_are_refused_with_both_packages(plugin, monkeypatch, tmp_path, entry):
    monkeypatch.syspath_prepend(brought(tmp_path, "elsewhere", [entry]))
    with pytest.raises(ConfigError) as caught:
        list(methods.METHODS)
    assert "elsewhere 2.0" in str(caught.value) and caught.value.where == "murmura.methods"


def test_one_that_cannot_be_imported_is_told_with_its_package(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(brought(tmp_path, "broken", ["torn = broken.nowhere:Config"]))
    with pytest.raises(ConfigError) as caught:
        methods.section("torn")
    assert caught.value.where == "package broken 2.0"
    assert methods.section("fedit").__name__ == "FedITConfig"  # others are not in its way


CONFIG = """
from typing import ClassVar, Literal
from murmura.federation.method_config import MethodConfig

class Config(MethodConfig):
    implementation: ClassVar[str] = "torn.method:Torn"
    name: Literal["torn"] = "torn"
"""
METHOD = """
from murmura.federation.method import Method
from murmura.federation.traits import Traits

class Torn(Method):
    traits = Traits(label="Torn")
    def lead(self, server, fleet): ...
"""


@pytest.fixture
def torn(monkeypatch, tmp_path):
    """Makes a package that brings one method out of two files."""

    def make(config, method=METHOD, called="Config"):
        (tmp_path / "torn").mkdir()
        for name, text in (("__init__", ""), ("config", config), ("method", method)):
            (tmp_path / "torn" / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(brought(tmp_path, "torn", [f"torn = torn.config:{called}"]))

    yield make
    for name in [name for name in sys.modules if name.split(".")[0] == "torn"]:
        del sys.modules[name]


def test_a_method_that_is_whole_is_made(torn):
    torn(CONFIG)
    assert methods.build(methods.section("torn")()).title == "Torn"


@pytest.mark.parametrize(
    ("config", "method", "why"),
    [
        (CONFIG.replace("    implementation", "    other"), METHOD, "no attribute 'implementation'"),
        (CONFIG.replace(":Torn", ":Tron"), METHOD, "has no attribute 'Tron'"),
        (CONFIG.replace(".method:Torn", ".metod:Torn"), METHOD, "No module named 'torn.metod'"),
        (CONFIG, METHOD.replace("    traits", "    tratis"), "Can't instantiate abstract class"),
        (CONFIG, METHOD.replace("lead", "laed"), "Can't instantiate abstract class"),
        (CONFIG, "class Torn: ...", "it is no subclass of murmura.federation.method.Method"),
        (CONFIG, "Torn = 1", "it is no subclass of murmura.federation.method.Method"),
        (CONFIG, "1 / 0", "ZeroDivisionError"),
        ("class Config: ...", METHOD, "it is no subclass of murmura.federation.method_config.MethodConfig"),
    ],
)
def test_what_a_package_lacks_is_told_with_its_name(torn, config, method, why):
    torn(config, method)
    with pytest.raises(ConfigError) as caught:
        methods.build(methods.section("torn")())
    assert caught.value.where == "package torn 2.0" and "'torn'" in caught.value.what and why in caught.value.what


@pytest.mark.parametrize(
    "named", ["", '    name: Literal["other"] = "other"', '    name: Literal["torn", "other"] = "torn"']
)
def test_a_method_whose_options_have_another_name_is_refused(torn, named):
    torn(CONFIG.replace('    name: Literal["torn"] = "torn"', named))
    for asked in (schema, lambda: methods.section("torn")):
        with pytest.raises(ConfigError, match=r'say name: Literal\["torn"\]') as caught:
            asked()
        assert caught.value.where == "package torn 2.0"


@pytest.mark.parametrize("called", ["Config", "DataConfig", "FedITConfig"])
def test_the_schema_has_options_whatever_their_class_is_called(torn, called):
    """As another package's is, or a section's."""
    torn(CONFIG.replace("class Config", f"class {called}").replace(' = "torn"', ""), called=called)
    found = schema()
    place = found["properties"]["method"]["discriminator"]["mapping"]["torn"].removeprefix("#/$defs/")
    assert found["$defs"][place]["required"] == ["name"]


def test_what_a_method_says_to_people_itself_is_left_to_it(torn):
    own = "    def __init__(self, *args): raise ConfigError('beta is too much for gamma', where='method.beta')\n"
    torn(CONFIG, f"from murmura.errors import ConfigError{METHOD}{own}")
    with pytest.raises(ConfigError, match="beta is too much") as caught:
        methods.build(methods.section("torn")())
    assert caught.value.where == "method.beta"


def read_at(nll):
    """What a model that finds each of three tokens so unlikely, in nats, makes of a record."""
    each = np.full(3, nll, np.float32)
    return CloseScores(each, each > 1, mean=-each, std=each, drawn=-each)


PASSES, LOST = Passes(read_at(1.0), read_at(2.0)), Passes(read_at(np.nan), read_at(2.0))


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        (lambda passes: passes.nll, "AttributeError: 'Passes' object has no attribute 'nll'"),
        (lambda passes: None, "TypeError"),
        (lambda passes: passes.raised, "TypeError"),
        (lambda passes: float("nan"), "ValueError: it gives nan"),
        (lambda passes: float("inf"), "ValueError: it gives inf"),
    ],
)
def test_an_attack_that_makes_no_number_is_told_with_its_package(plugin, monkeypatch, attack, why):
    monkeypatch.setattr("halves.attack.upper_half", attack)
    with pytest.raises(ConfigError) as caught:
        scored(INSTRUCTION, Readings({"heart": [PASSES]}, [[PASSES]], {"heart": 0}))
    assert caught.value.where == "package halves 1.0"
    assert "'upper-half' is an attack that" in caught.value.what and why in caught.value.what


def test_a_model_without_numbers_is_no_mistake_of_an_attack(plugin):
    found = scored(INSTRUCTION, Readings({"heart": [LOST]}, [[PASSES]], {"heart": 0}))
    assert not found["upper-half"].is_finite and not found["loss difference"].is_finite


def test_the_page_about_methods_of_ones_own_shows_this_package():
    page = (PLUGIN.parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
    for name in ("config.py", "method.py", "attack.py"):
        assert f"```python\n{(PLUGIN / 'halves' / name).read_text(encoding='utf-8')}```" in page
