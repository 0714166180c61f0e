"""What a run says of the public records that sites were given."""

import json
import math

import pytest

from murmura.errors import CheckpointError
from murmura.runs import RunFolder, read
from murmura.runs.augment import Example, Given, Guarantee, Point, ScoreHistogram, Selection, Similarity
from murmura.runs.names import AUGMENT
from tests.report.runs import write_run

SELECTION = Selection(
    1,
    "FedDCA",
    {
        "a": Given(3, 0, 300, {"code": 2, "math": 1}, Similarity(0.5, 0.25, 0.75)),
        "b": Given(1, 2, 100, {"math": 1}, Similarity(0.25, 0.25, 0.25)),
    },
    records=3,
    clusters=4,
    scored_by="dot product",
    domain="code",
    coverage=0.75,
    examples=(Example("a", "code", 0.75, "Sort a list.", "nearest to centre 2"),),
    points=(Point(0.5, -1.25, "fetched", "code"), Point(0.0, 2.0, "pool", "code")),
    histogram=ScoreHistogram((0.0, 0.5, 1.0), {"code": (1, 1), "math": (2, 0)}),
    guarantee=Guarantee(math.inf, 1e-5, "zero-out", "the plan"),
    centres=8,
    alone=1,
)


def test_selections_are_read_as_they_were_written(tmp_path):
    folder = RunFolder(write_run(tmp_path / "a"))
    assert read(folder.path).augment == ()
    folder.write(AUGMENT, [SELECTION, SELECTION])
    assert read(folder.path).augment == (SELECTION, SELECTION)


def test_a_damaged_one_is_named(tmp_path):
    folder = RunFolder(write_run(tmp_path / "a"))
    (folder.path / "augment.json").write_text(json.dumps([{"round": 1, "sites": {}}]))
    with pytest.raises(CheckpointError, match="'strategy' is missing") as caught:
        read(folder.path)
    assert "augment.json, entry 1" in str(caught.value)


def test_sums_over_sites():
    assert SELECTION.rows == 4
    assert SELECTION.by_domain == {"code": 2, "math": 2}
    assert SELECTION.mean_similarity == (3 * 0.5 + 0.25) / 4
    assert Selection(1, "random", {"a": Given(2, 0, 9, {"code": 2})}).mean_similarity is None
