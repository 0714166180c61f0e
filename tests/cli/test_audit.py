import pytest
from typer.testing import CliRunner

from murmura.audit import run as making
from murmura.cli import INTERRUPTED, MISTAKE, app
from murmura.generation.sampling import Sampling
from murmura.runs import RunFolder
from murmura.runs.audit import Audit
from murmura.runs.names import AUDIT, AUDIT_SCORES
from tests.report.runs import MODEL, write_run


@pytest.fixture
def invoke(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, ["audit", *(str(word) for word in words)])


@pytest.fixture
def folder(tmp_path):
    path = write_run(tmp_path / "a")
    (path / "private").mkdir()
    return path


def test_it_prints_what_it_finds_and_where_it_is(invoke, folder, monkeypatch):
    asked = []

    def audit(path, options):
        asked.append((path, options))
        RunFolder(path).write(AUDIT, Audit("0.1", "2026-01-01T00:00:00+00:00", (MODEL,)))

    monkeypatch.setattr(making, "audit", audit)
    result = invoke(folder, "--records", 12, "--texts", 3, "--temperature", 0.5, "--top-k", 0, "--probability", 0.1)
    assert result.exit_code == 0, result.output
    assert asked == [(folder, making.Options(12, 3, Sampling(0.5), 0.1))]
    assert invoke(folder).exit_code == 0 and asked[1] == (folder, making.Options())
    assert "error zone" in result.stdout and "strongest" in result.stdout
    assert f"Figures: {folder / AUDIT}" in result.stdout
    assert f"for the run's owner alone: {folder / AUDIT_SCORES}" in result.stdout


def test_bad_input_is_told_in_words(invoke, tmp_path):
    for words, reason in (
        ((tmp_path,), "not a run folder"),
        ((tmp_path, "--probability", 2), "2 is no probability"),
        ((tmp_path, "--temperature", 0), "a temperature of 0.0 cannot be sampled at"),
    ):
        result = invoke(*words)
        assert result.exit_code == MISTAKE and reason in result.stderr
    assert "Invalid value for '--records'" in invoke(tmp_path, "--records", 0).stderr


def test_it_can_be_stopped(invoke, folder, monkeypatch):
    def stopped(path, options):
        raise KeyboardInterrupt

    monkeypatch.setattr(making, "audit", stopped)
    result = invoke(folder)
    assert result.exit_code == INTERRUPTED and "Stopped." in result.stderr
