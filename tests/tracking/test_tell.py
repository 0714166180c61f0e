"""What trackers are told, and what becomes of a run when they fail."""

import json
import math
from pathlib import Path
from typing import ClassVar

import pytest

from murmura.errors import ConfigError
from murmura.registry import Origin
from murmura.tracking import TRACKERS, tell
from murmura.tracking.config import TrackingConfig
from murmura.tracking.sink import Sink


class Remembering(Sink):
    needs = "json"
    all: ClassVar = []

    def __init__(self, run):
        self.run, self.rounds, self.report, self.closed = run, [], None, 0
        self.all.append(self)

    def log(self, round, figures):
        self.rounds.append((round, figures))

    def close(self, report):
        self.report, self.closed = report, self.closed + 1


class Broken(Remembering):
    needs = "no_such_library"

    def log(self, round, figures):
        raise OSError("no route to https://me:pass@host/api\nmore")


@pytest.fixture
def tracking(tmp_path, monkeypatch):
    monkeypatch.setattr(Remembering, "all", [])
    sinks = {"tensorboard": Remembering, "mlflow": Broken}
    monkeypatch.setattr(type(TRACKERS), "load", lambda self, name, base=None: sinks[name])
    said = []

    def made(*to):
        config = TrackingConfig(to=to, project="flock")
        told = tmp_path / "tracked.json"
        return tell.Tracking(config, "id", "my", tmp_path / "tracking", told, {"run": {"seed": 3}}, said.append)

    made.said = said
    return made


def rows(count):
    return [{"round": number, "loss": 2.0 - number} for number in range(count)]


def test_a_tracker_that_fails_is_told_of_once_and_the_others_go_on(tracking):
    found = tracking("mlflow", "tensorboard")
    found.rounds(rows(2))
    found.rounds(rows(3))
    found.close(Path("report.html"))
    broken, whole = Remembering.all
    assert whole.rounds == [(0, {"loss": 2.0}), (1, {"loss": 1.0}), (2, {"loss": 0.0})] and whole.report == Path(
        "report.html"
    )
    [said] = tracking.said
    assert "mlflow any more (OSError: no route to https://host/api)" in said and broken.report is None
    assert (broken.closed, whole.closed) == (1, 1)  # else what is tracked next in this process might go to it


def test_a_resumed_run_tells_what_is_new_and_what_was_missed(tracking, tmp_path):
    tracking("tensorboard").rounds(rows(2))
    again = tracking("tensorboard")
    again.rounds(rows(4))
    [first, second] = Remembering.all
    assert (first.run.after, second.run.after) == (-1, 1) and first.run.run == second.run.run
    assert [round for round, _ in second.rounds] == [2, 3]
    assert json.loads((tmp_path / "tracked.json").read_text()) == {"tensorboard": 3}
    again.rounds(rows(3))  # gone back, and round 2 was done again
    assert [round for round, _ in second.rounds] == [2, 3, 2]


def test_a_tracker_that_was_away_for_the_last_rounds_is_told_of_them_once(tracking):
    tracking("tensorboard").rounds(rows(2))
    again = tracking("tensorboard")
    again.catch_up(rows(4))
    again.catch_up(rows(4))
    tracking("tensorboard").catch_up(rows(4))
    assert [[round for round, _ in one.rounds] for one in Remembering.all] == [[0, 1], [2, 3], []]


@pytest.mark.parametrize("left", [b"", b'{"tensorboard": 1', b"[1]", b'{"tensorboard": Infinity}', b"\xff"])
def test_a_run_goes_on_where_what_trackers_know_is_torn_or_foreign(tracking, tmp_path, left):
    (tmp_path / "tracked.json").write_bytes(left)
    tracking("tensorboard").rounds(rows(2))
    [whole] = Remembering.all
    assert [round for round, _ in whole.rounds] == [0, 1] and whole.run.after == -1
    [said] = tracking.said
    assert "what they know of cannot be read" in said
    assert json.loads((tmp_path / "tracked.json").read_text()) == {"tensorboard": 1}


def test_finite_numbers_are_told_and_those_of_tables():
    row = {"round": 1, "loss": 2, "nan": float("nan"), "events": ["x"], "attacks": {"attack": {"members": 3}}}
    row |= {"seconds": {"train": 0.5}, "counts": {"drafts.kept": 4}, "epsilon": None, "counted": True}
    assert tell.figures(row) == {"loss": 2.0, "seconds/train": 0.5, "counts/drafts.kept": 4.0}


def test_an_epsilon_that_is_refused_is_told_as_infinite():
    """Of a round that was told before with one a tracker would go on showing it."""
    assert tell.figures({"round": 1, "epsilon": None, "privacy": {"refused": "edited"}}) == {"epsilon": math.inf}
    assert tell.figures({"round": 1, "epsilon": 2, "privacy": {"refused": None}}) == {"epsilon": 2.0}
    assert tell.figures({"round": 0, "epsilon": None, "privacy": {}}) == {}


def test_secrets_users_of_addresses_and_where_runs_lie_are_no_parameters():
    options = {
        "run": {"seed": 0, "folder": "/home/me/runs/x", "chosen_by": ["/home/me/runs/y"]},
        "method": {
            "name": "x",
            "api_key": "s1",
            "key": "s2",
            "generator": {"url": "http://me:s3@s6@host/v1?to=a@b", "token": "s4"},
        },
        "training": {"tokens_per_pass": "auto", "betas": [0.9, 0.99]},
        "tracking": {"to": ["mlflow"], "mlflow_uri": "https://host?s5"},
    }
    assert tell.parameters(options) == {
        "run.seed": "0",
        "method.name": "x",
        "method.generator.url": "http://host/v1?to=a@b",
        "training.tokens_per_pass": "auto",
        "training.betas": "[0.9, 0.99]",
    }


def test_a_library_that_is_missing_is_told_before_the_run(tracking):
    with pytest.raises(ConfigError, match="'mlflow' needs the library no_such_library"):
        tell.require(TrackingConfig(to=["tensorboard", "mlflow"]))


@pytest.mark.parametrize("needs", ["", "json", "no_such_library.tracking"])
def test_a_tracker_may_need_nothing_and_what_it_needs_may_be_in_a_package(tracking, monkeypatch, needs):
    monkeypatch.setattr(Remembering, "needs", needs) if needs else monkeypatch.delattr(Remembering, "needs")
    if "such" in needs:
        with pytest.raises(ConfigError, match=r"needs the library no_such_library\.tracking"):
            tell.require(TrackingConfig(to=["tensorboard"]))
    else:
        tell.require(TrackingConfig(to=["tensorboard"]))


def test_what_is_no_tracker_is_refused(monkeypatch):
    monkeypatch.setitem(TRACKERS.builtin, "tensorboard", Origin("json:JSONDecoder"))
    with pytest.raises(TypeError, match=r"no subclass of murmura\.tracking\.sink\.Sink"):  # of a package: for people
        tell.require(TrackingConfig(to=["tensorboard"]))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"to": ["tensorbord"]}, "tensorboard"),
        ({"to": ["mlflow", "mlflow"]}, "twice"),
        ({"to": ["mlflow"], "mlflow_uri": "https://me:pass@host"}, "MLFLOW_TRACKING_USERNAME"),
        ({"to": ["wandb"], "mlflow_uri": "https://host"}, "does nothing"),
        ({"project": "x"}, "does nothing"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, why):
    with pytest.raises(ConfigError, match=why):
        TrackingConfig.parse(options, "[tracking]")
