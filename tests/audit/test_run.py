"""Audits of whole runs: what is found, what is kept, and what is refused."""

import json
import shutil
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from murmura.audit.attack_scores import AttackScores
from murmura.audit.extraction import least_tries
from murmura.audit.membership import MIN_K
from murmura.audit.run import Options, audit
from murmura.audit.subject import subject
from murmura.errors import CheckpointError, ConfigError, DataError
from murmura.experiment.run import run
from murmura.federation.server.transcript import kept_rounds
from murmura.generation.sampling import Sampling
from murmura.report.page import render
from murmura.runs import read
from murmura.runs.folder import RunFolder
from murmura.runs.names import AUDIT, AUDIT_SCORES, SITE_JOURNAL
from murmura.training.adapter import fold, is_same
from tests.audit.conftest import SIZES
from tests.experiment import small

QUICK = Options(texts=0)


@pytest.fixture
def copied(finished, tmp_path):
    """The finished run, in a place where it can be changed; its data stay where they are."""
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def make(tmp_path, llama_folder):
    """Runs of one round on other data than ``finished``."""
    small.write_data(tmp_path)

    def build(method=None, **sections):
        settings = {"training": {"max_steps": 1}, "evaluation": {"attacks": False, "sample": 1}} | sections
        return run(small.experiment(tmp_path, llama_folder, {"rounds": 1} | (method or {}), **settings)).folder

    return build


@pytest.mark.parametrize("most", [0, 5000])
def test_an_audit_keeps_as_many_hidden_states_as_the_run_might(make, deep_folder, most):
    folder = make(lora={"layers": "last 1"}, run={"cache_bytes": most}, model={"name": str(deep_folder)})
    bank = subject(folder).models.bank
    assert (bank.states.limit, bank.head.frozen is None) == (most, not most)


def test_a_run_that_has_learnt_its_records_is_found_out(copied):
    found = audit(copied, QUICK)
    [model] = found.models
    assert (model.target, model.members, model.others) == ("model", 21, 18)  # one in four decided which is strongest
    each = {one.attack: one for one in model.attacks}
    assert each.keys() == {"error zone", "loss difference", "window votes", "plain loss", MIN_K}
    assert each["loss difference"].auc > 0.9 and each[model.strongest].low > 0.7
    assert all(0 <= one.low <= one.auc <= one.high <= 1 and one.tpr is None for one in model.attacks)
    assert model.strongest != "plain loss" and sum(model.histogram.members) == 21
    assert len(model.histogram.edges) == len(model.histogram.others) + 1


def test_it_is_tried_to_get_records_out(copied):
    found = audit(copied, Options(texts=4, sampling=Sampling(temperature=0.5), probability=0.5))
    [tries], [answers, texts] = found.extraction, found.written
    assert (tries.members, tries.others, tries.temperature, tries.p) == (28, 24, 0.5, 0.5)
    lines = [json.loads(line) for line in (copied / AUDIT_SCORES).read_text().splitlines()]
    needed = [least_tries(line["log_probability"], 0.5) for line in lines if "site" in line]
    assert tries.found == tuple(sum(one <= n for one in needed) / 28 for n in tries.tries)
    assert (answers.prompt, answers.members, answers.others) == ("record", 4, 4)
    assert (texts.prompt, texts.members) == ("template", 4)


def test_figures_are_kept_in_the_run_and_single_scores_apart(copied):
    found = audit(copied, QUICK)
    assert read(copied).audit == found
    path = copied / AUDIT_SCORES
    assert path.stat().st_mode & 0o077 == 0
    first, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert "Do not publish" in first["private"]
    own = [line for line in lines if "site" in line]
    assert {(line["site"], line["record"]) for line in own} == {(s, k) for s, n in SIZES.items() for k in range(n)}
    assert len(lines) - len(own) == 24
    told = (copied / AUDIT).read_text()
    assert not any(json.dumps(line["loss difference"]) in told for line in own)  # no score of one record


def test_what_told_records_apart_before_training_is_said(copied, monkeypatch):
    for step, expected in ((0, False), (1, True)):  # all alike, and members, which are read first, with the least
        losses = count(0, step)
        monkeypatch.setattr("murmura.audit.membership.plain_loss", lambda _, losses=losses: float(next(losses)))
        assert audit(copied, QUICK).unlike == expected


