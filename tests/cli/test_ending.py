"""Commands that work for long end on SIGTERM as on Ctrl-C."""

import signal

import pytest
from typer.testing import CliRunner

from murmura.cli import app


@pytest.fixture(autouse=True)
def handler():
    """As a process finds it at its start; afterwards as it was."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("command", ["run", "compare", "serve", "export"])
def test_a_process_that_is_asked_to_end_keeps_what_is_there(command, tmp_path):
    CliRunner().invoke(app, [command, str(tmp_path / "nothing")])  # there is nothing to do
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
