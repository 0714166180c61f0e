"""Every command, table of options and piece of Python that README and docs show is tried, or says why it is not."""

import argparse
import ast
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from collections import Counter
from importlib.metadata import PathDistribution

import click
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from murmura.cli import app
from murmura.compare.arms import load
from murmura.errors import ConfigError
from murmura.experiment.config import Experiment, override, parse_override
from murmura.experiment.site_file import SiteFile
from murmura.federation.engines import ENGINES
from murmura.methods import METHODS, section
from murmura.models import ALIASES
from murmura.models.wheel import place_of
from tests.compare.in_process import runs_in_this_process
from tests.pages import PAGES, ROOT, snippets

ALL = list(snippets())
KINDS = ("sh", "console", "toml", "python", "text")
PROGRAMS = ("murmura", "make", "python")
PLUGIN = ROOT / "tests" / "plugin"
FILE = re.compile(r"\.(py|jsonl?|toml|html|md|gguf)$")


def of(*kinds):
    return [one for one in ALL if one.kind in kinds]


def test_there_are_snippets_of_every_kind():
    counts = Counter(one.kind for one in ALL)
    assert all(counts[kind] for kind in KINDS if kind != "text") and counts["words"] > 500


def test_every_block_says_what_it_is_and_every_mark_stands_before_one():
    assert [str(one) for one in ALL if one.kind not in (*KINDS, "words")] == []
    marks = sum(len(re.findall(r"^ *<!-- not run", page.read_text(encoding="utf-8"), re.M)) for page in PAGES)
    assert marks == sum(one.why_not is not None for one in ALL)


# Commands


def typed(line):
    """The words of a command, without a comment and without where its output goes."""
    words = shlex.split(line.replace("…", "..."), comments=True)
    ends = [place for place, word in enumerate(words) if word in (">", "|")]
    return words[: ends[0]] if ends else words


def commands_in(snippet):
    """The commands of a block, as lists of words."""
    lines = snippet.text.replace("\\\n", " ").splitlines()
    if snippet.kind == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return [words for words in map(typed, lines) if words]


MURMURA = get_command(app)


def command_of(words):
    """The command, or group of commands, that words begin with, its context, and the words that are left."""
    command, context, rest = MURMURA, click.Context(MURMURA), words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        inner = command.get_command(context, rest[0])
        assert inner, f"no such command: {' '.join(words)}"
        command, context, rest = inner, click.Context(inner, parent=context), rest[1:]
    return command, context, rest


def try_command(words):
    """Have a command take its words, as far as before it does anything."""
    program, *arguments = words
    if program == "make":
        makefile = (ROOT / "Makefile").read_text()
        for one in arguments:
            name, is_set, _ = one.partition("=")
            assert re.search(rf"^{name} \?=" if is_set else rf"^{name}:", makefile, re.M), words
    elif program == "python":
        try_program(*arguments)
    else:
        command, context, rest = command_of(words)
        assert not isinstance(command, click.Group), f"a group of commands alone: {' '.join(words)}"
        taken = command.make_context(context.info_name, rest, parent=context.parent).params
        changes = dict(parse_override(one) for one in taken.get("override") or ())
        if changes:
            loaded({}, changes)


class Taken(Exception):
    """A program has taken its arguments."""


def try_program(file, *arguments):
    """Have a program of this repository take its arguments, and do nothing after that."""
    path = (ROOT / file).resolve()
    assert path.is_file() and path.relative_to(ROOT).parts[0] in ("bench", "studies"), file
    parse = argparse.ArgumentParser.parse_args

    def parsed(self, given=None, into=None):
        parse(self, given, into)
        raise Taken

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Taken):
        patch.setattr(argparse.ArgumentParser, "parse_args", parsed)
        patch.setattr(sys, "argv", [str(path), *arguments])
        patch.syspath_prepend(path.parent)
        runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("snippet", of("sh", "console"), ids=str)