def test_a_model_whose_scores_are_no_numbers_is_not_attacked(copied, monkeypatch):
    score = "murmura.audit.membership.versus"
    nothing = AttackScores(np.array([np.nan]), np.zeros((1, 1)), np.zeros(1, dtype=int))
    monkeypatch.setattr(score, lambda *_: nothing)
    found = audit(copied, QUICK)
    assert not found.models and "No document" not in " ".join(found.missing)
    assert "The model was not attacked by error zone" in " ".join(found.missing)
    assert "is no finite number" in render([read(copied)])


def test_adapters_of_sites_own_are_said_not_to_be_attacked(make):
    found = audit(make(personal={"steps": 1}), QUICK)
    assert "trained for themselves at the end stay with them" in " ".join(found.missing)


def test_the_same_audit_finds_the_same(copied):
    one, other = (audit(copied, QUICK).models for _ in range(2))
    assert one == other


def test_no_more_records_than_asked_for_are_scored(copied):
    [model] = audit(copied, Options(records=10, texts=0)).models
    assert model.members == pytest.approx(7.5, abs=0.6) and model.others == pytest.approx(7.5, abs=0.6)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"records": 0}, "an audit of 0 records"),
        ({"texts": -1}, "-1 texts"),
        ({"probability": 1.0}, "1 is no probability to succeed with"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, reason):
    with pytest.raises(ConfigError, match=reason):
        Options(**options)


def test_a_page_shows_it(copied):
    audit(copied, QUICK)
    page = render([read(copied)])
    assert "<h2>Audit</h2>" in page and "The model: 21 of the sites’ records against 18 others, too few" in page
    assert f"Scores by {read(copied).audit.models[0].strongest}, the model" in page


@pytest.mark.parametrize("onward", [{"done": False}, {"done": True, "changed": True}], ids=["round", "option"])
def test_a_run_that_goes_on_forgets_it(copied, onward):
    found = audit(copied, QUICK)
    RunFolder(copied).reopen(done=True)
    assert read(copied).audit == found and (copied / AUDIT_SCORES).exists()
    RunFolder(copied).reopen(**onward)
    assert not (copied / AUDIT).exists() and not (copied / AUDIT_SCORES).exists()


def test_an_audit_that_is_stopped_leaves_the_one_before(copied, monkeypatch):
    found = audit(copied, QUICK)

    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("murmura.audit.run.measured", stop)
    with pytest.raises(KeyboardInterrupt):
        audit(copied, Options(records=5, texts=0))
    assert read(copied).audit == found


def test_adapters_that_stay_at_the_sites_are_attacked_each_by_its_own_records(make):
    folder = make({"name": "local"}, training={"lr": 5e-2, "epochs": 4})
    [model] = audit(folder, QUICK).models
    assert model.target == "adapters"
    assert sum(model.histogram.others) == 2 * model.others  # each of them by both adapters


def test_a_site_that_has_left_no_adapter_is_told(make):
    folder = make({"name": "local"})
    shutil.rmtree(folder / "sites" / "skin")
    found = audit(folder, QUICK)
    assert found.missing[0] == "Of these sites there is no adapter: skin."


def test_canaries_are_no_members(make):
    folder = make(audit={"canaries": 5, "candidates": 2})
    audit(folder, QUICK)
    lines = [json.loads(line) for line in (folder / AUDIT_SCORES).read_text().splitlines()]
    assert sum("site" in line for line in lines) == sum(small.SIZES.values())


def test_a_run_that_kept_nothing_says_what_was_not_tried(copied):
    [told] = audit(copied, QUICK).missing
    assert told.startswith("Loss trajectory, RMIA and FedMIA were not tried") and "[audit] keep = true" in told


