"""Canaries in whole runs: where they are told, where they are refused, and what an audit of a broken run shows."""

import json

import pytest
import torch

from murmura.errors import ConfigError
from murmura.experiment.canaries import drawn
from murmura.experiment.config import Experiment
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run as start
from murmura.methods.dplora.method import DPLoRA
from murmura.report.page import render
from murmura.runs.record import read
from murmura.streams import Stream
from murmura.tasks.instruction import InstructionTask
from murmura.training import private
from tests.experiment import small
from tests.experiment.small import write_lines
from tests.privacy.plans import Rehearsed

TABLE = {"data": {"train": "x.jsonl", "heldout_records": 2}, "method": {"name": "fedit"}}
CANARIES = 32


def of(audit, **sections):
    return Experiment.of({**TABLE, **sections, "audit": audit})


# ---- drawing ---------------------------------------------------------------------------------------------------------


def test_they_are_spread_over_the_sites_and_differ_in_their_secret_alone():
    canaries = drawn(of({"canaries": 7, "candidates": 5}), ["a", "b", "c"], "record", Stream(0))
    assert sorted(sum(one.site == site for one in canaries) for site in "abc") == [2, 2, 3]
    assert all(InstructionTask().is_canary(one) for canary in canaries for one in canary.candidates)
    for canary in canaries:
        assert canary.record is canary.candidates[canary.coin] and canary.coin in (0, 1)
        assert len({one.instruction for one in canary.candidates}) == 1
        assert len({one.output for one in canary.candidates}) == 5
    assert len({one.record.instruction for one in canaries}) == 7
    assert canaries == drawn(of({"canaries": 7, "candidates": 5}), ["a", "b", "c"], "record", Stream(0))
    assert canaries != drawn(of({"canaries": 7, "candidates": 5}), ["a", "b", "c"], "record", Stream(1))


def test_each_record_has_a_coin_or_each_site():
    names = [f"site-{k}" for k in range(10)]
    records = drawn(of({"canaries": 400}), names, "record", Stream(0))
    assert 160 < sum(one.coin for one in records) < 240
    assert all(len({one.coin for one in records if one.site == name}) == 2 for name in names)
    whole = drawn(of({"canaries": 400}), names, "site", Stream(0))
    assert all(len({one.coin for one in whole if one.site == name}) == 1 for name in names)
    assert {one.coin for one in whole} == {0, 1}


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("audit", "sections", "reason"),
    [
        ({"candidates": 8}, {}, "'candidates' does nothing without canaries"),
        ({"canaries": -1}, {}, "audit.canaries"),
        ({"canaries": 4, "candidates": 1}, {}, "audit.candidates"),
        ({"canary": 4}, {}, "audit.canary"),
    ],
)
def test_options_that_make_no_sense_are_refused(audit, sections, reason):
    with pytest.raises(ConfigError, match=reason):
        of(audit, **sections)


def test_labelled_texts_have_no_room_for_a_secret():
    method = {"name": "lpfl", "patterns": ["{text} It was {blank}."], "verbaliser": {"bad": ["bad"], "good": ["good"]}}
    with pytest.raises(ConfigError, match="labelled records have no room for a secret"):
        of({"canaries": 4}, method=method)


def test_what_stays_at_a_site_is_not_looked_for(make):
    with pytest.raises(ConfigError, match="they keep adapters of their own"):
        start(make(audit={"canaries": 4}, method={"name": "local"}))


def test_a_canary_that_does_not_fit_is_told(make, tmp_path):
    for name in ("sites/heart", "sites/skin", "heldout"):
        write_lines(tmp_path / f"{name}.jsonl", [{"text": f"{name} {k}"} for k in range(4)])
    with pytest.raises(ConfigError, match="a canary does not fit 16 tokens"):
        start(make(audit={"canaries": 4}, data={"kind": "document", "max_length": 16}, evaluation={"sample": 16}))


# ---- a run -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def audited(tmp_path_factory, llama_folder):
    folder = tmp_path_factory.mktemp("audited")
    small.write_data(folder)
    experiment = small.experiment(
        folder, llama_folder, audit={"canaries": 5, "candidates": 16}, training={"lr": 3e-2, "epochs": 4}
    )
    return experiment, start(experiment)


def test_it_is_told_wherever_it_counts(audited):
    _, result = audited
    reports = json.loads((result.folder / "sites.json").read_text())
    assert sum(one["canaries"] for one in reports) == 5
    assert {one["site"]: one["records"] - one["canaries"] for one in reports} == {"heart": 6, "skin": 3}
    page = (result.folder / "report.html").read_text()
    assert "Not for release" in page and "5 random secrets among the sites’ records" in page
    assert "Not for release" in (result.folder / "adapter" / "NOT_FOR_RELEASE.txt").read_text()


def test_each_round_has_its_figures(audited):
    _, result = audited
    before, *rounds = result.rows
    assert "exposure" not in before
    for row in rounds:
        assert 0 <= row["exposure_low"] <= row["exposure"] <= row["exposure_high"] <= 4
        assert 0 <= row["audit_epsilon"] <= row["audit_most"]
        assert row["audit_right"] <= row["audit_guesses"] <= row["audit_coins"] == 5
        assert "upload_exposure" in row
    page = render([read(result.folder)])
    assert "Exposure of canaries" in page and "ε is at least" in page


