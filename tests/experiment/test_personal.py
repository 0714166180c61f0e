"""Runs whose sites train models of their own when all rounds are done."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from murmura.data.records import Instruction
from murmura.errors import CheckpointError, ConfigError, RunError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.federation.server.checkpoint import last_saved
from murmura.federation.site.store import SiteStore
from murmura.runs import read
from murmura.runs.folder import RunFolder
from murmura.runs.names import PENDING, PERSONAL, PRIVACY_LEDGER
from murmura.tasks import TASKS
from murmura.training.adapter import load_peft
from tests.experiment.small import SIZES, context
from tests.methods.harness import same

QUICK = {"attacks": False, "sample": 1, "every": 9}


@pytest.fixture
def asked(make):
    def made(method=None, personal=None, **sections):
        return make(method, personal={"steps": 3, "heldout": 0.4, **(personal or {})}, evaluation=QUICK, **sections)

    return made


def test_sites_train_from_the_global_model_keep_the_result_and_tell_losses(asked, monkeypatch):
    """The losses are those of the adapters that the run leaves, on the records that no round has trained on."""
    experiment = asked()
    result = run(experiment)
    record = read(result.folder)
    bench = context(experiment).runtime("site")
    shared, _ = load_peft(result.folder / "adapter")
    assert [one.site for one in record.personal] == list(SIZES)
    assert [one.records for one in record.personal] == [round(0.4 * size) for size in SIZES.values()]
    own = {site: load_peft(result.folder / "sites" / site)[0] for site in SIZES}
    assert not same(own["heart"], own["skin"]) and not same(own["heart"], shared)
    heldout = [Instruction(**json.loads(line)) for line in Path(experiment.data.heldout).read_text().splitlines()]
    for one in record.personal:
        mean, guess = mean_loss(bench, heldout, own[one.site]), mean_loss(bench, heldout, shared)
        assert (one.public_personal, one.public_shared) == pytest.approx((mean, guess), rel=1e-5)
        assert one.personal < one.shared < one.before  # of one kind of text, at a tiny model
    rows = {(row.verb, row.field): row.messages for row in record.disclosure}
    assert rows["personalise", "losses"] == rows["personalise", "public"] == len(SIZES)
    assert {(row.verb, row.field) for row in dry_run(experiment).disclosure} == rows.keys() | {("commit", "unkept")}
    trained = [sum(1 for _ in (result.folder / "private" / site).glob("*.jsonl")) for site in SIZES]
    assert trained == [0, 0]  # copies of records are gone


def mean_loss(bench, records, adapter):
    """By hand: the negative log-likelihoods of all answer tokens of all records together."""
    scores = TASKS["instruction"].token_scores(bench, [adapter] * len(records), records)
    return sum(float(one.nll.sum()) for one in scores) / sum(len(one.nll) for one in scores)


@pytest.mark.usefixtures("no_page")
def test_what_is_set_apart_is_in_no_round(asked, shards):
    left = {site: size - round(0.4 * size) for site, size in SIZES.items()}
    assert {one.site: one.used for one in dry_run(asked({"rounds": 1})).sites} == left
    done = run(asked({"rounds": 1}))
    assert shards == left
    assert {one.site: (one.records, one.used) for one in read(done.folder).sites} == {
        site: (size, left[site]) for site, size in SIZES.items()
    }


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_engines_and_slots_tell_the_same(asked, tmp_path):
    folders = [tmp_path / name for name in ("one", "two", "three")]
    run(asked(run={"folder": str(folders[0])}))
    run(asked(run={"folder": str(folders[1]), "slots": 1}))
    run(asked(run={"folder": str(folders[2]), "engine": "processes", "workers": 1}))  # not forked
    first, *others = [read(folder) for folder in folders]
    for folder, other in zip(folders[1:], others, strict=True):
        for one, two in zip(first.personal, other.personal, strict=True):
            assert (one.site, one.records) == (two.site, two.records)
            for name in ("before", "shared", "personal", "public_before", "public_shared", "public_personal"):
                assert getattr(one, name) == pytest.approx(getattr(two, name), rel=1e-4)
        for site in SIZES:
            left, right = (load_peft(one / "sites" / site)[0] for one in (folders[0], folder))
            assert all(torch.allclose(left[name], right[name], atol=1e-5) for name in left)


@pytest.mark.usefixtures("no_page")
def test_a_run_that_is_killed_in_the_last_round_has_sites_train_once_more(asked, monkeypatch, tmp_path):
    whole = read(run(asked(run={"folder": str(tmp_path / "whole")})).folder)
    commit = SiteStore.commit

    def dying(self, round, store):
        if round == 2:
            raise KeyboardInterrupt
        return commit(self, round, store)

    with monkeypatch.context() as broken:
        broken.setattr(SiteStore, "commit", dying)
        with pytest.raises(KeyboardInterrupt):
            run(asked())
    result = run(asked(), resume=True)
    assert read(result.folder).personal == whole.personal
    assert same(*(load_peft(one / "sites" / "skin")[0] for one in (result.folder, whole.folder)))
    again = run(asked(), resume=True)  # finished: it is only written anew
    assert read(again.folder).personal == whole.personal


@pytest.mark.usefixtures("no_page")
def test_a_finished_run_that_is_given_more_rounds_forgets_what_sites_told_of_models_of_earlier_ones(asked, monkeypatch):
    found = read(run(asked()).folder).personal
    commit = SiteStore.commit

    def dying(self, round, store):
        if round == 3:
            raise KeyboardInterrupt
        return commit(self, round, store)

    folder = run(asked(run={"min_replies": 2}), resume=True).folder  # no round is new: it is the same model
    assert found and read(folder).personal == found
    with monkeypatch.context() as broken:
        broken.setattr(SiteStore, "commit", dying)
        with pytest.raises(KeyboardInterrupt):
            run(asked({"rounds": 4}), resume=True)
    assert read(folder).personal == ()
    run(asked(), resume=True)  # after all they are not wanted, and the last round is what it was
    assert read(folder).personal == found


@pytest.mark.usefixtures("no_page")
def test_a_run_that_is_to_end_with_an_earlier_round_than_planned_says_that_sites_have_trained_nothing_of_their_own(
    asked, monkeypatch, capsys
):
    """They train in what is the last round when it begins; what they kept of one before tells nothing of this model."""
    commit = SiteStore.commit

    def dying(self, round, store):
        if round == 3:
            raise KeyboardInterrupt
        return commit(self, round, store)

    folder = run(asked({"rounds": 1})).folder
    kept = (folder / "sites" / "heart" / "README.md").stat()
    with monkeypatch.context() as broken:
        broken.setattr(SiteStore, "commit", dying)
        with pytest.raises(KeyboardInterrupt):
            run(asked({"rounds": 4}), resume=True)
    run(asked({"rounds": 2}), resume=True)
    assert "sites have trained no models of their own" in capsys.readouterr().err
    assert read(folder).personal == () and (folder / "sites" / "heart" / "README.md").stat() == kept


@pytest.mark.usefixtures("no_page")
def test_only_b_trains_over_the_shared_a(asked):
    result = run(asked({"rounds": 1}, {"part": "B"}))
    shared, own = (load_peft(result.folder / name)[0] for name in ("adapter", "sites/heart"))
    assert {name for name in own if not torch.equal(own[name], shared[name])} == {
        name for name in own if ".lora_B" in name
    }


@pytest.mark.usefixtures("no_page")
def test_under_an_epsilon_nothing_is_told_and_sites_have_models_all_the_same(asked):
    method = {"name": "dplora", "noise_multiplier": 1.0, "accountant": "rdp", "rounds": 1}
    foreseen, result = (do(asked(method, {"heldout": None})) for do in (dry_run, run))
    record = read(result.folder)
    assert record.personal == () and not (result.folder / PERSONAL).exists()
    assert "personalise" not in {row.verb for row in (*record.disclosure, *foreseen.disclosure)}
    assert (result.folder / "sites" / "heart" / "adapter_model.safetensors").is_file()
    assert (result.folder / "sites").stat().st_mode & 0o777 == 0o700  # as private as the records
    with pytest.raises(ConfigError, match="does not cover"):
        run(asked(method, run={"folder": str(result.folder) + "-2"}))


@pytest.mark.usefixtures("no_page")
def test_under_an_epsilon_checkpoints_stay_until_every_site_has_left_its_own_model(asked, skin_keeps_nothing, capsys):
    """Else another run would spend ε again."""
    experiment = asked({"name": "dplora", "noise_multiplier": 1.0, "accountant": "rdp", "rounds": 1}, {"heldout": None})
    folder = RunFolder(experiment.run.path)
    with skin_keeps_nothing():
        for again in (False, True):
            run(experiment, resume=again)
            assert f"remove {folder.checkpoint}/round-*" in capsys.readouterr().err
            assert folder.sites_with_adapters == ["heart"] and last_saved(folder.checkpoint) == 1
    spent = (folder.private_of("skin") / PRIVACY_LEDGER).read_bytes()
    run(experiment, resume=True)
    assert folder.sites_with_adapters == ["heart", "skin"] and last_saved(folder.checkpoint) is None
    assert (folder.private_of("skin") / PRIVACY_LEDGER).read_bytes() == spent
    with pytest.raises(CheckpointError, match="what its server knew is removed"):
        run(experiment, resume=True)


@pytest.mark.usefixtures("no_page")
def test_where_a_site_is_done_without_nothing_stays_of_what_the_server_knew(asked, skin_keeps_nothing, tmp_path):
    """Of secret cohorts the last ones drawn must go, on whose secrecy the ε counts."""
    method = {"name": "dpfedavg", "rounds": 1, "noise_multiplier": 4.0}
    method["sampler"] = {"kind": "poisson", "sites_per_round": 1}
    experiment, other = (asked(method, {"heldout": None}, run={"folder": str(tmp_path / one)}) for one in "ab")
    folder, whole = RunFolder(experiment.run.path), RunFolder(run(other).folder)
    with skin_keeps_nothing():
        run(experiment)
    assert folder.journal(PENDING).exists()
    for path in folder.checkpoint.glob("round-*"):
        shutil.rmtree(path)
    with pytest.raises(CheckpointError, match="what its server knew is removed"):
        run(experiment, resume=True)
    left, usual = ({path.name for path in one.checkpoint.iterdir()} for one in (folder, whole))
    assert left == usual


@pytest.mark.usefixtures("no_page")
def test_under_an_epsilon_nobody_learns_that_a_sites_own_model_came_to_no_number(asked):
    """Which sites fail would follow from their records, under an adapter that a server makes up for it."""
    private = {"name": "dplora", "noise_multiplier": 1.0, "accountant": "rdp", "rounds": 1}
    result = run(asked(private, {"heldout": None, "lr": 1e30}))
    shared, *own = (load_peft(result.folder / name)[0] for name in ("adapter", *(f"sites/{site}" for site in SIZES)))
    assert all(same(one, shared) for one in own)
    for site in SIZES:
        assert "own model came to no finite number" in (result.folder / "private" / site / "notes.txt").read_text()
    rows = read(result.folder).rounds
    assert not any("personalise" in event for row in rows for event in row.events)
    with pytest.raises(RunError, match=r"step \d \(personal\): the loss or the adapter is no longer a finite number"):
        run(asked(None, {"lr": 1e30}, run={"folder": str(result.folder) + "-2"}))


@pytest.mark.parametrize(
    ("method", "sections", "why"),
    [
        ({"name": "centralised"}, {}, "all records are in one place"),
        ({"name": "local"}, {}, "of their own already"),
        ({}, {"aggregation": {"rule": "fedsa"}}, "of their own already"),
        ({}, {"aggregation": {"ranks": [1, 2]}}, "unequal ranks"),
        ({}, {"model": {"trainable": "all"}}, "is an adapter"),
    ],
)
@pytest.mark.usefixtures("no_page")
def test_methods_without_a_global_adapter_at_the_sites_are_refused(asked, method, sections, why):
    with pytest.raises(ConfigError, match=why):
        run(asked(method, **sections))


@pytest.mark.slow
@pytest.mark.parametrize(
    "sections",
    [
        {"aggregation": {"rule": "ffa"}},
        {"aggregation": {"rule": "fedex"}},
        {"aggregation": {"rule": "flora"}},
        {"aggregation": {"travel": "int8"}},
        {"audit": {"canaries": 2}},
    ],
    ids=["ffa", "fedex", "flora", "int8", "canaries"],
)
@pytest.mark.usefixtures("no_page")
def test_it_goes_with_rules_of_aggregation(asked, sections):
    record = read(run(asked(**sections)).folder)
    assert [one.records for one in record.personal] == [round(0.4 * size) for size in SIZES.values()]
    assert all(one.personal < one.shared for one in record.personal)


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_where_cohorts_are_secret_all_sites_are_asked_and_nothing_is_told(asked):
    method = {"name": "dpfedavg", "rounds": 1, "noise_multiplier": 4.0}
    method["sampler"] = {"kind": "poisson", "sites_per_round": 1}
    result = run(asked(method, {"heldout": None}))
    assert all((result.folder / "sites" / site).is_dir() for site in SIZES)
    assert read(result.folder).personal == () and all(one.events == () for one in read(result.folder).rounds)
    assert not [row for row in read(result.folder).disclosure if row.verb == "personalise"]