def test_what_a_curious_server_kept_is_attacked_too(tmp_path, llama_folder):
    """Of each site its last upload, though not every site is asked in every round."""
    small.write_data(tmp_path, {"heart": 6, "skin": 3, "liver": 5, "lung": 4})
    table = small.experiment(
        tmp_path,
        llama_folder,
        {"rounds": 2, "sites_per_round": 3},
        audit={"keep": True},
        run={"slots": 3},
        training={"lr": 5e-2, "epochs": 6},
        evaluation={"attacks": False, "sample": 1},
    )
    folder = run(table).folder
    rounds = kept_rounds(RunFolder(folder).transcript)
    assert [len(one.sites) for one in rounds] == [3, 3]
    found = audit(folder, QUICK)
    model, uploads = found.models
    assert {"loss trajectory", "RMIA"} <= {one.attack for one in model.attacks}
    each = {one.attack for one in uploads.attacks}
    assert {"RMIA", "FedMIA", "error zone"} <= each and "loss trajectory" not in each
    [told] = found.missing
    assert "Some sites were first heard after round 1" in told
    lines = [json.loads(line) for line in (folder / AUDIT_SCORES).read_text().splitlines()]
    own = {line["site"] for line in lines if line.get("target") == "uploads" and "site" in line}
    assert own == {site for one in rounds for site in one.sites} > set(rounds[0].sites)
    last = {line["target"]: line for line in lines if "nonmember" in line}
    assert [len(last["model"][name]) for name in ("error zone", "RMIA")] == [1, 4]
    assert [len(last["uploads"][name]) for name in ("error zone", "RMIA")] == [len(own)] * 2


@pytest.mark.parametrize(
    ("aggregation", "targets"),
    [
        ({"rule": "fedex"}, ["model", "uploads"]),  # what is kept has residuals, of more rank in each round
        ({"rule": "flexlora", "ranks": [2, 1]}, ["model", "uploads"]),
        ({"rule": "fedsa"}, ["adapters"]),
    ],
)
def test_adapters_of_any_rank_and_with_residuals(make, aggregation, targets):
    keep = targets != ["adapters"]
    folder = make({"rounds": 2}, aggregation=aggregation, audit={"keep": keep})
    found = audit(folder, QUICK)
    assert [one.target for one in found.models] == targets
    if keep:  # the last round's model, as it was kept, is the one that the run has left
        what = subject(folder)
        last = fold(kept_rounds(RunFolder(folder).transcript)[-1].model(), what.experiment.lora)[0]
        assert is_same(last, what.models.whole)


def test_two_sites_are_too_few_for_an_attack_by_the_others(make):
    found = audit(make(audit={"keep": True}), QUICK)
    assert [one.target for one in found.models] == ["model", "uploads"]
    assert found.missing == ("FedMIA was not tried: it takes uploads of three sites in one round.",)


@pytest.mark.parametrize("keep", [False, True])
def test_labels_are_attacked_by_their_losses(tmp_path, llama_folder, keep):
    words = {"bad": ["bad"], "good": ["good"]}
    labels = [("good", "bad")[k % 2] for k in range(8)]
    for name in ("sites/heart", "sites/skin", "heldout"):
        rows = [{"text": f"{name} {k}", "label": label} for k, label in enumerate(labels)]
        small.write_lines(tmp_path / f"{name}.jsonl", rows)
    method = {
        "name": "lpfl",
        "rounds": 1,
        "annotate": False,
        "several_tokens": "average",
        "verbaliser": words,
        "patterns": ["{text} it was {blank}"],
    }
    table = small.experiment(
        tmp_path, llama_folder, method, audit={"keep": keep}, evaluation={"attacks": False, "sample": 16}
    )
    found = audit(run(table).folder, Options(texts=3))
    model, *uploads = found.models
    attacks = ["loss difference", "plain loss"]
    if keep:
        assert [one.attack for one in model.attacks] == [*attacks, "loss trajectory", "RMIA"]
        assert [one.attack for one in uploads[0].attacks] == [*attacks, "RMIA"]
    else:  # there is nothing to choose among
        assert [one.attack for one in model.attacks] == attacks and not uploads
        assert model.strongest == "loss difference" and (model.members, model.others) == (16, 8)
    assert not found.extraction and not found.written


def test_documents_are_attacked_and_short_ones_cannot_be_extracted(tmp_path, llama_folder):
    for name in ("sites/heart", "sites/skin", "heldout"):
        small.write_lines(tmp_path / f"{name}.jsonl", [{"text": f"a note about {name} {k}"} for k in range(4)])
    table = small.experiment(
        tmp_path, llama_folder, {"rounds": 1}, data={"kind": "document"}, evaluation={"attacks": False, "sample": 16}
    )
    found = audit(run(table).folder, Options(texts=3))
    assert MIN_K in {one.attack for one in found.models[0].attacks}
    assert found.missing[-1] == "No document has 100 tokens, so it was not tried to get one word for word."
    assert not found.written


