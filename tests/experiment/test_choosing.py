"""The ε of a run counts the runs by which its options were chosen, whatever becomes of their folders."""

import shutil
from pathlib import Path

import pytest

from murmura.errors import ConfigError, Interrupted, PrivacyError
from murmura.experiment.config import Experiment
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.federation.server.rounds import Server
from murmura.privacy import odometer, run_ledgers
from murmura.report.guarantee import guarantees
from murmura.report.table import table as table_of
from murmura.runs import read_all
from murmura.runs.names import CHOSEN_BY, CONFIG, ENVIRONMENT
from murmura.units import bound

pytestmark = pytest.mark.usefixtures("no_page")

PRIVATE = {"name": "dplora", "noise_multiplier": 4.0, "accountant": "rdp", "rounds": 1}
ONE_STEP = {"max_steps": 1, "batch_size": 2}


def begun(folder):
    """A run of which nothing but its beginning is left."""
    folder.mkdir()
    (folder / CONFIG).write_text("[run]\n[method]\n", encoding="utf-8")
    (folder / ENVIRONMENT).touch()
    return folder


@pytest.mark.parametrize("named", ["none", "n" * 300])
def test_a_run_that_is_said_to_have_chosen_options_has_to_be_one(make, named):
    """With the last round it would be too late: no ε could be told any more."""
    with pytest.raises(ConfigError, match=r"run\.chosen_by = .*n") as error:
        dry_run(make(run={"chosen_by": [named]}, method=PRIVATE, training=ONE_STEP))
    assert "run" in error.value.fix


def test_runs_by_which_options_were_chosen_are_found_from_any_folder(make, tmp_path, monkeypatch):
    """Beside the experiment file, or else in the current folder, in which the run need not go on."""
    file = tmp_path / "files" / "private.toml"
    begun(tmp_path / "here"), file.parent.mkdir(), begun(file.parent / "beside")
    given = make(method=PRIVATE).dump().replace("chosen_by = []", 'chosen_by = ["beside", "here"]')
    file.write_text(given, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert Experiment.load(file).run.chosen_by == [str(file.parent / "beside"), str(tmp_path / "here")]


def test_a_run_counts_once_however_it_is_written(make, tmp_path, monkeypatch):
    options = {"method": PRIVATE, "training": ONE_STEP, "evaluation": {"attacks": False}}
    before = run(make(run={"folder": str(tmp_path / "before")}, **options)).folder
    monkeypatch.chdir(tmp_path)
    told = []
    for spelled in ([str(before)], [str(before), "before", f"{before}/../before"]):
        folder = str(tmp_path / f"by {len(spelled)}")
        [*_, row] = run(make(run={"folder": folder, "chosen_by": spelled}, **options)).rows
        told.append(row["epsilon"])
    assert told[0] == told[1] > read_all([before])[0].last.privacy["epsilon"]


def chain(make, tmp_path, **more):
    """Runs of one step, each of which was chosen by the one before; their ε."""
    options = {"method": PRIVATE, "training": ONE_STEP, "evaluation": {"attacks": False}} | more
    told, before = [], []
    for name in "abc":
        folder = tmp_path / name
        told.append(run(make(run={"folder": str(folder), "chosen_by": before}, **options)).rows[-1]["epsilon"])
        before = [str(folder)]
    return told


def test_what_a_run_was_chosen_by_may_have_been_chosen_itself(make, tmp_path):
    told = chain(make, tmp_path)
    every = [run_ledgers.read(tmp_path / name) for name in "abc"]
    for count, epsilon in enumerate(told[1:], start=2):
        assert epsilon == pytest.approx(odometer.together(every[:count], "record", 1e-5).value)
    assert told[0] < told[1] < told[2]
    assert {one.name for one in run_ledgers.noted(tmp_path / "c")} == {str(tmp_path / name) for name in "ab"}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.toml", "run = 3"),
        ("private/@run/records.jsonl", '{"sites": 3}'),
        ("config.toml", "[run]\nchosen_by = 3"),
    ],
)
def test_of_a_run_whose_files_are_damaged_no_epsilon_is_told_and_the_run_ends(make, tmp_path, file, text):
    options = {"method": PRIVATE, "training": ONE_STEP, "evaluation": {"attacks": False}}
    before = run(make(run={"folder": str(tmp_path / "before")}, **options)).folder
    asked = make(run={"chosen_by": [str(before)]}, **options)
    (before / file).write_text(text, encoding="utf-8")
    assert any("After the last round no ε will be told" in note for note in dry_run(asked).notes)
    done = run(asked)
    told = done.rows[-1]["privacy"]
    assert told["epsilon"] is None and str(tmp_path) not in told["refused"]
    assert told["alone"] > 0