def test_commands_are_ones_that_there_are(snippet):
    for words in commands_in(snippet):
        if words[0] in PROGRAMS:
            try_command(words)
        else:
            assert snippet.why_not, f"{words[0]} is not tried here: say why in <!-- not run: ... -->"


@pytest.mark.parametrize("snippet", of("console"), ids=str)
def test_a_console_shows_what_is_printed(snippet):
    if snippet.why_not:
        pytest.skip(snippet.why_not)
    shown = ""
    for words in commands_in(snippet):
        line = next(line for line in snippet.text.splitlines() if line.startswith("$ ") and typed(line[2:]) == words)
        shown += f"{line}\n{CliRunner().invoke(app, words[1:]).output}"
    assert shown == snippet.text


def test_commands_within_sentences_are_ones_that_there_are():
    """Often without what they are about: `murmura audit`."""
    for snippet in of("words"):
        program, *rest = typed(snippet.text) or [""]
        if program == "murmura" and rest:
            command, context, rest = command_of([program, *rest])
            command.make_parser(context).parse_args(args=rest)
        elif program == "make" and rest:
            try_command([program, *rest])


# What is not there is noticed


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("murmura rnu my.toml", "no such command: murmura rnu my.toml"),
        ("murmura run my.toml --dry", "No such option"),
        ("murmura run", "MissingParameter"),
        ("murmura compare my.toml --jobs many", "not a valid integer"),
        ("murmura run my.toml --set method.bta=0.7", "unknown key 'bta'"),
        ("murmura run my.toml --set method.beta=most", "must be a number"),
        ("make dmeo", "dmeo"),
        ("python studies/lpfl.py --hole", "SystemExit"),
        ("python studies/lfpl.py", "lfpl"),
    ],
)
def test_a_command_that_is_wrong_is_noticed(line, error):
    with pytest.raises((AssertionError, click.ClickException, ConfigError, SystemExit)) as caught:
        try_command(typed(line))
    assert error in f"{caught.type.__name__} {caught.value}"


@pytest.mark.parametrize(
    "text", ["[lora]\nrnak = 8", '[method]\nname = "fedit"\nbeta = 1', "[nowhere]\na = 1", '[lora]\nrank = "high"']
)
def test_a_table_that_is_wrong_is_noticed(text):
    with pytest.raises(ConfigError):
        loaded(tomllib.loads(text))


# Options


def loaded(tables, changes=None):
    """An experiment of these tables and changes, beside the least that one has: of a method and an engine that take it.

    Raises:
        ConfigError: none does.
    """
    changes, own, refused = changes or {}, tables.get("method", {}), None
    asked = {*own, *(key.split(".")[1] for key in changes if key.startswith("method."))}
    named = changes.get("method.name", own.get("name"))
    for name in [named] if named else [one for one in METHODS if asked <= set(section(one).model_fields)] or METHODS:
        for engine in ENGINES:
            found = {**tables, "method": {"name": name} | own, "run": {"engine": engine} | tables.get("run", {})}
            found["data"] = {"train": "sites", "heldout": "heldout.jsonl"} | tables.get("data", {})
            try:
                for key, value in changes.items():
                    override(found, key, value, f"--set {key}")
                return Experiment.of(found)
            except ConfigError as error:
                refused = refused or error
    raise refused


def entry_points(groups):
    """Those of the package that the tests install are there, and can be loaded."""
    brought = PathDistribution(PLUGIN / "halves-1.0.dist-info").entry_points
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PLUGIN)
        for group, entries in groups.items():
            for name, value in entries.items():
                [one] = brought.select(group=group, name=name)
                assert one.value == value and one.load()


