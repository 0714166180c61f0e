"""Whole runs whose sums are secure, beside the same in clear; and what is refused before a run."""

import json
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from murmura import methods
from murmura.errors import ConfigError, SecureSumError
from murmura.experiment.config import Experiment
from murmura.experiment.forecast.budget import uncovered
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.prepare import prepare
from murmura.experiment.run import run
from murmura.federation.server.fleet import Fleet
from murmura.training.adapter import MAGNITUDE
from tests.experiment import small
from tests.experiment.small import METHODS, assert_alike
from tests.training.helpers import EPS

SITES = {"heart": 4, "skin": 3, "lung": 2}
SECURE = {"secure": True}
QUIET = {"every": 9, "sample": 1, "uploads": 0, "attacks": False}


@pytest.fixture
def make(tmp_path, llama_folder, no_page):
    """Small experiments with three sites, the fewest that a secure sum is made of."""
    small.write_data(tmp_path, SITES)
    return partial(small.experiment, tmp_path, llama_folder)


def trained(make, tmp_path, name, method, **aggregation):
    """Tensors of the adapters, the last row of metrics and the disclosure table of a run."""
    tmp_path.mkdir(exist_ok=True)
    folder = run(
        make(
            run={"folder": str(tmp_path / name)},
            method=method | {"rounds": 2},
            aggregation=aggregation,
            evaluation=QUIET,
            training={"eps": EPS},
        )
    ).folder
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    adapters = {path.parent.name: load_file(path) for path in folder.rglob("adapter_model.safetensors")}
    found = {f"{where} {name}": tensor for where, own in adapters.items() for name, tensor in own.items()}
    return found, rows[-1], disclosed(folder)


def disclosed(folder):
    return {(row["verb"], row["field"]): row for row in json.loads((folder / "disclosure.json").read_text())}


def assert_same_run(make, tmp_path, method, aggregation):
    """A run whose sums are secure, held against the same in clear; returns its adapters and its disclosure table."""
    place = tmp_path / f"{method} {aggregation}"
    found, last, told = trained(make, place, "secure", method, **aggregation, **SECURE)
    exact, as_before, _ = trained(make, place, "clear", method, **aggregation)
    assert exact.keys() == found.keys()
    for name, tensor in exact.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-6)
    assert last["train_loss"] == pytest.approx(as_before["train_loss"], abs=1e-6) or last["train_loss"] is None
    assert last["counts"] == as_before["counts"] and len(last["events"]) == len(as_before["events"])
    return exact, told


def test_fedavg_with_control_variates_is_the_same_and_what_left_is_told(make, tmp_path):
    exact, told = assert_same_run(make, tmp_path, {}, {"local": "scaffold"})
    field = told["train", "adapter"]
    assert field["protection"]["type"] == "secure sum" and field["messages"] == 2 * len(SITES)
    assert told["unmask", "shares"]["messages"] == 2 * len(SITES)
    words = 1 + sum(tensor.numel() for tensor in exact.values())  # of 64 bits, the first of which is the field's flag
    assert field["bytes"] == told["train", "control_change"]["bytes"] == 2 * len(SITES) * 8 * words


def test_dora_is_the_same(make, tmp_path):
    exact, _ = assert_same_run(partial(make, lora={"rank": 2, "dora": True}), tmp_path, {}, {})
    assert any(name.endswith(MAGNITUDE) for name in exact)


def test_dp_fedavg_is_the_same(make, tmp_path):
    assert_same_run(make, tmp_path, METHODS["dpfedavg"], {})


@pytest.mark.slow
def test_all_other_methods_and_rules_are_the_same(make, tmp_path):
    for option in ({"rule": "rolora"}, {"rule": "fedsa"}):
        assert_same_run(make, tmp_path, {}, option)
    for name in ("dplora", "dplora fedavg", "dpftrl", "fewfedpit"):
        assert_same_run(make, tmp_path, METHODS[name], {})


