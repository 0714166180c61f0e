"""Chats are no records, and what is advised makes records of them."""

import re
import shutil
import subprocess

import pytest

from murmura.data.loading import load_records
from murmura.data.records import Instruction, Labelled, Preference
from murmura.errors import DataError

ROLES = [{"role": role, "content": text} for role, text in (("system", "s"), ("user", "a"), ("assistant", "b"))]
SHARED = [{"from": who, "value": text} for who, text in (("human", "x"), ("gpt", "y"), ("human", "a"), ("gpt", "b"))]
WORSE = [*ROLES[:-1], {"role": "assistant", "content": "c"}]


def advised(path, kind, fields=None):
    """What a refusal says to run."""
    with pytest.raises(DataError) as error:
        load_records(path, kind, fields=fields)
    [told] = re.findall(r"jq -c '(.*?)' OLD > NEW", error.value.fix)
    assert "last question and answer" in error.value.fix
    return told


def followed(path, kind, fields=None):
    """The records that are made so."""
    told = advised(path, kind, fields)
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    made = path.with_name("made.jsonl")
    made.write_bytes(subprocess.run(["jq", "-c", told, path], check=True, capture_output=True).stdout)
    return load_records(made, kind).records


@pytest.mark.parametrize("row", [{"messages": ROLES}, {"id": 1, "conversations": SHARED}])
def test_of_a_column_of_chats_the_last_question_and_answer_make_a_record(jsonl, row):
    assert followed(jsonl(row, row), Instruction) == [Instruction("a", "", "b")] * 2


def test_a_column_of_chats_that_was_named_for_a_field_is_told_as_such(jsonl):
    path = jsonl({"id": "1", "my turns": ROLES})
    assert followed(path, Instruction, {"instruction": "id", "output": "my turns"}) == [Instruction("a", "", "b")]


@pytest.mark.parametrize(
    "row",
    [
        {"chosen": ROLES, "rejected": WORSE},
        {"prompt": "a", "chosen": ROLES, "rejected": WORSE},
        {"prompt": ROLES[:2], "chosen": ROLES[2:], "rejected": WORSE[2:]},
    ],
)
def test_of_preferences_between_chats_the_last_answers_count(jsonl, row):
    assert followed(jsonl(row), Preference) == [Preference("a", "b", "c")]


def test_what_is_no_chat_is_told_nothing_of_them(jsonl):
    rows = [({"output": ["b"]}, Instruction), ({"output": []}, Instruction), ({"messages": ROLES}, Labelled)]
    for row, kind in rows:
        with pytest.raises(DataError) as error:
            load_records(jsonl({"instruction": "a"} | row), kind)
        assert "jq" not in str(error.value)
