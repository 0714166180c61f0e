from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field, model_validator

from murmura.config import Section, Source
from murmura.data.hub import is_hub_id
from murmura.errors import ConfigError
from murmura.measure.benchmarks.config import BenchmarksConfig


class Inner(Section):
    """Options inside options."""

    width: int = Field(3, ge=1)
    """How wide."""


class Outer(Section):
    """Options."""

    name: str
    """What it is called."""
    kind: Literal["tall", "flat"] = "tall"
    source: Source | None = None
    inner: Inner = Inner()
    spare: Inner | None = None
    parts: tuple[str, ...] = Field(("a",), min_length=1)
    several: list[int] = Field([1, 2], min_length=2, max_length=3)
    rate: float | None = None
    seeds: int | list[int] = 3
    switch: bool = False


def refused(table):
    with pytest.raises(ConfigError) as caught:
        Outer.parse(table, "my.toml")
    return str(caught.value)


def test_a_section_reads_a_table_and_cannot_be_changed():
    outer = Outer.parse({"name": "x", "inner": {"width": 5}}, "my.toml")
    assert (outer.name, outer.kind, outer.inner.width, outer.spare) == ("x", "tall", 5, None)
    with pytest.raises(ValueError, match="frozen"):
        outer.name = "y"


def test_the_line_under_an_option_is_its_description():
    assert Outer.model_fields["name"].description == "What it is called."


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"nam": "x"}, "my.toml: unknown key 'nam'. Did you mean 'name'?"),
        ({"name": "x", "zzz": 1}, "unknown key 'zzz'. Valid: inner, kind, name, parts, rate, seeds, several,"),
        ({"name": "x", "inner": {"widht": 5}}, "unknown key 'inner.widht'. Did you mean 'width'?"),
        ({"name": "x", "spare": {"widht": 5}}, "unknown key 'spare.widht'. Did you mean 'width'?"),
        ({}, "my.toml: 'name' is missing. Add it."),
        ({"name": "x", "inner": {"width": "wide"}}, "'inner.width' = 'wide': must be a whole number"),
        ({"name": "x", "inner": {"width": 0}}, "'inner.width' = 0: must be greater than or equal to 1"),
        ({"name": "x", "kind": "round"}, "'kind' = 'round': must be 'tall' or 'flat'"),
        ({"name": "x", "inner": 5}, "'inner' = 5: must be a table"),
        ({"name": 5}, "'name' = 5: must be a text in quotes"),
        ({"name": "x", "parts": "query"}, "'parts' = 'query': must be a list in brackets"),
        ({"name": "x", "parts": []}, "'parts' = []: must not be empty"),
        ({"name": "x", "several": [1]}, "'several' = [1]: must have at least 2 entries"),
        ({"name": "x", "several": [1, 2, 3, 4]}, "'several' = [1, 2, 3, 4]: must have at most 3 entries"),
        ({"name": "x", "several": [1, True]}, "'several' = [1, true]: must be a number, not true or false"),
        ({"name": "x", "inner": {"width": True}}, "'inner.width' = true: must be a number, not true or false"),
        ({"name": "x", "rate": True}, "'rate' = true: must be a number, not true or false"),
        ({"name": "x", "rate": float("inf")}, "'rate' = inf: must be a finite number"),
        ({"name": "x", "rate": float("nan")}, "'rate' = nan: must be a finite number"),
        ({"name": "x", "seeds": "y"}, "'seeds' = 'y': must be a whole number"),
        ({"name": "x", "switch": "maybe"}, "'switch' = 'maybe': must be true or false"),
        ({"name": "a\0b"}, "'name' = 'a\\x00b': a NUL character cannot stand here"),
        ({"name": "x", "parts": ["a", "\0"]}, "a NUL character cannot stand here"),
    ],
)
def test_what_is_wrong_is_named(table, message):
    assert message in refused(table)


class Idle(Section):
    """Options, some of which do nothing."""

    table: dict[str, str] = Field(default_factory=dict)
    width: int = 3
    height: int | None = None

    @model_validator(mode="after")
    def _options_that_do_nothing(self):
        self.refuse_idle(["table", "width", "height"], "in a test")
        return self


def test_options_that_do_nothing_are_refused_unless_at_their_default():
    assert Idle.parse({"table": {}, "width": 3}, "my.toml") == Idle()
    for option, value in (("table", {"a": "b"}), ("width", 4), ("height", 1)):
        with pytest.raises(ConfigError, match=f"my.toml: .*'{option}' does nothing in a test; remove it"):
            Idle.parse({option: value}, "my.toml")


def test_a_message_about_several_options_bears_no_name_of_ours():
    with pytest.raises(ConfigError, match=r"^my.toml: 'width' does nothing in a test; remove it, or set it back to 3$"):
        Idle.parse({"width": 4}, "my.toml")


def test_paths_are_relative_to_the_file_that_names_them(tmp_path):
    (tmp_path / "here.jsonl").write_text("")

    def source(text):
        return Outer.parse({"name": "x", "source": text}, "my.toml", base=tmp_path).source

    assert source("here.jsonl") == str((tmp_path / "here.jsonl").resolve())
    assert source("owner/name") == "owner/name"  # not on this disk: left as it is
    absolute = str(Path("/", "somewhere", "else.jsonl"))
    assert source(absolute) == absolute
    assert Outer.parse({"name": "x", "source": "here.jsonl"}, "my.toml").source == "here.jsonl"


def test_what_is_missing_is_looked_for_beside_the_file_that_names_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp" / "data").mkdir(parents=True)
    (tmp_path / "here").mkdir()

    def source(text):
        return Outer.parse({"name": "x", "source": text}, "exp/my.toml", base=Path("exp")).source

    assert source("sitez") == str(tmp_path / "exp" / "sitez")  # as if it were there: it may come, or have gone
    assert source("data/sitez") == str(tmp_path / "exp" / "data" / "sitez")
    assert not is_hub_id(source("data/sitez"))  # for which a hub would be asked
    for kept in ("owner/name", "owner/name:part", "here", "https://host/x.jsonl", "/nowhere/x.jsonl"):
        assert source(kept) == kept
    tasks = BenchmarksConfig.parse({"tasks": ["mmlu", "data"]}, "exp/my.toml", base=Path("exp"))
    assert tasks.tasks == ["mmlu", str(tmp_path / "exp" / "data")]
    assert [value for _, value in tasks.sources()] == tasks.tasks