def test_runs_that_are_named_after_the_last_round_count_too(make, tmp_path, monkeypatch, capsys):
    """It was stopped before it had its card; what it had spent by then is told with what it was chosen by."""
    options = {"method": PRIVATE, "training": ONE_STEP, "evaluation": {"attacks": False}}
    first, second = (run(make(run={"folder": str(tmp_path / name)}, **options)).folder for name in ("first", "second"))
    where = {"folder": str(tmp_path / "third")}
    with monkeypatch.context() as patch, pytest.raises(Interrupted) as stopped:
        patch.setattr("murmura.experiment.run._finish", stop)
        run(make(run={**where, "chosen_by": [str(first)]}, **options))
    both = odometer.together([run_ledgers.read(first), run_ledgers.read(second)], "record", 1e-5).value
    assert f"ε = {bound(both)}" in stopped.value.cost
    done = run(make(run={**where, "chosen_by": [str(first), str(second)]}, **options), resume=True)
    every = [run_ledgers.read(place) for place in (first, second, done.folder)]
    epsilon = odometer.together(every, "record", 1e-5).value
    assert done.rows[-1]["epsilon"] == pytest.approx(epsilon) and epsilon > both
    assert f"ε = {bound(epsilon)}" in (done.folder / "adapter" / "README.md").read_text(encoding="utf-8")
    assert read_all([done.folder])[0].last.values["epsilon"] == done.rows[-1]["epsilon"]


def test_what_was_named_once_counts_whatever_a_later_resume_names(make, tmp_path, monkeypatch):
    options = {"method": PRIVATE, "training": ONE_STEP, "evaluation": {"attacks": False}}
    first, second = (run(make(run={"folder": str(tmp_path / name)}, **options)).folder for name in ("first", "second"))
    named = [[str(first)], [str(first), str(second)], [str(first)]]
    asked = [make(run={"folder": str(tmp_path / "third"), "chosen_by": names}, **options) for names in named]
    for part, one in enumerate(asked[:2]):
        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr("murmura.experiment.run._finish", stop)
            run(one, resume=part > 0)
    done = run(asked[2], resume=True)
    every = [run_ledgers.read(place) for place in (first, second, done.folder)]
    assert done.rows[-1]["epsilon"] == pytest.approx(odometer.together(every, "record", 1e-5).value)
    assert read_all([done.folder])[0].chosen_by == (first, second)


def _private(make, folder, *named, **more):
    """A private run of one step."""
    options = {"method": PRIVATE, "training": ONE_STEP, "evaluation": {"attacks": False}} | more
    return make(run={"folder": str(folder), "chosen_by": list(map(str, named))}, **options)


def _spent(*runs):
    return odometer.together(runs, "record", 1e-5).value


@pytest.mark.parametrize("by", ["itself", "another", "the previous one"])
def test_a_run_counts_those_that_lay_where_it_is_kept(make, tmp_path, by):
    """They are moved, or removed, when it begins."""
    runs = [run_ledgers.read(run(_private(make, tmp_path / "a")).folder)]
    if by == "another":
        runs.append(run_ledgers.read(run(_private(make, tmp_path / "b", tmp_path / "a")).folder))
    if by == "the previous one":
        run(_private(make, tmp_path / "a"), overwrite=True)
    named = {"itself": "a", "another": "b", "the previous one": "a.previous"}[by]
    done = run(_private(make, tmp_path / "a", tmp_path / named), overwrite=True)
    assert done.rows[-1]["epsilon"] == pytest.approx(_spent(*runs, run_ledgers.read(done.folder)))
    assert done.rows[-1]["epsilon"] > done.rows[-1]["privacy"]["alone"]


def _stopped(patch, asked, **more):
    """Before it has its card, after its last round."""
    with patch.context() as context, pytest.raises(Interrupted) as stopped:
        context.setattr("murmura.experiment.run._finish", stop)
        run(asked, **more)
    return stopped.value.cost


