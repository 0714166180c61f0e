"""Options of LP-FL: what a file may leave out, and what makes no sense is refused with what to change."""

import pytest

from murmura.errors import ConfigError
from murmura.methods.lpfl.config import LPFLConfig

TWO = {"no": ["bad"], "yes": ["good"]}


def config(**given):
    return LPFLConfig.parse(given, "my.toml")


def test_a_file_may_leave_out_everything():
    default = config()
    assert (default.rounds, default.events, default.share, default.gate) == (5, 4, 0.25, 0.7)
    assert list(default.verbaliser) == ["negative", "positive"]  # the order of labels everywhere


@pytest.mark.parametrize(
    ("given", "events", "share"),
    [
        ({"rounds": 3}, 2, 1 / 2),
        ({"rounds": 3, "chunk": 0.1}, 2, 0.1),
        ({"rounds": 2}, 1, 1),
        ({"annotate": False}, 0, 1 / 4),
        ({"annotate": False, "rounds": 1}, 0, 1),
    ],
)
def test_events_and_their_share(given, events, share):
    assert (config(**given).events, config(**given).share) == (events, share)


@pytest.mark.parametrize(
    ("given", "validates"),
    [
        ({}, True),
        ({"annotate": False}, True),
        ({"annotate": False, "pattern_weights": "uniform"}, False),
        ({"annotate": False, "patterns": ["{text} {blank}"]}, False),
        ({"patterns": ["{text} {blank}"]}, True),
        ({"pattern_weights": "uniform"}, True),
        ({"pattern_weights": "uniform", "gate": 0}, False),
        ({"pattern_weights": "uniform", "rounds": 2}, False),
        ({"pattern_weights": "uniform", "rounds": 2, "force_complete": False}, True),
    ],
)
def test_who_needs_a_validation_set(given, validates):
    assert config(**given).validates is validates
    assert config(**given, validation_records=10).validation_records == 10  # so that all arms are measured alike


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"patterns": []}, "'patterns' has none; one is \"{text} All in all, it was {blank}\""),
        ({"patterns": ["It was {blank}."]}, "pattern 'It was {blank}.' has {text} 0 times; write it once"),
        ({"patterns": ["{text} or {text}? {blank}"]}, "has {text} 2 times; write it once"),
        ({"patterns": ["{text}"]}, "has {blank} 0 times; write it once"),
        ({"patterns": ["{text} {blank}"] * 2}, "pattern '{text} {blank}' is there twice; remove one of them"),
        ({"patterns": ["{text} {blank}"], "sample_pattern": True}, "'sample_pattern' does nothing with one pattern"),
        ({"verbaliser": {"yes": ["good"]}}, "'verbaliser' names 1 labels; a classifier needs two or more"),
        ({"verbaliser": {**TWO, " ": ["fair"]}}, "'verbaliser' has words for an empty label"),
        ({"verbaliser": {**TWO, "maybe": []}}, "'verbaliser' has no word for label 'maybe'; give it one"),
        ({"verbaliser": {**TWO, "maybe": [" "]}}, "has an empty word for label 'maybe'; remove it"),
        ({"verbaliser": {**TWO, "maybe": ["bad"]}}, "has 'bad' for 'no' and again for 'maybe'; remove one of them"),
        ({"verbaliser": {"no": ["bad", "bad"], "yes": ["good"]}}, "has 'bad' for 'no' and again for 'no'"),
        ({"verbaliser": {"no": "bad", "yes": "good"}}, "'verbaliser.no' = 'bad'"),
        ({"verbaliser": {"a b": ["bad"], "a  b": ["good"], "yes": ["fair"]}}, "'verbaliser': two labels differ"),
        ({"labelled_share": 0}, "'labelled_share' = 0: must be greater than 0"),
        ({"labelled_share": 1.5}, "'labelled_share' = 1.5: must be less than or equal to 1"),
        ({"labelled_share": 0.1, "labelled_records": 5}, "say the same thing twice; remove one of them"),
        ({"rounds": 1}, "and there is one; set rounds = 2, or annotate = false"),
        ({"chunk": 0}, "'chunk' = 0"),
        ({"gate": 1}, "'gate' = 1: must be less than 1"),
        ({"temperature": 0}, "'temperature' = 0"),
        ({"temperature": float("inf")}, "'temperature' = inf"),
        (
            {"threshold": 0.5},
            "likeliest of 2 labels is always as probable as 'threshold' = 0.5; raise it, or remove it",
        ),
        ({"hard": True, "temperature": 2}, "'temperature' does nothing with hard labels; remove it"),
        ({"rounds": 2, "gate": 0.5}, "'gate' does nothing in 2 rounds with force_complete"),
        ({"rounds": 2, "chunk": 0.5}, "'chunk' does nothing in 2 rounds with force_complete, where all is annotated"),
        ({"rounds": 2, "threshold": 0.9}, "'threshold' does nothing in 2 rounds with force_complete"),
        ({"select": "best"}, "'select' = 'best'"),
        ({"verbalizer": TWO}, "unknown key 'verbalizer'. Did you mean 'verbaliser'?"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(ConfigError) as error:
        config(**given)
    assert message in str(error.value)


def test_a_label_is_written_as_records_are_read():
    found = config(verbaliser={" not  sure": ["bad"], "Jose\u0301": ["good"]})
    assert found.verbaliser == {"not sure": ("bad",), "Jos\u00e9": ("good",)}


@pytest.mark.parametrize(
    "given",
    [
        {"gate": 0.5, "chunk": 0.5, "force_complete": False},
        {"rounds": 2, "chunk": 0.5},
        {"hard": True, "temperature": 2},
        {"select": "balanced", "threshold": 0.5},
    ],
)
def test_the_labelled_only_baseline_is_one_switch_in_any_file(given):
    assert config(**given, annotate=False).events == 0


@pytest.mark.parametrize("rounds", [2, 3])
def test_no_gate_can_always_be_asked_for(rounds):
    assert not config(rounds=rounds, gate=0, pattern_weights="uniform").validates


def test_a_threshold_is_for_as_many_labels_as_there_are():
    three = {**TWO, "maybe": ["fair"]}
    assert config(verbaliser=three, threshold=0.5).threshold == 0.5
    with pytest.raises(ConfigError, match="likeliest of 3 labels"):
        config(verbaliser=three, threshold=0.33)
