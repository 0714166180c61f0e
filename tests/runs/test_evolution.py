"""What a run of PrE-Text leaves is read as it was written, or refused."""

import json

import pytest

from murmura.errors import CheckpointError
from murmura.runs import RunFolder, read
from murmura.runs.evolution import CurvePoint, Generation
from murmura.runs.names import CURVE, EVOLUTION, OUTCOMES
from tests.report.runs import write_run

ROUNDS = (
    Generation(("bees fly", "trains stop", "soup boils"), (21.5, -3.25, 4.0), (2, 0, 1)),
    Generation(("bees fly far", "bees sleep", "soup is cold"), (12.5, 8.0, -1.5), (2, 1, 0)),
)
POINTS = (CurvePoint(24, 5.5, 0.25), CurvePoint(96, 5.0, 0.375))


def leave(folder, rounds=ROUNDS, points=POINTS):
    RunFolder(folder).write_outcomes({EVOLUTION: rounds, CURVE: points})
    return folder


def test_it_is_read_as_it_was_written(tmp_path):
    run = read(leave(write_run(tmp_path / "a", kind="document")))
    assert (run.evolution, run.curve) == (ROUNDS, POINTS)
    without = read(write_run(tmp_path / "b"))
    assert (without.evolution, without.curve) == ((), ())


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"candidates": ["a", "b"], "votes": [1.0], "drawn": [0, 2]}, "for each of them votes"),
        ({"candidates": ["a"], "votes": ["many"], "drawn": [1]}, "'votes.0'"),
        ({"candidates": ["a"], "votes": [1.0]}, "'drawn' is missing"),
    ],
)
def test_a_round_that_cannot_be_is_refused_with_its_place(tmp_path, entry, words):
    folder = leave(write_run(tmp_path / "a"))
    good = {"candidates": ["a"], "votes": [1.0], "drawn": [1]}
    (folder / OUTCOMES / EVOLUTION).write_text(json.dumps([good, entry]))
    with pytest.raises(CheckpointError, match=r"evolution\.json, entry 2") as refused:
        read(folder)
    assert words in str(refused.value)
