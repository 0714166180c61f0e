"""What is out of all proportion is said before the run, with the options that make it smaller; nothing else is."""

import pytest

from murmura.experiment.forecast import proportions
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.proportions import of_time
from murmura.experiment.forecast.rounds import ForeseenRound
from murmura.experiment.forecast.timing import Timing
from murmura.federation.forecast import Work
from murmura.federation.traits import Traits

WORDS = (
    "training.lr",
    "server.lr",
    "server_lr",
    "travel in a round",
    "lora.rank =",
    "more than the base",
    "of memory are needed",
)


def told(experiment):
    return [note for note in dry_run(experiment).notes if any(word in note for word in WORDS)]


def test_an_ordinary_run_is_in_proportion(make):
    assert told(make()) == []


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"training": {"lr": 0.2}}, ["training.lr = 0.2: with AdamW"]),
        ({"training": {"lr": 0.05}}, []),
        ({"training": {"lr": 0.05}, "model": {"trainable": "all"}}, ["training.lr = 0.05: with AdamW"]),
        ({"training": {"lr": 5.0, "optimizer": "sgd"}}, []),
        ({"training": {"lr": 500.0, "optimizer": "sgd"}}, ["training.lr = 500: with SGD"]),
        ({"training": {"lr": 1e-9, "lr_min": 0.0}}, ["training.lr = 1e-09: so small"]),
        ({"training": {"lr": 0.01, "weight_decay": 200.0}}, ["training.weight_decay = 2"]),
        ({"aggregation": {"server": {"kind": "fedadam", "lr": 5.0}}}, ["aggregation.server.lr = 5: 5,000 times"]),
        ({"method": {"name": "dpfedavg", "server_lr": 500.0}}, ["method.server_lr = 500: 500 times"]),
        ({"lora": {"rank": 512}}, ["more than the base", "lora.rank = 512 is more than the rank of a layer"]),
    ],
)
def test_rates_and_ranks_that_nobody_means(make, sections, words):
    found = told(make(**sections))
    assert len(found) == len(words)
    assert all(word in note for word, note in zip(words, found, strict=True)), found


@pytest.mark.parametrize("trainable", ["adapter", "all"])
def test_what_travels_in_a_round_and_what_has_less_travel(make, trainable):
    experiment = make(model={"trainable": trainable})
    plain = dry_run(experiment)

    def notes(bytes_down):
        rounds = [ForeseenRound(2, 1, 10, 10), ForeseenRound(4, 1, bytes_down, 10)]
        return proportions.proportions(experiment, Plain(), rounds, plain.model, plain.memory)

    assert notes(10**9) == []
    [note] = notes(36_900_000_000 - 10)
    assert note.startswith("36.9 GB travel in a round, 9.22 GB for each of 4 sites: 49 min 12 s on a line")
    assert ("lora.rank (now 2)" in note) == (trainable == "adapter")
    assert ("model.trainable" in note) == (trainable == "all")
    assert "method.sites_per_round (now all)" in note


class Plain:
    """A method of which only is known that it trains."""

    traits = Traits(label="Plain")


def test_more_memory_than_there_is(make, monkeypatch):
    experiment = make(model={"device": "cpu"})
    needed = dry_run(experiment).memory.total
    for there, expected in ((needed, 0), (needed - 1, 1), (None, 0)):
        monkeypatch.setattr(proportions, "_there_is", lambda device, there=there: there)
        assert len(told(experiment)) == expected
    monkeypatch.undo()
    assert proportions._there_is("cpu") > 2**28 and proportions._there_is("mps") is None


def test_measuring_that_takes_longer_than_all_else(make):
    experiment = make(evaluation={"every": 2})

    def told(rest, rounds, **measured):
        parts = [(Work("", "measuring", 1, None, option=f"evaluation.{one}"), took) for one, took in measured.items()]
        return of_time(experiment, Timing([(Work("", "training", 1, None), rest), *parts]), rounds)

    [note] = told(100.0, 9, sample=400.0, every=100.0, choices=0.0)
    assert note.startswith("Measuring takes 5.0 times as long as all else: 6 min 40 s by evaluation.sample and 1 min")
    assert "raise evaluation.every (now 2, of 9 rounds)" in note and "choices" not in note
    assert "evaluation.every" not in told(5.0, 2, sample=500.0)[0]
    assert told(501.0, 9, sample=500.0) == told(5.0, 9, sample=59.0) == []
    assert "longer than all else: " in told(0.0, 9, sample=500.0)[0]
