"""What a run of PrE-Text leaves is read as it was written, or refused."""

import json

import pytest

from murmura.errors import CheckpointError
from murmura.runs import read
from murmura.runs.names import EVOLUTION, OUTCOMES
from tests.report.runs import write_run
from tests.runs.outcomes import POINTS, ROUNDS, leave


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
