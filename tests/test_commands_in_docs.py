"""Every command and every table of an experiment that README and docs show is one that there is."""

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from typer.main import get_command

from murmura.cli import app
from murmura.compare.config import CompareConfig
from murmura.experiment.config import Experiment
from murmura.methods import METHODS, section

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
COMMAND = re.compile(r"^(?: {4}|\$ |    \$ )?(?:\.venv/bin/)?(murmura [a-z].*)$")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def commands():
    """(page, command) of each line that is one: of a fenced or an indented block, as it is typed."""
    for page in PAGES:
        fenced, text = False, page.read_text(encoding="utf-8")
        for line in text.splitlines():
            fenced = fenced != line.startswith("```")
            found = COMMAND.match(line)
            if found and (fenced or line.startswith("    ")):
                yield page.relative_to(ROOT).as_posix(), found[1]


def parsed(words):
    """Go down to the command and have it parse its words; nothing is run."""
    command, context, words = get_command(app), click.Context(get_command(app)), words[1:]
    while isinstance(command, click.Group):
        inner = command.get_command(context, words[0]) if words else None
        assert inner, f"no such command: {' '.join(words)}"
        command, context, words = inner, click.Context(inner, parent=context), words[1:]
    return command.make_parser(context).parse_args(args=list(words))


def test_what_there_is_not_is_noticed():
    parsed(typed("murmura run my.toml --dry-run  # a comment"))
    with pytest.raises(AssertionError, match="no such command: rnu"):
        parsed(typed("murmura rnu my.toml"))
    with pytest.raises(click.NoSuchOption):
        parsed(typed("murmura run my.toml --dry"))


def typed(line):
    """The words of a command, without a comment and without where its output goes."""
    line = re.split(r"\s+#|\s[|>]\s", line.replace("…", "..."))[0]
    return shlex.split(line)


def test_there_are_commands():
    assert len(list(commands())) > 40


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_a_command_of_the_docs_is_one_that_there_is(page, line):
    words = typed(line)
    options, _, _ = parsed(words)
    for key, _, _value in (one.partition("=") for one in options.get("override") or []):
        table, _, option = key.partition(".")
        assert table in Experiment.model_fields and option, key


def tables():
    for page in PAGES:
        for kind, text in FENCE.findall(page.read_text(encoding="utf-8")):
            if kind == "toml":
                yield page.relative_to(ROOT).as_posix(), text


def names_in(table, path=""):
    for key, value in table.items():
        yield f"{path}{key}"
        if isinstance(value, dict):
            yield from names_in(value, f"{path}{key}.")


@pytest.mark.parametrize(("page", "text"), list(tables()))
def test_options_in_the_docs_are_ones_that_there_are(page, text):
    table = tomllib.loads(text)
    if "compare" in table:
        CompareConfig.parse(table.pop("compare"), page)
    known = Experiment.keys() | {f"method.{key}": key for one in METHODS for key in section(one).model_fields}
    if set(table) <= set(Experiment.model_fields):
        assert [name for name in names_in(table) if "." in name and name not in known] == []