@pytest.mark.parametrize("snippet", of("toml"), ids=str)
def test_tables_of_options_are_taken_as_they_stand(snippet, tmp_path):
    tables = tomllib.loads(snippet.text)
    if "project" in tables:
        entry_points(tables["project"].pop("entry-points"))
        assert tables == {"project": {}}
    elif "compare" in tables:
        (tmp_path / "my.toml").write_text(snippet.text + BASE, encoding="utf-8")
        assert load([tmp_path / "my.toml"])[1]
    elif "federation" in tables:
        assert SiteFile.parse(tables, str(snippet))
    else:
        assert loaded(tables)


BASE = """
[data]
train = "sites"
heldout = "heldout.jsonl"

[method]
name = "fedit"
"""
"""What the table of a comparison stands beside."""


def keys():
    """Every option that an experiment can have, and every table, by its full name."""
    found = set(Experiment.keys()) | {key for one in METHODS for key in section(one).keys("method.")}
    return found | {key.rpartition(".")[0] for key in found}


def test_options_within_sentences_are_ones_that_there_are():
    known, found = keys(), set()
    for snippet in of("words"):
        key = re.match(r"(\w+)(\.\w+)+(?![\w-]|\.\w)", snippet.text)  # one with a hyphen is another program's
        if key and key[1] in Experiment.model_fields and not FILE.search(key[0]):
            found.add((str(snippet), key[0]))
    assert len(found) > 100
    assert sorted(one for one in found if one[1] not in known) == []


# Python


SHORT = {
    "heldout_records": 8,
    "sites.records": 4,
    "sample": 1,
    "instruction_attempts": 1,
    "example_attempts": 1,
    "instruction_tokens": 8,
    "example_tokens": 8,
}
"""Of the experiments that snippets run: less of everything."""


@pytest.fixture
def workplace(llama_folder, tmp_path, monkeypatch):
    """A folder with experiments that are shorter, a tiny model in the place of the one they name, and no network."""
    monkeypatch.setenv("MURMURA_CACHE", str(tmp_path / "cache"))
    shutil.copytree(llama_folder, place_of("smollm2-135m", ALIASES["smollm2-135m"].wheel))
    shutil.copytree(ROOT / "examples" / "clinic", tmp_path / "examples" / "clinic")
    for file in (tmp_path / "examples" / "clinic").glob("*.toml"):
        text = file.read_text(encoding="utf-8")
        for key, value in SHORT.items():
            text = re.sub(rf"(?m)^{re.escape(key)} = \d+", f"{key} = {value}", text)
        file.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(PLUGIN)
    monkeypatch.chdir(tmp_path)
    runs_in_this_process(monkeypatch)
    return tmp_path


@pytest.mark.parametrize("snippet", of("python"), ids=str)
def test_python_runs(snippet, workplace):
    if snippet.why_not:
        pytest.skip(snippet.why_not)
    (workplace / "snippet.py").write_text(snippet.text, encoding="utf-8")
    runpy.run_path("snippet.py", run_name="snippet")


def test_what_is_imported_is_on_the_page_of_the_api():
    shown = re.findall(r"^::: \S+\.(\w+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.M)
    parsed = [ast.parse(one.text) for one in of("python") if one.why_not is None]
    imports = [node for tree in parsed for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {one.name for node in imports if node.module.partition(".")[0] == "murmura" for one in node.names}
    assert len(names) > 10 and names <= set(shown)


def test_what_a_method_says_is_on_the_page_of_the_api():
    """What extending.md tells of one's own methods: the members in its table, and names of classes in its sentences."""
    page, told = ((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("api", "extending"))
    listed = {one for members in re.findall(r"members: \[(.*)\]", page) for one in members.split(", ")}
    table = told.split("## What a method says")[1].split("\n\n")[1]
    members = {one for row in table.splitlines() for one in re.findall(r"`(\w+)[(`]", row.split("|")[1])}
    used = set(re.findall(r"`(?:server|fleet|cohort)\.(\w+)\(?", told)) - {"adapter", "store"}
    assert len(members) > 12 and members <= listed and len(used) > 6 and used <= listed