def test_the_private_folder_has_no_secret_of_a_sum(make, tmp_path):
    """Only the identity keys and the roster are at rest, and which files were read."""
    trained(make, tmp_path, "secure", {}, **SECURE)
    files = {path.name for path in (tmp_path / "secure" / "private").rglob("*") if path.is_file()}
    assert files == {
        "identity.pem",
        "roster.json",
        "store.journal",
        "sums.journal",
        "notes.txt",
        "inputs.jsonl",
        ".lock",
    }


@pytest.mark.slow
def test_a_promised_epsilon_is_told_apart_from_what_is_summed(make, tmp_path):
    method = {"name": "dplora", "noise_multiplier": 1.0, "accountant": "rdp"}
    _, last, told = trained(make, tmp_path, "secure", method, **SECURE)
    assert last["epsilon"] and not last["privacy"]["refused"]
    assert ("train_private", "privacy") not in told and told["tell_privacy", "privacy"]["protection"] is None
    adapter = told["train_private", "adapter"]
    assert adapter["protection"]["type"] == "differential privacy" and "secure sum: masks" in adapter["note"]


@pytest.mark.slow
@pytest.mark.parametrize("given", [{"noise_multiplier": 1.0}, {"epsilon": 4.0}])
def test_a_site_in_the_sum_that_does_not_say_what_it_has_spent_counts_with_all_that_it_may(
    make, tmp_path, monkeypatch, given
):
    ask = Fleet.ask

    def heard(self, verb, *sites, **fields):
        replies = ask(self, verb, *sites, **fields)
        return (one for one in replies if (verb, one.site) != ("tell_privacy", min(SITES)))

    monkeypatch.setattr(Fleet, "ask", heard)
    method = {"name": "dplora", "accountant": "rdp"} | given
    _, last, _ = trained(make, tmp_path, "secure", method, **SECURE)
    whole = prepare(Experiment.load(tmp_path / "secure" / "config.toml")).guarantee.spent.value
    assert last["privacy"]["refused"] is None and last["epsilon"] == max(whole, given.get("epsilon", 0.0))


@pytest.mark.slow
def test_workers_give_the_same(both):
    assert_alike(*both({}, aggregation=SECURE))


@pytest.mark.slow
def test_a_run_is_resumed_with_fresh_keys_and_the_same_identities(make, tmp_path):
    start = partial(make, aggregation=SECURE, evaluation=QUIET)
    folder = run(start(method={"rounds": 1})).folder
    roster = (folder / "private" / "@federation" / "roster.json").read_text()
    run(start(method={"rounds": 2}), resume=True)
    resumed = load_file(folder / "adapter" / "adapter_model.safetensors")
    assert (folder / "private" / "@federation" / "roster.json").read_text() == roster
    whole = run(start(method={"rounds": 2}, run={"folder": str(tmp_path / "whole")})).folder
    for name, tensor in load_file(whole / "adapter" / "adapter_model.safetensors").items():
        torch.testing.assert_close(resumed[name], tensor, rtol=0, atol=1e-6)


def test_a_second_run_over_a_site_less_reveals_nothing_even_under_the_id_of_the_first(make, tmp_path, monkeypatch):
    small.write_data(tmp_path, {**SITES, "ear": 1})
    monkeypatch.setattr("murmura.runs.folder.uuid4", lambda: SimpleNamespace(hex="a" * 32))
    start = partial(make, aggregation=SECURE, evaluation=QUIET, budget={"folder": str(tmp_path / "accounts")})
    run(start(method={"rounds": 1}))
    folder = run(start(method={"rounds": 2}), resume=True).folder
    notes = [path.read_text() for path in (folder / "private").rglob("notes.txt")]
    assert not any("earlier run" in told for told in notes)
    (tmp_path / "sites" / "ear.jsonl").unlink()
    with pytest.raises(SecureSumError, match="an earlier run has asked the same of other sites"):
        run(start(method={"rounds": 1}, run={"folder": str(tmp_path / "second")}))


