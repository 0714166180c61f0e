"""Commands end on SIGTERM, and on SIGHUP, as on Ctrl-C."""

import signal

import pytest
from typer.testing import CliRunner

from murmura.cli import app

ENDING = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handler():
    """As a process finds them at its start; afterwards as they were."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("command", ["run", "compare", "serve", "export", "predict", "models"])
def test_a_process_that_is_asked_to_end_keeps_what_is_there_and_clears_up(command, tmp_path):
    CliRunner().invoke(app, [command, str(tmp_path / "nothing")])  # there is nothing to do
    assert [signal.getsignal(number) for number in ENDING] == [signal.default_int_handler] * 2


def test_the_process_of_sites_ends_in_its_own_way(tmp_path):
    CliRunner().invoke(app, ["site", "start", str(tmp_path / "nothing")])
    assert [signal.getsignal(number) for number in ENDING] == [signal.SIG_DFL] * 2


def test_who_has_decided_otherwise_is_not_overruled(tmp_path):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` has
    CliRunner().invoke(app, ["run", str(tmp_path / "nothing")])
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
