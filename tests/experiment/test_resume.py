"""Going on with a run: what may differ, what is written down of it, and what of a damaged folder is still of use."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from itertools import product
from pathlib import Path

import pytest

from murmura import Experiment
from murmura.errors import CheckpointError, ConfigError, DataError, PrivacyError
from murmura.experiment.resume import _CALLED, _MAY_CHANGE, _TOLD
from murmura.experiment.run import run
from murmura.federation.server.checkpoint import latest
from murmura.federation.site.site import Site
from murmura.runs import read
from murmura.runs.audit import Audit
from murmura.runs.folder import RunFolder
from murmura.runs.names import AUDIT, AUDIT_SCORES, EVALUATION, JUDGED
from murmura.runs.schema import Evaluation
from tests.experiment.small import record, write_lines

CONSTANT = {"schedule": "constant"}


def files(folder: Path):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def written(folder: Path):
    """What the experiment file says of itself, in comments, and the experiment."""
    text = (folder / "config.toml").read_text()
    return [line for line in text.splitlines() if line.startswith("#")], tomllib.loads(text)


def messages(folder: Path):
    """How often each field of each verb has left a site."""
    return {(row.verb, row.field): row.messages for row in read(folder).disclosure}


def test_the_decision_names_every_option_that_may_change_and_whose_word_a_further_answer_takes():
    page = Path(__file__).parents[2] / "docs" / "decisions" / "0002-what-a-resumed-run-may-change.md"
    decision = page.read_text(encoding="utf-8")
    assert [key for key in sorted(_MAY_CHANGE | _CALLED) if f"`{key}`" not in decision] == []
    assert f"`[{_TOLD.removesuffix('.')}]`" in decision
    assert "`murmura site start --again`" in decision


def test_options_that_changed_are_told_and_written_down_with_their_round(make, capsys):
    run(make(method={"rounds": 1}, training=CONSTANT))
    assert written(run(make(method={"rounds": 1}, training=CONSTANT), resume=True).folder)[0] == []  # nothing did
    capsys.readouterr()
    result = run(make(training=CONSTANT | {"lr": 1e-3}, evaluation={"sample": 2}), resume=True)
    expected = [
        "training.lr is 0.001 from here on, and was 0.005",
        "method.rounds is 2 from here on, and was 1",
        "evaluation.sample is 2 from here on, and was 0",
    ]
    told = [line.partition("after round 1: ")[2] for line in capsys.readouterr().err.splitlines()]
    assert [line for line in told if line] == expected
    changed = {"training.lr": [5e-3, 1e-3], "method.rounds": [1, 2], "evaluation.sample": [0, 2]}
    [resumed] = json.loads((result.folder / "resumed.json").read_text())
    assert resumed == {"after": 1, "changed": changed, "events": expected}
    remarks, options = written(result.folder)
    assert [f"# After round 1: {event}" for event in expected] == remarks[1:]
    assert options["training"]["lr"] == 1e-3
    assert Experiment.load(result.folder / "config.toml").method.rounds == 2
    page = (result.folder / "report.html").read_text()
    assert "training.lr after round 1, from 0.005 to 0.001" in page
    assert f"<li>after round 1: {expected[0]}</li>" in page
    again = run(make(method={"rounds": 3}, training=CONSTANT | {"lr": 2e-3}, evaluation={"sample": 2}), resume=True)
    assert [one["after"] for one in json.loads((again.folder / "resumed.json").read_text())] == [1, 2]
    run(make(method={"rounds": 1}, training=CONSTANT), overwrite=True)
    assert not (result.folder / "resumed.json").exists()


def test_a_change_that_no_round_was_run_with_is_forgotten(quick, monkeypatch):
    run(quick(method={"rounds": 1}, training=CONSTANT))

    def killed(*_, **__):
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr("murmura.federation.site.cohort.train", killed)
        run(quick(training=CONSTANT | {"lr": 1e-3}), resume=True)
    folder = run(quick(training=CONSTANT), resume=True).folder
    assert json.loads((folder / "resumed.json").read_text())[0]["changed"] == {"method.rounds": [1, 2]}
    assert written(folder)[1]["training"]["lr"] == 5e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": {"rounds": 1}}, r"method\.rounds is 1, but the run has 2 rounds behind it.*2 or more"),
        ({"training": {"lr": 1e-3}}, r"all rounds are done \(2\), so training\.lr = 0\.001 would change none of them"),
        ({"lora": {"rank": 3}}, r"lora\.rank is 3, but the run was started with 2"),
        ({"data": {"fields": {"output": "answer"}}}, r"data\.fields\.output is 'answer', but the run was started with"),
    ],
    ids=["fewer rounds", "no round left", "another rank", "another column"],
)
def test_what_cannot_be_resumed_is_refused_and_nothing_is_lost(quick, change, message):
    first = run(quick())
    before = files(first.folder)
    with pytest.raises(ConfigError, match=message):
        run(quick(**change), resume=True)
    assert files(first.folder) == before


def test_another_privacy_plan_is_refused_and_nothing_is_lost(quick, monkeypatch):
    monkeypatch.setattr(RunFolder, "drop_checkpoints", lambda folder: None)  # killed at the very end
    method = {"name": "dplora", "noise_multiplier": 1.0, "accountant": "rdp", "rounds": 1}
    training = {"max_steps": 1, "batch_size": 2}
    first = run(quick(method=method, training=training))
    before = files(first.folder)
    with pytest.raises(PrivacyError, match=r"begun under another privacy plan .*; 1 step; .*; 2 steps;"):
        run(quick(method=method | {"rounds": 2}, training=training), resume=True)
    assert files(first.folder) == before


def test_a_run_can_be_ended_early(quick):
    run(quick(method={"rounds": 2}))
    (quick().run.path / "summary.json").unlink()
    shutil.rmtree(quick().run.path / "checkpoint" / "round-0002")
    result = run(quick(method={"rounds": 1}), resume=True)
    assert json.loads((result.folder / "summary.json").read_text())["rounds"] == 1
    assert written(result.folder)[0][1:] == ["# After round 1: method.rounds is 1 from here on, and was 2"]


@pytest.mark.parametrize("change", ["other", "fewer", "gone"])
def test_other_records_name_the_site(quick, tmp_path, monkeypatch, change):
    """Where files do not tell, as of a hub's data set."""
    monkeypatch.setattr("murmura.experiment.prepare.require_same_inputs", lambda *_: None)
    run(quick(method={"rounds": 1}))
    rows = [record("skin", number + (change == "other")) for number in range(2 if change == "fewer" else 3)]
    write_lines(tmp_path / "sites" / "skin.jsonl", rows)
    if change == "gone":
        (tmp_path / "sites" / "skin.jsonl").unlink()
    with pytest.raises(DataError, match=r"site skin: (the records are not those|this site has no records any more)"):
        run(quick(), resume=True)


