"""A method in which no adapter travels: sites only vote for public texts, and the server learns the sum of the votes.

It is registered as any new method is: a folder, here made of two modules in memory, and one line.
"""

from __future__ import annotations

import io
import json
from typing import ClassVar, Literal

import pytest
import torch
from rich.console import Console

from murmura import methods, models
from murmura.experiment.config import Experiment
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.view import show
from murmura.experiment.run import run
from murmura.federation.method import Method
from murmura.federation.method_config import SampledMethodConfig
from murmura.federation.traits import Traits
from murmura.federation.wire.releases import Votes, verb
from murmura.registry import Origin
from tests.experiment.small import SIZES, experiment, write_data

CANDIDATES = ["kidney stones and tablets", "a rash on the skin", "the heart beats fast"]


class VotingConfig(SampledMethodConfig):
    """Options of the method."""

    implementation: ClassVar[str] = f"{__name__}:Voting"
    name: Literal["voting"] = "voting"
    rounds: int = 2


class Voting(Method):
    traits = Traits(label="Voting", trained_at="nowhere", single_replies="")

    def lead(self, server, fleet):
        for round in server.rounds(self.config.rounds):
            cohort = fleet.sample(self.config.sites_per_round, round)
            like = {"votes": torch.zeros(len(CANDIDATES), dtype=torch.int64)}
            total = fleet.sum("vote", cohort, like=like, candidates=CANDIDATES)
            server.store["votes"] = [int(count) for count in total["votes"]]
            server.store["cohorts"] = [*server.store.get("cohorts", []), len(total.sites)]

    def outcomes(self, server):
        return {"votes.json": server.store["votes"]}

    @verb(releases={"votes": Votes("how many records share most words with each candidate")}, slots=False)
    def vote(self, cohort, ask):
        self.cohorts = [*getattr(self, "cohorts", []), len(cohort.sites)]
        candidates = [set(text.split()) for text in ask["candidates"]]
        votes = []
        for site in cohort.sites:
            counts = torch.zeros(len(candidates), dtype=torch.int64)
            for record in site.records:
                words = set(f"{record.instruction} {record.output}".split())
                shared = [len(words & candidate) for candidate in candidates]
                counts[shared.index(max(shared))] += 1
            votes.append(counts)
        return cohort.reply(votes=votes)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(methods.METHODS.builtin, "voting", Origin(f"{__name__}:VotingConfig"))


@pytest.fixture
def voting(tmp_path, llama_folder) -> Experiment:
    write_data(tmp_path)
    return experiment(tmp_path, llama_folder, {"name": "voting"})


def test_a_run_without_an_adapter_goes_from_its_file_to_its_report(voting):
    result = run(voting)
    votes = json.loads((result.folder / "outcomes" / "votes.json").read_text())
    assert sum(votes) == sum(SIZES.values()) and votes[1] >= SIZES["skin"] and votes[2] >= SIZES["heart"]
    assert not (result.folder / "adapter").exists()
    assert [row["round"] for row in result.rows] == [0, 1, 2]
    assert "heldout_loss" not in result.rows[-1]
    [row] = [row for row in json.loads((result.folder / "disclosure.json").read_text()) if row["verb"] == "vote"]
    assert (row["kind"], row["messages"]) == ("votes", 2 * len(SIZES))
    assert "Voting" in (result.folder / "report.html").read_text(encoding="utf-8")


def test_the_model_is_loaded_where_the_server_uses_it_and_nowhere_else(voting, monkeypatch):
    used, load = [], models.load
    monkeypatch.setattr(models, "load", lambda *options: used.append(options) or load(*options))
    run(voting)
    assert not used
    assert json.loads((voting.run.path / "environment.json").read_text())["trained"] == 0
    monkeypatch.setattr(Voting, "outcomes", lambda self, server: {"slots.json": server.runtime.bank.slots})
    run(voting, overwrite=True)
    assert len(used) == 1


def test_it_is_resumed(voting, monkeypatch):
    whole = run(voting).rows
    lead = Voting.lead

    def stopped(self, server, fleet):
        rounds = server.rounds
        monkeypatch.setattr(server, "rounds", lambda count: (r for r in rounds(count) if r < 2 or pytest.fail("x")))
        lead(self, server, fleet)

    with monkeypatch.context() as patch, pytest.raises(pytest.fail.Exception):
        patch.setattr(Voting, "lead", stopped)
        run(voting, overwrite=True)
    assert [row["round"] for row in run(voting, resume=True).rows] == [row["round"] for row in whole]


def test_a_secure_sum_has_the_same_votes_to_the_bit(tmp_path, llama_folder):
    write_data(tmp_path, {**SIZES, "lung": 4})
    votes = []
    for secure in (False, True):
        folder = str(tmp_path / f"secure {secure}")
        made = experiment(
            tmp_path, llama_folder, {"name": "voting"}, run={"folder": folder}, aggregation={"secure": secure}
        )
        result = run(made)
        votes.append(json.loads((result.folder / "outcomes" / "votes.json").read_text()))
    assert votes[0] == votes[1] and sum(votes[0]) == sum(SIZES.values()) + 4
    [row] = [row for row in json.loads((result.folder / "disclosure.json").read_text()) if row["verb"] == "vote"]
    assert row["protection"]["type"] == "secure sum" and row["bytes"] == 2 * 3 * 8 * (len(CANDIDATES) + 1)
    assert "secure sum: masks" in (result.folder / "report.html").read_text(encoding="utf-8")


def test_the_dry_run_tells_what_leaves(voting):
    found = dry_run(voting)
    assert {(row.verb, row.field) for row in found.disclosure} >= {("vote", "votes")}
    for round in found.rounds:
        assert (round.sites, round.steps, round.tokens) == (len(SIZES), 0, 0)
        assert (round.bytes_down, round.bytes_up) == (0, 0)


def test_the_dry_run_says_of_nothing_that_it_trains(voting):
    console = Console(file=io.StringIO(), width=120)
    show(dry_run(voting), console)
    assert "sent up" in console.file.getvalue() and "trainable" not in console.file.getvalue()
