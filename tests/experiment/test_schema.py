"""The JSON schema says what the sections say, held against a validator of its own."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from murmura.errors import ConfigError
from murmura.experiment.config import Experiment
from murmura.experiment.names import names
from murmura.experiment.schema import schema
from murmura.experiment.starter import starter

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.toml"))
SCHEMA = schema()


def errors(table: dict) -> list[str]:
    return [error.json_path for error in Draft202012Validator(SCHEMA).iter_errors(table)]


def test_it_is_a_schema():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid(path):
    assert errors(tomllib.loads(path.read_text())) == []


@pytest.mark.parametrize("every", [False, True], ids=["short", "all"])
@pytest.mark.parametrize("name", sorted(names()))
def test_starters_are_valid(name, every):
    assert errors(tomllib.loads(starter(name, every=every))) == []


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"lora": {"rnak": 8}}, "$.lora"),
        ({"lora": {"rank": 0}}, "$.lora.rank"),
        ({"training": {"precision": "float8"}}, "$.training.precision"),
        ({"method": {"name": "fedit", "beta": 0.5}}, "$.method"),
        ({"method": {"name": "fedavg2"}}, "$.method"),
        ({"method": {}}, "$.method"),
    ],
)
def test_what_a_run_refuses_is_invalid(change, where):
    assert errors({"data": {"train": "a.jsonl"}, "method": {"name": "fedit"}} | change) == [where]


@pytest.mark.parametrize(("cache", "valid"), [(0, True), ("500MB", True), (-1, False), (0.5, False), (True, False)])
def test_a_size_is_a_number_or_a_text_with_its_unit(cache, valid):
    data = {"train": "a.jsonl", "heldout_records": 4}
    table = {"data": data, "method": {"name": "fedit"}, "run": {"cache_bytes": cache}}
    assert (errors(table) == []) is valid
    if valid:
        assert Experiment.of(table, where="here").run.cache_bytes == {"500MB": 500_000_000}.get(cache, cache)
    else:
        with pytest.raises(ConfigError, match="cache_bytes"):
            Experiment.of(table, where="here")


def test_every_option_says_what_it_means():
    nameless = [
        f"{name}.{option}"
        for name, section in SCHEMA["$defs"].items()
        for option, value in section.get("properties", {}).items()
        if option != "name" and not (value.get("description") or "$ref" in value or "anyOf" in value)
    ]
    assert nameless == []
