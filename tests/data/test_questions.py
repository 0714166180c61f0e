"""Questions of benchmarks, which are checked as they are read: what is bad is named by file and line."""

import pyarrow
import pytest
from pyarrow import parquet

from murmura.data.layout import BadValueError
from murmura.data.loading import load_records
from murmura.data.records import Instruction, Program
from murmura.errors import DataError

RENAMING = "evaluation.benchmarks.mine.fields = {{{field} = '{column}'}}"


def marked(record, columns):
    if "####" not in record.output:
        raise BadValueError(f"'{columns['output']}' has no mark", "Mark it")
    return Instruction(record.instruction.upper(), record.input, record.output)


def load(path, kind=Instruction, check=marked, **options):
    return load_records(path, kind, renaming=RENAMING, check=check, what="question", **options)


def test_questions_are_as_the_check_gives_them(jsonl):
    path = jsonl({"question": "how many", "answer": "#### 1"}, {"question": "and now", "answer": "#### 2"})
    found = load(path, fields={"instruction": "question", "output": "answer"})
    assert [one.instruction for one in found.records] == ["HOW MANY", "AND NOW"]
    assert [one.number for one in found.places] == [1, 2]


def test_bad_questions_are_named_together_or_skipped(jsonl):
    good = {"instruction": "how many", "output": "#### 1"}
    path = jsonl(good, {"instruction": "how many", "output": "1"}, {"instruction": "", "output": "#### 1"})
    with pytest.raises(DataError) as caught:
        load(path)
    told = str(caught.value)
    assert "2 of 3 questions cannot be used" in told and "site.jsonl:2: 'output' has no mark" in told
    assert "site.jsonl:3: 'instruction' is empty" in told and "Mark it." in told and "--skip-bad" in told
    loaded = load(path, skip_bad=True)
    assert len(loaded.records) == 1 and [one.where.number for one in loaded.bad] == [2, 3]


def test_a_column_that_is_missing_is_told_with_how_to_name_another(tmp_path, jsonl):
    with pytest.raises(DataError, match="no column 'output'") as caught:
        load(jsonl({"instruction": "how many", "answer": "#### 1"}))
    assert "evaluation.benchmarks.mine.fields = {output = 'COLUMN'}" in str(caught.value)
    table = pyarrow.table({"question": ["how many"], "output": ["#### 1"]})
    parquet.write_table(table, tmp_path / "asked.parquet")
    with pytest.raises(DataError, match="no column 'instruction'") as caught:
        load(tmp_path / "asked.parquet")
    assert "evaluation.benchmarks.mine.fields = {instruction = 'COLUMN'}" in str(caught.value)


def test_a_program_is_read_from_the_columns_of_its_publication(jsonl):
    row = {"task_id": "Own/0", "prompt": "def f():\n", "canonical_solution": "    return 1\n", "entry_point": "f"}
    row["test"] = "def check(candidate):\n    assert candidate() == 1\n"
    [found] = load(jsonl(row), Program, lambda record, columns: record).records
    assert found == Program(row["prompt"], row["test"], "f")
