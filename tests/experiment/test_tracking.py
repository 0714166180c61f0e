"""Runs that are tracked."""

import math

import pytest

from murmura.experiment import run as running
from murmura.experiment.run import run
from murmura.runs import read
from murmura.tracking import TRACKERS
from murmura.tracking.sink import Sink
from tests.experiment.test_choosing import ONE_STEP, PRIVATE, begun

pytestmark = pytest.mark.usefixtures("no_page")
QUICK = {"attacks": False, "sample": 1, "every": 1}


class Remembering(Sink):
    needs = "json"

    def __init__(self, run):
        told.append(("begin", run.run, run.after, run.parameters))

    def log(self, round, figures):
        told.append((round, figures))

    def close(self, report):
        told.append(("end", report))


class Broken(Remembering):
    def log(self, round, figures):
        raise OSError("no route to host")


told = []


@pytest.fixture
def tracked(make, monkeypatch):
    told.clear()
    sinks = {"tensorboard": Remembering, "wandb": Broken}
    load = type(TRACKERS).load
    monkeypatch.setattr(
        type(TRACKERS), "load", lambda self, name, *of: sinks[name] if self is TRACKERS else load(self, name, *of)
    )

    def made(method=None, *, to=("tensorboard",), **sections):
        return make(method, tracking={"to": list(to)}, evaluation=QUICK, **sections)

    return made


def test_a_tracker_gets_the_published_rows_and_the_same_run_when_it_is_resumed(tracked):
    run(tracked({"rounds": 1}))
    result = run(tracked({"rounds": 2}), resume=True)
    begun = [one for one in told if one[0] == "begin"]
    assert begun[0][1] == begun[1][1] and [one[2] for one in begun] == [-1, 1]
    assert begun[0][3]["method.name"] == "fedit" and not any("tracking" in key for key in begun[0][3])
    rounds = {one[0]: one[1] for one in told if isinstance(one[0], int)}
    assert [one[0] for one in told if isinstance(one[0], int)] == [0, 1, 2]
    assert rounds[2]["heldout_loss"] == result.rows[2]["heldout_loss"] and "seconds/train" in rounds[2]
    assert told[-1] == ("end", (result.folder / "report.html").absolute())
    assert read(result.folder).resumed[0].changed.keys() == {"method.rounds"}


def test_a_tracker_that_missed_the_last_rounds_gets_them_when_the_finished_run_is_resumed(tracked, monkeypatch):
    def down(sink, round, figures):
        if round == 2:
            raise OSError("no route to host")
        told.append((round, figures))

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Remembering, "log", down)
        run(tracked({"rounds": 3}))
    for _ in range(2):
        run(tracked({"rounds": 3}), resume=True)
    assert [one[0] for one in told if isinstance(one[0], int)] == [0, 1, 2, 3]
    assert [one[0] for one in told[-2:]] == ["begin", "end"]


def test_a_tracker_that_fails_is_an_event_and_the_run_is_as_without_it(tracked, tmp_path):
    result = run(tracked({"rounds": 1}, to=["wandb"]))
    events = [event for one in read(result.folder).rounds for event in one.events]
    assert events == ["the run is not tracked by wandb any more (OSError: no route to host)"]
    plain = run(tracked({"rounds": 1}, to=(), run={"folder": str(tmp_path / "plain")}))
    assert plain.rows[1]["heldout_loss"] == result.rows[1]["heldout_loss"]


def test_what_a_run_keeps_secret_no_tracker_gets(tracked, monkeypatch):
    """Under ε, neither times nor memory; where cohorts are secret, expected traffic alone, and no event."""
    method = {"name": "dpfedavg", "rounds": 2, "noise_multiplier": 4.0}
    method["sampler"] = {"kind": "poisson", "sites_per_round": 1}
    finished = _spy(monkeypatch)
    result = run(tracked(method))
    assert finished == [0]  # nothing was told while it went on: when would tell how long a round took
    rounds = [one[1] for one in told if isinstance(one[0], int)]
    assert len(rounds) == 3
    for figures, row in zip(rounds, result.rows, strict=True):
        assert set(figures) <= set(row) and not any("/" in key or key in ("wall", "train_loss") for key in figures)


def test_a_tracker_has_the_epsilon_that_counts_runs_which_were_named_later(tracked, make, skin_keeps_nothing, tmp_path):
    """Of the last round it has one already; what it keeps of it must not be smaller than what the run tells."""
    options = {"method": PRIVATE, "training": ONE_STEP}
    first = run(make(run={"folder": str(tmp_path / "first")}, **options)).folder
    gone, last = begun(tmp_path / "gone"), []
    for chosen_by in ([], [str(first)], [str(gone)]):
        asked = tracked(**options, personal={"steps": 1, "heldout": None}, run={"chosen_by": chosen_by})
        with skin_keeps_nothing():  # so that the run can be resumed when it is finished
            row = run(asked, resume=bool(last)).rows[-1]
        last.append(next(figures["epsilon"] for round, figures in reversed(told[:-1]) if round == 1))
        assert last[-1] == (math.inf if row["epsilon"] is None else row["epsilon"])
        told.clear()
    assert 0 < last[0] < last[1] < last[2] == math.inf


def _spy(monkeypatch):
    """How much trackers had been told when the run was finished, for each time that it was."""
    seen, finish = [], running._finish

    def noted(*arguments):
        finish(*arguments)
        seen.append(len(told))

    monkeypatch.setattr(running, "_finish", noted)
    return seen