def test_a_finished_run_that_is_resumed_says_that_it_is_finished_and_keeps_what_was_found_about_it(quick, capsys):
    finished, found = run(quick()), RunFolder(quick().run.path)
    found.write(AUDIT, Audit("0.1", "now", ()))
    found.write_private(AUDIT_SCORES, [])
    found.write(EVALUATION, Evaluation("0.1", "now", (), None, None, "plain"))
    (found.path / JUDGED).mkdir()
    capsys.readouterr()
    assert run(quick(), resume=True).rows == finished.rows
    assert all((found.path / name).exists() for name in (AUDIT, AUDIT_SCORES, EVALUATION, JUDGED))
    told = capsys.readouterr().err
    assert "the run is finished: all 2 rounds are done" in told and "raise method.rounds" in told
    assert "resuming" not in told
    run(quick({"rounds": 3}), resume=True)
    assert "resuming after round 2\n" in capsys.readouterr().err
    assert not any((found.path / name).exists() for name in (AUDIT, AUDIT_SCORES, EVALUATION, JUDGED))


def test_a_damaged_checkpoint_is_told_and_the_one_before_taken(make, capsys):
    whole = run(make(training=CONSTANT))
    tensors = whole.folder / "adapter" / "adapter_model.safetensors"
    before, rows = tensors.read_bytes(), [row["heldout_loss"] for row in whole.rows]
    disclosed = messages(whole.folder)
    part = whole.folder / "checkpoint" / "round-0002" / "server.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + bytes([part.read_bytes()[-1] ^ 1]))
    capsys.readouterr()
    again = run(make(training=CONSTANT), resume=True)
    event = (
        "the checkpoint of round 2 is damaged (server.safetensors is not what was written); the run goes on from the "
        "one before"
    )
    told = capsys.readouterr().err
    assert "resuming after round 1\n" in told and f"after round 1: {event}\n" in told
    assert [row["heldout_loss"] for row in again.rows] == rows
    assert tensors.read_bytes() == before
    assert disclosed["join", "kind"] == 2 and messages(whole.folder)["join", "kind"] == 2 * 2
    assert disclosed["train", "adapter"] == 2 * 2 and messages(whole.folder)["train", "adapter"] == 3 * 2
    assert f"<li>after round 1: {event}</li>" in (whole.folder / "report.html").read_text()
    assert latest(whole.folder / "checkpoint").damaged == ()


