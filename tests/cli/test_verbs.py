"""What every command does with an error."""

import errno

import pytest
from typer.testing import CliRunner

from murmura.cli import MAY_PASS, MISTAKE, app
from murmura.errors import BudgetError, RunError


@pytest.mark.parametrize("words", [["status"], ["report"], ["export", "--adapter"], ["evaluate"], ["chat"]])
def test_a_path_that_the_system_refuses_is_a_mistake_and_no_traceback(words):
    result = CliRunner().invoke(app, [*words, "a" * 300])
    assert result.exit_code == MISTAKE and isinstance(result.exception, SystemExit), result.output
    assert result.stderr.startswith("a" * 300)
    assert result.stderr.endswith("(File name too long). Choose a shorter name.\n")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), "/x/y: cannot be used (Permission denied). Fix"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        (OSError("no such device"), "no such device"),
    ],
)
def test_what_nobody_has_foreseen_is_told_in_one_line(monkeypatch, error, told):
    def raises(*_):
        raise error

    monkeypatch.setattr("murmura.status.look", raises)
    result = CliRunner().invoke(app, ["status", "run"])
    assert result.exit_code == MISTAKE and result.stderr.startswith(told) and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), MAY_PASS),
        (RunError("too few sites", passing=True), MAY_PASS),
        (RunError("the held-out loss is not a finite number"), MISTAKE),
        (BudgetError("spent"), MISTAKE),
    ],
)
def test_a_command_ends_so_that_services_know_whether_another_start_may_help(monkeypatch, error, code):
    def raises(*_):
        raise error

    monkeypatch.setattr("murmura.status.look", raises)
    assert CliRunner().invoke(app, ["status", "run"]).exit_code == code


def test_who_stops_reading_is_told_nothing(monkeypatch):
    def raises(*_):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("murmura.status.look", raises)
    result = CliRunner().invoke(app, ["status", "run"])
    assert result.exit_code == 1 and not result.stderr