def test_of_some_sites_a_round_asks_those_that_all_draw_or_has_no_sum(make, tmp_path, monkeypatch):
    small.write_data(tmp_path, {**SITES, "ear": 1})
    start = partial(make, aggregation=SECURE, evaluation=QUIET, method={"rounds": 2, "sites_per_round": 3})
    honest = run(start())
    assert disclosed(honest.folder)["train", "adapter"]["messages"] == 2 * 3
    assert not any(row["events"] for row in honest.rows)
    sample = Fleet.sample

    def chosen(fleet, count, round):
        """The one that was not drawn, in place of one that was."""
        drawn = sample(fleet, count, round)
        return [site for site in fleet.sites if site != drawn[0]]

    monkeypatch.setattr(Fleet, "sample", chosen)
    with pytest.raises(SecureSumError, match="among sites that this run does not ask in round 1"):
        run(start(run={"folder": str(tmp_path / "lying")}))


def test_that_sites_tell_their_epsilon_apart_costs_no_budget(make):
    """It is no release that no ε covers; with the others, the budget would be lost."""
    experiment = make(method={"name": "dplora", "noise_multiplier": 1.0}, aggregation=SECURE, evaluation=QUIET)
    method = methods.build(experiment.method, experiment.aggregation)
    assert method.verbs() == ["train_private", "tell_privacy"]
    assert method.is_free("tell_privacy") and not method.is_free("train_private")
    assert uncovered(experiment, method, SITES) == ""


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"aggregation": {"rule": "flora"}}, "rule 'flora' needs what each site sends"),
        ({"aggregation": {"ranks": [2, 1]}}, "with 'ranks' needs what each site sends"),
        ({"evaluation": {"attacks": True, "uploads": 1}}, "single uploads are to be attacked.*evaluation.uploads = 0"),
        ({"audit": {"keep": True}}, "audit.keep keeps what each site sends"),
        ({"method": {"sites_per_round": 2}}, "a sum over 2 sites hides nothing"),
        ({"method": {"name": "local"}}, "Local only does not work with sums alone: sites keep their adapters"),
        ({"method": {"name": "centralised"}}, "all records are in one place"),
        ({"method": METHODS["dplora cmfl"]}, "CMFL does not work with sums alone: a site that has nothing relevant"),
        ({"method": METHODS["dplora tfedavg"]}, "T-FedAvg does not work with sums alone: sites send codes"),
        ({"method": METHODS["fewfedweight"]}, "FewFedWeight does not work with sums alone: which of two weights"),
        (
            {
                "method": {
                    "name": "dpfedavg",
                    "sampler": {"kind": "poisson", "sites_per_round": 3},
                    "noise_multiplier": 1.0,
                }
            },
            "counts on nobody knowing whom a round has asked",
        ),
    ],
)
def test_what_a_secure_sum_cannot_do_is_refused_before_the_run(make, tmp_path, sections, why):
    if "poisson" in str(sections):
        small.write_data(tmp_path, {**SITES, "ear": 1})
    sections = {"evaluation": QUIET, **sections}
    sections["aggregation"] = SECURE | sections.get("aggregation", {})
    for start in (dry_run, run):
        with pytest.raises(ConfigError, match=why) as error:
            start(make(**sections))
        assert error.value.fix or "leave" in error.value.what
    assert not (tmp_path / "run").exists()


def test_the_dry_run_foresees_what_a_secure_sum_takes(make, tmp_path):
    """Of what sites send, all but the words of other fields (the loss, the numbers of records)."""
    for method, other in (({}, 4), (METHODS["dpfedavg"], 0)):
        experiment = make(method=method | {"rounds": 2}, aggregation=SECURE, evaluation=QUIET)
        found = dry_run(experiment)
        verbs = {row.verb for row in found.disclosure}
        assert verbs >= {"advertise_keys", "share_keys", "check_consistency", "unmask"}
        assert {row.protection["type"] for row in found.disclosure if row.field == "adapter"} <= {"secure sum"}
        assert any("added up under masks" in note for note in found.notes)
        really = run(experiment, overwrite=True).rows[-1]
        flags = len(SITES) * (1 + other)  # words: a flag for the adapter, and two for each other field
        assert really["bytes_up"] == found.rounds[-1].bytes_up + flags * (8 if other else 4)
        assert 0 < really["bytes_down"] - found.rounds[-1].bytes_down < 20_000  # names, and where what stands