def test_a_round_that_a_site_cannot_go_back_to_is_not_removed_before_the_run_goes_on(quick, tmp_path, monkeypatch):
    whole = run(quick(training=CONSTANT))
    saved = files(whole.folder / "checkpoint" / "round-0002")
    rewind = Site.rewind

    def damaged(site, round):
        if round == 2:
            raise CheckpointError("what the site kept is damaged")
        rewind(site, round)

    with monkeypatch.context() as patch:
        patch.setattr(Site, "rewind", damaged)
        patch.setattr("murmura.experiment.prepare.require_same_inputs", lambda *_: None)
        own = (tmp_path / "sites" / "skin.jsonl").read_bytes()
        write_lines(tmp_path / "sites" / "skin.jsonl", [record("skin", number + 1) for number in range(3)])
        with pytest.raises(DataError, match="the records are not those"):
            run(quick(training=CONSTANT), resume=True)
        assert files(whole.folder / "checkpoint" / "round-0002") == saved
        (tmp_path / "sites" / "skin.jsonl").write_bytes(own)
        patch.setattr("murmura.federation.server.rounds.Server.rounds", lambda *_: iter(()))
        patch.setattr("murmura.federation.server.rounds.Server.require_whole", lambda _: None)
        run(quick(training=CONSTANT), resume=True)
        assert not (whole.folder / "checkpoint" / "round-0002").exists()
    assert [row["round"] for row in run(quick(training=CONSTANT), resume=True).rows] == [0, 1, 2]


def test_other_files_that_were_cut_short_are_written_anew(quick):
    folder = run(quick(method={"rounds": 1}, training=CONSTANT)).folder
    names = ("config.toml", "metrics.jsonl", "disclosure.json", "sites.json", "environment.json")
    for name, length in product(names, (0, 10)):
        whole = (folder / name).read_text()
        (folder / name).write_text(whole[:length])
        run(quick(method={"rounds": 1}, training=CONSTANT), resume=True)
        texts = ((folder / name).read_text(), whole)  # sites have joined once more, so that counts may differ
        assert len({len(re.sub(r"\d", "", text)) for text in texts}) == 1, (name, length)


def test_an_experiment_file_that_was_cut_short_before_the_first_round_is_told(quick, monkeypatch):
    def killed(*_):
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr("murmura.federation.server.rounds.Server.rounds", killed)
        run(quick())
    file = quick().run.path / "config.toml"
    file.write_text(file.read_text()[:30])
    with pytest.raises(CheckpointError, match=r"config\.toml: this is no longer the experiment.*--overwrite"):
        run(quick(), resume=True)


@pytest.mark.parametrize("saved", [False, True])
def test_what_had_left_when_a_run_was_killed_has_left(quick, monkeypatch, saved):
    """In the round that is lost, and before any is saved."""
    real = RunFolder.write_sent
    counted = 0

    def killed(folder, state):
        nonlocal counted
        real(folder, state)
        counted += any(row["verb"] == "train" and row["messages"] == 2 * saved + 1 for row in state["ledger"]["rows"])
        if counted == 1:
            raise MemoryError

    options = {"training": CONSTANT, "evaluation": {"attacks": False, "uploads": 0}}
    if saved:
        run(quick(method={"rounds": 1}, **options))
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(RunFolder, "write_sent", killed)
        run(quick(**options), resume=saved)
    if saved:  # a report of what there is now has it too
        assert messages(quick().run.path)["train", "adapter"] == 2 + 1
    assert messages(run(quick(**options), resume=True).folder)["train", "adapter"] == 2 * 2 + 1


def test_a_failure_of_power_costs_no_more_than_the_rounds_that_were_not_saved(quick):
    first = run(quick(method={"rounds": 1}, training=CONSTANT))
    (first.folder / "checkpoint" / "sent.json").write_bytes(b"")
    assert messages(run(quick(training=CONSTANT), resume=True).folder)["train", "adapter"] == 2 * 2


def test_only_the_owner_can_look_into_the_checkpoints(quick):
    folder = run(quick(method={"rounds": 1})).folder
    assert (folder / "checkpoint").stat().st_mode & 0o777 == 0o700
    (folder / "checkpoint").chmod(0o755)  # as runs of before had it
    run(quick(method={"rounds": 1}), resume=True)
    assert (folder / "checkpoint").stat().st_mode & 0o777 == 0o700