@pytest.mark.parametrize("after", ["replaced", "gone", "renamed", "config damaged", "ledger cut"])
def test_what_becomes_of_a_named_run_lowers_no_epsilon(make, tmp_path, monkeypatch, after):
    """Nor does it cost one, but where a ledger is known in two states of which neither can be the later one."""
    first = run(_private(make, tmp_path / "first")).folder
    asked = _private(make, tmp_path / "then", first)
    _stopped(monkeypatch, asked)
    before = read_all([tmp_path / "then"])[0].last.privacy["epsilon"]
    match after:
        case "replaced":
            weak = {"method": PRIVATE | {"noise_multiplier": 40.0}}
            run(_private(make, first, **weak), overwrite=True)
        case "gone":
            shutil.rmtree(first)
        case "renamed":
            first.rename(tmp_path / "renamed")
        case "config damaged":
            (first / CONFIG).write_text("run = 3")
            (tmp_path / "then" / CONFIG).write_text("run = 3")
        case "ledger cut":
            (first / "private" / "heart" / "privacy.journal").write_text("")
    told = run(asked, resume=True).rows[-1]["privacy"]
    if after == "ledger cut":
        assert told["epsilon"] is None and told["refused"]
    else:
        assert (told["epsilon"] > before) if after == "replaced" else (told["epsilon"] == before)
        found = read_all([tmp_path / "then"])
        assert guarantees(table_of(found)) == []  # a curve would be of the run alone


def test_a_run_that_is_named_under_a_new_name_is_still_one(make, tmp_path, monkeypatch):
    first = run(_private(make, tmp_path / "first")).folder
    _stopped(monkeypatch, _private(make, tmp_path / "then", first))
    before = read_all([tmp_path / "then"])[0].last.privacy["epsilon"]
    renamed = first.rename(tmp_path / "renamed")
    assert run(_private(make, tmp_path / "then", renamed), resume=True).rows[-1]["epsilon"] == before


def test_what_a_named_run_has_spent_since_counts_with_a_resume(make, tmp_path, monkeypatch):
    """Options of what is left of a run may be chosen by it."""
    two = {"method": PRIVATE | {"rounds": 2}}
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        saving = Server._close
        patch.setattr(Server, "_close", lambda self: saving(self) or (self._fleet.round == 1 and stop()))
        run(_private(make, tmp_path / "first", **two))
    once = run_ledgers.read(tmp_path / "first")
    asked = _private(make, tmp_path / "then", tmp_path / "first")
    _stopped(monkeypatch, asked)
    own = run_ledgers.read(tmp_path / "then")
    assert read_all([tmp_path / "then"])[0].last.privacy["epsilon"] == pytest.approx(_spent(once, own))
    run(_private(make, tmp_path / "first", **two), resume=True)
    twice = run_ledgers.read(tmp_path / "first")
    epsilon = run(asked, resume=True).rows[-1]["epsilon"]
    assert epsilon == pytest.approx(_spent(twice, own)) and epsilon > _spent(once, own)


def test_a_run_that_took_the_place_of_a_named_one_counts_though_it_cannot_be_read(make, tmp_path, monkeypatch):
    first = run(_private(make, tmp_path / "first")).folder
    asked = _private(make, tmp_path / "then", first)
    _stopped(monkeypatch, asked)
    run(_private(make, first), overwrite=True)
    (first / CONFIG).write_text("run = 3")
    told = run(asked, resume=True).rows[-1]["privacy"]
    assert told["epsilon"] is None and "[run] is no table" in told["refused"]


def test_what_stands_beside_the_epsilon_of_a_named_run_stands_beside_that_of_all(make, tmp_path):
    shared = {"training": ONE_STEP | {"tokens_per_pass": 64}}
    first = run(_private(make, tmp_path / "first", **shared)).folder
    told = run(_private(make, tmp_path / "then", first)).rows[-1]["privacy"]["caveat"]
    assert "Of first: Records share passes" in told and told.count("Options of the run were chosen") == 1
    third = run(_private(make, tmp_path / "third", tmp_path / "then", first)).rows[-1]["privacy"]["caveat"]
    assert third.count("Records share passes") == 1


