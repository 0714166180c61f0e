"""An ε that a server could undo by making up an adapter is not told without that."""

import errno
import os
from pathlib import Path

import pytest

from murmura import report
from murmura.errors import ConfigError, Interrupted
from murmura.experiment.config import Experiment
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.federation.server.rounds import Server
from murmura.federation.server.sending import Sending
from murmura.privacy import odometer
from murmura.privacy.standing import chosen_in_turn
from murmura.runs import read_all
from murmura.runs.names import CONFIG, ENVIRONMENT
from murmura.units import bound

pytestmark = pytest.mark.usefixtures("no_page")

PRIVATE = {"name": "dplora", "noise_multiplier": 4.0, "accountant": "rdp", "rounds": 1}
ONE_STEP = {"max_steps": 1, "batch_size": 2}


@pytest.mark.parametrize(("asked", "told"), [(None, False), (1, False), (64, True)])
def test_where_records_share_passes_run_and_dry_run_say_so(make, asked, told):
    passes = {} if asked is None else {"tokens_per_pass": asked}
    experiment = make(method=PRIVATE, training=ONE_STEP | passes, evaluation={"attacks": False})
    assert any("share passes" in note for note in dry_run(experiment).notes) == told
    [*_, row] = run(experiment).rows
    assert ("share passes" in str(row["privacy"])) == told


def test_whole_sites_are_clipped_as_a_whole(make):
    experiment = make(
        method={"name": "dpfedavg", "rounds": 1, "noise_multiplier": 4.0}, training={"tokens_per_pass": 64}
    )
    assert not any("share passes" in note for note in dry_run(experiment).notes)


@pytest.mark.parametrize("begun", ["adapter", "model"])
def test_what_a_run_began_with_is_in_no_guarantee_and_that_stands_beside_it(make, tmp_path, begun):
    """The adapter or the model of a run without any ε, on the same records."""
    before = {"folder": str(tmp_path / "before")}
    quick = {"training": ONE_STEP, "evaluation": {"attacks": False}}
    whole = {"trainable": "all"} if begun == "model" else {}
    left = run(make({"rounds": 1}, run=before, model=whole, **quick)).folder / begun
    start = {"model": {"name" if begun == "model" else "adapter": str(left)}}
    private = make(method=PRIVATE, **start, **quick)
    said = "does not cover what that was trained on"
    assert any(said in note for note in dry_run(private).notes)
    folder = run(private).folder
    told = report.markdown(report.table(read_all([folder])))
    assert f"whatever the attack. The run uses a{'n adapter' if begun == 'adapter' else ' model'}" in told
    assert said in told and said in (folder / "adapter" / "README.md").read_text(encoding="utf-8")
    assert not any(said in note for note in dry_run(make(method=PRIVATE, **quick)).notes)


@pytest.mark.parametrize("before", [[64], [1, 64]], ids=["in a saved round", "in a lost one alone"])
def test_what_was_to_be_said_of_earlier_rounds_is_said_after_it_has_ended(make, monkeypatch, before):
    """An ε counts all rounds, those too in which records shared passes, and those that were sent and not saved."""
    options = {"method": PRIVATE | {"rounds": 2}, "evaluation": {"attacks": False}}
    sending = Sending.fields

    def stopped(self, *arguments, **more):
        if self._fleet.round == 2:
            raise KeyboardInterrupt
        return sending(self, *arguments, **more)

    for part, asked in enumerate(before):
        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(Sending, "fields", stopped)
            run(make(training=ONE_STEP | {"tokens_per_pass": asked}, **options), resume=part > 0)
    [*_, row] = run(make(training=ONE_STEP, **options), resume=True).rows
    assert row["round"] == 2 and "tokens_per_pass = 64" in row["privacy"]["caveat"]


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
    every = [odometer.read(tmp_path / name) for name in "abc"]
    for count, epsilon in enumerate(told[1:], start=2):
        assert epsilon == pytest.approx(odometer.together(every[:count], "record", 1e-5).value)
    assert told[0] < told[1] < told[2]
    assert chosen_in_turn([tmp_path / "c"]) == [tmp_path / name for name in "cba"]


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
    both = odometer.together([odometer.read(first), odometer.read(second)], "record", 1e-5).value
    assert f"ε = {bound(both)}" in stopped.value.cost
    done = run(make(run={**where, "chosen_by": [str(first), str(second)]}, **options), resume=True)
    every = [odometer.read(place) for place in (first, second, done.folder)]
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
    every = [odometer.read(place) for place in (first, second, done.folder)]
    assert done.rows[-1]["epsilon"] == pytest.approx(odometer.together(every, "record", 1e-5).value)
    assert read_all([done.folder])[0].chosen_by == (first, second)


