"""Reading single files, and what is told of a damaged one."""

import pytest

from murmura.errors import CheckpointError
from murmura.runs import files
from murmura.runs.schema import Exclusions


def test_a_file_that_is_missing_says_nothing(tmp_path):
    assert (
        files.text(tmp_path / "a") is files.value(tmp_path / "a", Exclusions) is files.rows(tmp_path / "a", int) is None
    )
    assert list(files.lines(tmp_path / "a")) == []


def test_a_value_has_all_its_fields_of_their_types(tmp_path):
    path = tmp_path / "data.json"
    path.write_text('{"bad": 1, "overlap": 2, "heldout": 3,\n "train": 4}')
    assert files.value(path, Exclusions) == Exclusions(1, 2, 3, 4)
    for text, message in (
        ('{"bad": 1, "overlap": 2, "train": 4}', r"data\.json: 'heldout' is missing"),
        (
            '{"bad": "one", "overlap": 2, "heldout": 3, "train": 4}',
            r"data\.json: 'bad': Input should be a valid integer",
        ),
        ('{"bad": 1,\n "overlap": }', r"data\.json, line 2: not valid JSON"),
        ("[" * 3000 + "]" * 3000, r"data\.json: not valid JSON"),
        ('{"bad": NaN}', r"data\.json: not valid JSON \(NaN is no number of JSON\)"),
    ):
        path.write_text(text)
        with pytest.raises(CheckpointError, match=message) as error:
            files.value(path, Exclusions)
        assert error.value.fix == files.REPAIR


def test_a_line_may_hold_what_unicode_calls_the_end_of_one(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"event": "a\x85b\u2028c"}\n\n{"round": 1}\n', encoding="utf-8")
    assert [(where.rpartition(" ")[2], row) for where, row in files.lines(path)] == [
        ("1", {"event": "a\x85b\u2028c"}),
        ("3", {"round": 1}),
    ]