def test_a_dry_run_counts_them(audited):
    experiment, _ = audited
    found = dry_run(experiment)
    assert sum(site.used for site in found.sites) == 6 + 3 + 5
    assert any("5 canaries (random secrets)" in note for note in found.notes)


def test_a_run_without_is_as_it_was(make):
    result = start(make(method={"rounds": 1}))
    assert not any(key.startswith(("audit_", "exposure")) for row in result.rows for key in row)
    assert "Not for release" not in (result.folder / "report.html").read_text()
    assert not (result.folder / "adapter" / "NOT_FOR_RELEASE.txt").exists()


def test_documents_have_canaries_too(make, tmp_path):
    for name in ("heart", "skin"):
        write_lines(
            tmp_path / "sites" / f"{name}.jsonl", [{"text": f"a note about the {name}, number {k}"} for k in range(4)]
        )
    write_lines(tmp_path / "heldout.jsonl", [{"text": f"a letter about kidneys, number {k}"} for k in range(4)])
    result = start(
        make(
            data={"kind": "document"},
            audit={"canaries": 3, "candidates": 4},
            method={"rounds": 1},
            evaluation={"sample": 16, "uploads": 0},
        )
    )
    assert result.rows[-1]["audit_coins"] == 3 and "upload_exposure" not in result.rows[-1]


def test_a_run_goes_on_with_the_same_canaries(make, tmp_path, monkeypatch):
    """Though only with them the sites have as many records as a batch."""
    small.write_data(tmp_path, {"heart": 1, "skin": 1})
    experiment = make(
        method={"name": "dplora", "noise_multiplier": 1.0, "accountant": "rdp"},
        audit={"canaries": 6, "candidates": 2},
        evaluation={"sample": 1, "uploads": 1},
        training={"batch_size": 3, "max_steps": 1},
    )
    average = DPLoRA.average

    def stopped(self, server, *arguments):
        if len(server.rows) > 1:
            raise KeyboardInterrupt
        average(self, server, *arguments)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(DPLoRA, "average", stopped)
        start(experiment)
    rows = start(experiment, resume=True).rows
    assert [row["round"] for row in rows] == [0, 1, 2]
    assert all(row["audit_coins"] == 6 for row in rows[1:])


# ---- mutants: what an audit shows of a private run that does not do what it says -------------------------------------

CLAIMED = 0.3


class NoNoise(Rehearsed):
    def normal(self, count):
        return torch.zeros(count)


@pytest.fixture
def private_run(tmp_path, llama_folder, monkeypatch):
    """A run of DP-LoRA with two canaries at each of 16 sites, whose ledger believes what it is told."""
    small.write_data(tmp_path, {f"site-{k:02d}": 1 for k in range(16)})
    monkeypatch.setattr("murmura.privacy.ledger.contradictions", lambda plan, entries: [])

    def begin(source):
        monkeypatch.setattr(
            DPLoRA, "entropy", lambda self, cohort, site: source(cohort.stream / "entropy" / cohort.round / site.name)
        )
        experiment = small.experiment(
            tmp_path,
            llama_folder,
            audit={"canaries": CANARIES, "candidates": 2},
            run={"slots": 16},
            lora={"rank": 4},
            training={"lr": 3e-2, "epochs": 12, "batch_size": 2, "clip": 1e-4, "tokens_per_pass": 4096},
            evaluation={"uploads": 16, "attacks": False, "sample": 1},
            method={"name": "dplora", "rounds": 1, "epsilon": CLAIMED, "accountant": "rdp"},
        )
        return start(experiment)

    return begin


def test_a_run_that_does_what_it_says_is_not_accused(private_run):
    result = private_run(Rehearsed)
    row = result.rows[-1]
    assert row["epsilon"] == pytest.approx(CLAIMED, rel=1e-4)
    assert row["audit_epsilon"] <= CLAIMED and row["audit_coins"] == CANARIES
    assert not row["events"]
    reports = json.loads((result.folder / "sites.json").read_text())  # how many records a site has is not told, this is
    assert {(one["records"], one["canaries"]) for one in reports} == {(None, 2)}


def test_mutant_without_noise_is_caught(private_run):
    """Though its ledger says what was planned."""
    result = private_run(NoNoise)
    row = result.rows[-1]
    assert row["epsilon"] == pytest.approx(CLAIMED, rel=1e-4)
    assert row["audit_epsilon"] > 1.5 * CLAIMED
    [event] = row["events"]
    assert "where 0.300 is guaranteed" in event and "do not rely on the guarantee" in event
    assert "More than is guaranteed: do not rely on it" in (result.folder / "report.html").read_text()


def test_mutant_without_clipping_is_caught(private_run, monkeypatch):
    monkeypatch.setattr(private.PrivateStep, "_kept", lambda self, norms, slots: torch.ones_like(norms))
    assert private_run(Rehearsed).rows[-1]["audit_epsilon"] > CLAIMED