def test_what_could_not_be_read_in_the_last_round_is_counted_when_it_can(make, tmp_path, monkeypatch):
    options = {"method": PRIVATE, "training": ONE_STEP, "evaluation": {"attacks": False}}
    first = run(make(run={"folder": str(tmp_path / "first")}, **options)).folder
    asked = make(run={"folder": str(tmp_path / "then"), "chosen_by": [str(first)]}, **options)
    with monkeypatch.context() as patch, pytest.raises(Interrupted) as stopped:
        patch.setattr("murmura.privacy.odometer._taken_part", _not_readable)
        patch.setattr("murmura.experiment.run._finish", stop)
        run(asked)
    assert "no ε can be told" in stopped.value.cost
    last = run(asked, resume=True).rows[-1]
    assert last["epsilon"] > last["privacy"]["alone"] and not last["privacy"]["refused"]


def test_a_run_does_not_begin_where_one_lies_that_it_was_chosen_by(make, tmp_path):
    """It would be moved, and its folder then be that of the run itself."""
    options = {"method": PRIVATE, "training": ONE_STEP, "evaluation": {"attacks": False}}
    first = run(make(run={"folder": str(tmp_path / "first")}, **options)).folder
    second = run(make(run={"folder": str(tmp_path / "second"), "chosen_by": [str(first)]}, **options)).folder
    for named in (first, second):
        with pytest.raises(ConfigError, match="would be moved, and not counted"):
            run(make(run={"folder": str(first), "chosen_by": [str(named)]}, **options), overwrite=True)
    assert read_all([first])[0].finished


def stop(*arguments):
    raise KeyboardInterrupt


def test_what_a_run_was_chosen_by_is_said_also_after_it_was_resumed_with_other_runs(make, monkeypatch, tmp_path):
    """An ε counts them all; and where their ledgers are gone, or may not be read, there is none with them."""
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
    monkeypatch.setattr("murmura.privacy.odometer._read", _not_readable)
    done = run(then, resume=True)
    assert read_all([done.folder])[0].chosen_by == (Path(gone), Path(also))
    told = "with the runs by which its options were chosen: the ledgers of this run cannot be read (Permission denied)"
    assert done.rows[-1]["epsilon"] is None and done.rows[-1]["privacy"]["refused"] == told
    assert [row["epsilon"] is None for row in done.rows] == [True, False, True]  # before training there is none


def _not_readable(folder):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_that_sites_measured_what_leaks_is_said_though_later_rounds_do_not(make, monkeypatch):
    """No ε covers what they told, and the last round has no figure that could be marked."""
    options = {"method": PRIVATE | {"rounds": 2}, "training": ONE_STEP}
    asked, later = (make(**options, evaluation={"attacks": attacks}) for attacks in (True, False))
    saving = Server._close

    def stopped(self, *arguments, **more):
        saving(self, *arguments, **more)
        if self._fleet.round == 1:
            raise KeyboardInterrupt

    said = "measure on their records (evaluation.attacks), and this does not cover"
    assert any(said in note for note in dry_run(asked).notes) and not any(said in note for note in dry_run(later).notes)
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Server, "_close", stopped)
        run(asked)
    [*_, row] = run(later, resume=True).rows
    assert "attack_auc" not in row and said in row["privacy"]["caveat"]