def test_of_runs_whose_folders_end_alike_what_stands_beside_each_is_said(make, tmp_path):
    """As seeds of two rates are kept: each in the folder of its rate."""
    passes = {"high": 64, "low": 32}
    for rate, tokens in passes.items():
        shared = {"training": ONE_STEP | {"tokens_per_pass": tokens}}
        run(_private(make, tmp_path / rate / "seed0", **shared))
    named = [tmp_path / rate / "seed0" for rate in passes]
    told = run(_private(make, tmp_path / "then", *named)).rows[-1]["privacy"]["caveat"]
    for tokens in passes.values():
        assert f"Of seed0: Records share passes (training.tokens_per_pass = {tokens})" in told


def test_which_run_was_named_is_not_guessed_where_nothing_was_noted(make, tmp_path, monkeypatch):
    """As by an earlier version: another one may lie there, or none."""
    first = run(_private(make, tmp_path / "first")).folder
    asked = _private(make, tmp_path / "then", first)
    _stopped(monkeypatch, asked)
    (tmp_path / "then" / CHOSEN_BY).unlink()
    first.rename(tmp_path / "elsewhere")
    told = run(asked, resume=True).rows[-1]["privacy"]
    assert told["epsilon"] is None and "was not noted when the run began" in told["refused"]


@pytest.mark.parametrize("at", ["run_ledgers.note", "RunFolder.write_config"])
def test_a_run_that_is_killed_before_it_has_a_config_can_be_begun_again(make, tmp_path, at):
    """Also where it starts over in the folder of the run that it names, which is moved by then."""
    first = run(_private(make, tmp_path / "first")).folder
    asked = _private(make, first, first)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(f"murmura.experiment.run.{at}", stop)
        run(asked, overwrite=True)
    with pytest.raises(ConfigError, match="not a run folder") as error:
        run(asked)
    assert "first.previous now" in error.value.fix
    done = run(_private(make, first, first.with_name("first.previous")))
    every = [run_ledgers.read(place) for place in (done.folder, first.with_name("first.previous"))]
    assert done.rows[-1]["epsilon"] == pytest.approx(_spent(*every))
    assert len(run_ledgers.noted(done.folder)) == 1


def test_a_run_that_asked_nobody_costs_nothing_and_is_not_said_to(make, tmp_path):
    asked = _private(make, tmp_path / "failed")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("murmura.experiment.run._carried_out", stop)
        run(asked)
    then = _private(make, tmp_path / "then", tmp_path / "failed")
    assert not any("no ε will be told" in note for note in dry_run(then).notes)
    told = run(then).rows[-1]["privacy"]
    assert told["epsilon"] == told["alone"]


def test_what_a_run_has_noted_cannot_be_taken_back(make, tmp_path):
    done = run(_private(make, tmp_path / "then", run(_private(make, tmp_path / "first")).folder)).folder
    journal = done / CHOSEN_BY
    text = journal.read_text()
    journal.write_text(text.replace('"steps": 1', '"steps": 0'))
    with pytest.raises(PrivacyError, match="was edited"):
        run_ledgers.read(done)
    journal.unlink()
    with pytest.raises(PrivacyError, match="has not noted what"):
        _spent(run_ledgers.read(done))


def stop(*arguments):
    raise KeyboardInterrupt


def test_what_a_run_was_chosen_by_is_said_also_after_it_was_resumed_with_other_runs(make, monkeypatch, tmp_path):
    """An ε counts them all; and where their ledgers are gone, there is none with them."""
    options = {"method": PRIVATE | {"rounds": 2}, "training": ONE_STEP, "evaluation": {"attacks": False}}
    gone, also = (str(begun(tmp_path / name)) for name in ("gone", "also"))
    first, then = (make(run={"chosen_by": [name]}, **options) for name in (gone, also))
    assert any("other runs over the same records" in note for note in dry_run(first).notes)
    saving = Server._close

    def stopped(self, *arguments, **more):
        saving(self, *arguments, **more)
        if self._fleet.round == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Server, "_close", stopped)
        run(first)
    done = run(then, resume=True)
    assert read_all([done.folder])[0].chosen_by == (Path(gone), Path(also))
    told = done.rows[-1]["privacy"]["refused"]
    assert done.rows[-1]["epsilon"] is None and str(tmp_path) not in told
    assert told.startswith("with the runs by which its options were chosen: ") and "nothing is left of what" in told
    assert [row["epsilon"] is None for row in done.rows] == [True, False, True]  # before training there is none
