"""What a run says of the public records that sites were given."""

import json

import pytest

from murmura.errors import CheckpointError
from murmura.runs import RunFolder, read
from murmura.runs.augment import Given, PublicSelection
from murmura.runs.names import AUGMENT
from tests.report.runs import write_run
from tests.runs.outcomes import SELECTION


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
    assert PublicSelection(1, "random", {"a": Given(2, 0, 9, {"code": 2})}).mean_similarity is None
