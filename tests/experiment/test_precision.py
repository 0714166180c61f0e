"""The arithmetic of a run: what "auto" comes to, where that is written, and that a run keeps what it began with."""

import json
import tomllib
from functools import partial

import pytest

from murmura.experiment import precision
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.timing import timing
from murmura.experiment.model_spec import ModelSpec
from murmura.experiment.precision import multiplied_in, settled, slow
from murmura.experiment.run import run
from murmura.runs import read
from murmura.training import loop


@pytest.fixture
def on(monkeypatch):
    """Go on to a device that multiplies bfloat16 natively, or to one that does not."""

    def move(*, native):
        monkeypatch.setattr("murmura.precision.is_native", lambda device: native)

    return move


def chosen(experiment):
    return experiment.training.precision, experiment.run.decode_dtype


def written(folder):
    found = tomllib.loads((folder / "config.toml").read_text())
    return found["training"]["precision"], found["run"]["decode_dtype"]


def test_auto_is_the_default_and_what_it_comes_to_follows_the_device(make, on):
    assert chosen(make()) == ("auto", "auto")
    on(native=True)
    assert chosen(settled(make())) == ("bfloat16", "bfloat16")
    assert multiplied_in(make()) == ("bfloat16", "bfloat16")
    assert chosen(settled(make(training={"precision": "float32"}))) == ("float32", "bfloat16")
    assert chosen(settled(make(model={"dtype": "float16"}))) == ("float32", "model")  # its own
    on(native=False)
    assert chosen(settled(make())) == ("float32", "model")
    assert multiplied_in(make()) == ("float32", "float32")
    assert chosen(settled(make(run={"decode_dtype": "bfloat16"}))) == ("float32", "bfloat16")
    assert multiplied_in(make(model={"dtype": "bfloat16"})) == ("bfloat16", "bfloat16")  # whatever is asked for
    on(native=True)
    begun = make(training={"precision": "float32"}, run={"decode_dtype": "model"})
    assert chosen(settled(make(), begun)) == ("float32", "model")
    assert chosen(settled(make(training={"precision": "bfloat16"}), begun)) == ("bfloat16", "model")


def test_a_run_keeps_what_it_began_with_and_says_so_on_another_device(make, on, capsys):
    quick = partial(make, evaluation={"uploads": 0, "attacks": False})
    on(native=True)
    folder = run(quick(method={"rounds": 1})).folder
    assert written(folder) == ("bfloat16", "bfloat16")
    environment = json.loads((folder / "environment.json").read_text())
    assert (environment["training_precision"], environment["writing_precision"]) == ("bfloat16", "bfloat16")
    assert "bfloat16 in training, bfloat16 in writing" in (folder / "report.html").read_text()
    on(native=False)
    capsys.readouterr()
    run(quick(method={"rounds": 2}), resume=True)
    assert written(folder) == ("bfloat16", "bfloat16")
    [event] = [event for event in read(folder).resumed[-1].events if "bfloat16" in event]
    assert "training.precision" in event and "run.decode_dtype" in event
    assert event in capsys.readouterr().err
    run(quick(method={"rounds": 3}), resume=True)  # the same device once more is no event
    assert [len(one.events) for one in read(folder).resumed] == [2, 1]
    run(quick(method={"rounds": 4}, training={"precision": "float32"}, run={"decode_dtype": "model"}), resume=True)
    assert written(folder) == ("float32", "model")
    assert set(read(folder).resumed[-1].changed) == {"method.rounds", "training.precision", "run.decode_dtype"}


def test_who_asks_for_bfloat16_where_it_is_slow_is_warned_once(make, on, monkeypatch, capsys):
    tries = []
    monkeypatch.setattr(precision, "slowdown", lambda device: tries.append(device.type) or 14.2)
    asked = {"training": {"precision": "bfloat16"}, "model": {"dtype": "bfloat16"}}
    on(native=True)
    assert slow(make(**asked)) is None
    on(native=False)
    assert slow(settled(make())) is None and not tries
    warning = slow(make(**asked))
    assert warning.startswith("training.precision and model.dtype:") and "14.2 times" in warning and tries == ["cpu"]
    assert any("14.2 times" in note for note in dry_run(make(**asked)).notes)
    capsys.readouterr()
    monkeypatch.setattr(ModelSpec, "bank", property(lambda spec: 1 / 0))  # far enough
    with pytest.raises(ZeroDivisionError):
        run(make(**asked))
    assert capsys.readouterr().err.count("14.2 times") == 1
    assert slow(make(**asked | {"model": {"device": "cuda"}})) is None  # there is none to try
    monkeypatch.setattr(precision, "slowdown", lambda device: 1.1)
    assert slow(make(**asked)) is None


def test_time_is_measured_in_the_precision_that_is_used(make, on, monkeypatch):
    seen = []
    real = loop.Step.forward

    def forward(self, *arguments):
        seen.append(self.training.precision)
        return real(self, *arguments)

    monkeypatch.setattr(loop.Step, "forward", forward)
    for native in (True, False):
        on(native=native)
        planned = dry_run(make())
        assert chosen(planned.experiment)[0] == ("bfloat16" if native else "float32")
        timing(planned)
    assert set(seen) == {"bfloat16", "float32"} and seen == sorted(seen)
