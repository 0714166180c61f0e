"""The hub, without the hub: what an id is, and what a user without a network reads."""

import datasets
import httpx
import pytest

from murmura.data.hub import is_hub_id
from murmura.data.loading import load_records, scan
from murmura.data.records import Instruction, Labelled
from murmura.errors import DataError


@pytest.fixture
def hub(monkeypatch):
    """A hub that holds one data set, and remembers what was asked of it."""
    asked = []
    held = datasets.Dataset.from_list(
        [
            {"question": "2+2?", "answer": "4", "level": 1},
            {"question": "3+3?", "answer": None, "level": 1},
            {"question": "4+4?", "answer": "8", "level": 2},
        ]
    )

    def load_dataset(name, config=None, *, split):
        asked.append((name, config, split))
        if split not in ("train", "test"):
            raise ValueError(f"Unknown split \"{split}\". Should be one of ['train', 'test'].")
        return held

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("lavita/AlpaCare-MedInstruct-52k", True),
        ("openai/gsm8k:main", True),
        ("some/set.v2", True),
        ("clinic.jsonl", False),
        ("nowhere/clinic.jsonl", False),
        ("imdb", False),
        ("a/b/c", False),
        ("./clinic", False),
        ("../clinic", False),
        ("/data/clinic", False),
        ("here/absent", False),
        ("here/present", False),
    ],
)
def test_what_is_taken_for_a_hub_id(source, expected, tmp_path, monkeypatch):
    (tmp_path / "here" / "present").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert is_hub_id(source) is expected


FIELDS = {"instruction": "question", "output": "answer"}


def test_rows_come_with_split_and_configuration(hub):
    loaded = scan("openai/gsm8k:main", Instruction, fields=FIELDS, site_column="level", split="test")
    assert hub == [("openai/gsm8k", "main", "test")]
    assert loaded.records == [Instruction("2+2?", output="4"), Instruction("4+4?", output="8")]
    assert loaded.sites == ["1", "2"]
    assert [str(bad.where) for bad in loaded.bad] == ["openai/gsm8k:main (test): row 2"]


def test_a_bad_row_is_named_by_set_split_and_number(hub):
    with pytest.raises(DataError, match=r"openai/gsm8k \(train\): row 2: record without 'answer'.*--skip-bad"):
        load_records("openai/gsm8k", Instruction, fields=FIELDS)


def test_a_missing_column_and_a_missing_split(hub):
    with pytest.raises(DataError, match=r"openai/gsm8k \(train\): no column 'levl'.*Did you mean 'level'"):
        load_records("openai/gsm8k", Labelled, fields={"text": "question", "label": "levl"})
    with pytest.raises(DataError, match=r"split 'dev' \(Unknown split \"dev\"\. Should be one of"):
        load_records("openai/gsm8k", Instruction, fields=FIELDS, split="dev")


@pytest.mark.parametrize("kind", [datasets.exceptions.DatasetGenerationError, httpx.ProxyError])
def test_whatever_goes_wrong_with_it_is_told(hub, monkeypatch, kind):
    def load_dataset(*_, **__):
        raise kind("403 Forbidden")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(DataError, match=r"cannot be loaded, split 'train' \(403 Forbidden\)"):
        load_records("openai/gsm8k", Instruction, fields=FIELDS)


def test_offline_the_message_says_what_to_do(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(DataError) as error:
        load_records("lavita/AlpaCare-MedInstruct-52k", Instruction)
    message = str(error.value)
    assert message.startswith("lavita/AlpaCare-MedInstruct-52k: there is no such path here")
    assert "hf download --repo-type dataset lavita/AlpaCare-MedInstruct-52k" in message
    assert "give the path" in message