@pytest.mark.parametrize(
    "told", [{"epsilon": 8.0, "delta": 1e-5}, {"epsilon": None, "refused": "because", "delta": 1e-5}]
)
def test_of_a_private_run_the_file_itself_says_that_no_epsilon_covers_it_and_not_how_many_records(copied, told):
    """Kept or refused."""
    plain = audit(copied, Options(texts=3))
    assert plain.caveat is None and plain.models[0].members == 21
    rows = [json.loads(line) for line in (copied / "metrics.jsonl").read_text().splitlines()]
    rows[-1]["privacy"] = told
    RunFolder(copied).write_metrics(rows)
    private = audit(copied, Options(texts=3))
    text = json.loads((copied / AUDIT).read_text())
    assert "covers none of this" in text["caveat"]
    [model], records = text["models"], [one for one in text["written"] if one["prompt"] == "record"]
    assert [one["members"] for one in (model, *text["extraction"], *records)] == [None] * (
        1 + len(text["extraction"]) + 1
    )
    assert abs(sum(model["histogram"]["members"]) - 100) <= 12  # per cent, rounded
    for one, exact in zip(private.models[0].attacks, plain.models[0].attacks, strict=True):
        assert (one.auc, one.low, one.high) == tuple(round(end, 3) for end in (exact.auc, exact.low, exact.high))
    lines = [json.loads(line) for line in (copied / AUDIT_SCORES).read_text().splitlines()]
    assert sum("site" in line for line in lines) == sum(SIZES.values())  # the owner can count them


def test_records_that_were_pooled_are_members_of_the_pool(make):
    folder = make({"name": "centralised"})
    audit(folder, QUICK)
    lines = [json.loads(line) for line in (folder / AUDIT_SCORES).read_text().splitlines()]
    assert sum(line.get("site") == "pooled" for line in lines) == sum(small.SIZES.values())


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_what_is_no_run_is_refused_and_left_alone(tmp_path):
    with pytest.raises(CheckpointError, match="there is no such run folder"):
        audit(tmp_path / "nowhere", QUICK)
    with pytest.raises(CheckpointError, match="not a run folder"):
        audit(tmp_path, QUICK)
    assert not list(tmp_path.iterdir())


def test_an_unfinished_run_is_refused(copied):
    (copied / "summary.json").unlink()
    with pytest.raises(CheckpointError, match="the run is not finished"):
        audit(copied, QUICK)


def test_a_real_deployment_is_refused(copied, monkeypatch):
    monkeypatch.setattr("murmura.audit.subject.DEPLOYED", "local")
    with pytest.raises(ConfigError, match="their records are not here"):
        audit(copied, QUICK)


def test_a_run_without_a_model_is_refused(copied):
    shutil.rmtree(copied / "model")
    with pytest.raises(ConfigError, match="the run has left no model"):
        audit(copied, QUICK)


def test_a_run_without_a_record_to_attack_is_refused(copied, monkeypatch):
    monkeypatch.setattr("murmura.audit.run.subject", lambda path: replace(subject(path), members={"heart": []}))
    with pytest.raises(DataError, match="no site has a record that can be attacked"):
        audit(copied, QUICK)


def test_other_records_than_the_runs_are_refused_where_files_do_not_tell_too(make, tmp_path, monkeypatch):
    folder = make()
    rows = [small.record("heart", number) for number in range(small.SIZES["heart"])]
    small.write_lines(tmp_path / "sites" / "heart.jsonl", [{**rows[0], "output": "another answer"}, *rows[1:]])
    with pytest.raises(CheckpointError, match=r"data\.train.*: heart.jsonl changed since"):
        audit(folder, QUICK)
    monkeypatch.setattr("murmura.audit.subject.require_same_inputs", lambda *_: None)  # as of a hub's data set
    with pytest.raises(DataError, match="site heart: the records are not those that the run was trained on"):
        audit(folder, QUICK)
    assert not (folder / AUDIT).exists()


def test_a_published_copy_is_refused(copied):
    (copied / "private" / "skin" / SITE_JOURNAL).unlink()
    with pytest.raises(CheckpointError, match="nobody knows whether these are they"):
        audit(copied, QUICK)


def test_another_process_in_the_folder_is_waited_for(copied):
    with RunFolder(copied).locked(), pytest.raises(CheckpointError, match="another process is running"):
        audit(copied, QUICK)
