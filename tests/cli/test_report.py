import pytest
import typer
from typer.testing import CliRunner

from murmura import report as reports
from murmura.cli import report
from murmura.errors import MurmuraError
from murmura.runs import read_all
from tests.report.runs import metrics, write_run


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command("report")(report.report)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_one_run_is_reported_into_its_own_folder(invoke, tmp_path):
    folder = write_run(tmp_path / "a")
    result = invoke(folder)
    assert result.exit_code == 0
    words = result.stdout.split()
    for word in ("FedAvg", "2.000", "0.250", "0.625", "0.750", "4.50", "9.00", "90.0", "1.65"):
        assert word in words
    assert f"Report: {folder / 'report.html'}" in result.stdout
    assert "<title>FedAvg" in (folder / "report.html").read_text()


def test_several_runs_stand_side_by_side_in_the_current_folder(invoke, tmp_path):
    folders = [write_run(tmp_path / f"avg-{seed}", seed=seed) for seed in range(2)]
    result = invoke(*folders, write_run(tmp_path / "pit", method="FewFedPIT [β=0.5]"))
    assert "mean ± sd of 2 seeds" in result.stdout
    assert "FewFedPIT [β=0.5]" in result.stdout
    assert "FedAvg and FewFedPIT [β=0.5]" in (tmp_path / "report.html").read_text()


def test_what_lies_in_the_current_folder_and_is_no_report_stays(invoke, tmp_path):
    (tmp_path / "report.html").write_text("<p>of a test runner</p>")
    result = invoke(write_run(tmp_path / "a"), write_run(tmp_path / "b", seed=1))
    assert isinstance(result.exception, MurmuraError) and "is not a report" in str(result.exception)
    assert (tmp_path / "report.html").read_text() == "<p>of a test runner</p>"


def test_out_says_where(invoke, tmp_path):
    folder = write_run(tmp_path / "a")
    assert invoke(folder, "--out", "pages/one.html").exit_code == 0
    assert (tmp_path / "pages" / "one.html").exists()
    assert not (folder / "report.html").exists()


def test_markdown_goes_into_a_folder_that_is_made(invoke, tmp_path):
    folder = write_run(tmp_path / "a")
    assert invoke(folder, "--markdown", "tables/new/one.md").exit_code == 0
    assert "FedAvg" in (tmp_path / "tables" / "new" / "one.md").read_text()
    refused = invoke(folder, "--markdown", folder / "report.html" / "one.md")
    assert isinstance(refused.exception, MurmuraError)
    assert "the table cannot be written" in str(refused.exception) and "another --markdown" in str(refused.exception)


def test_a_missing_figure_is_a_dash(invoke, tmp_path):
    result = invoke(write_run(tmp_path / "a", rows=[metrics(2, upload_auc=None)]))
    (line,) = [line for line in result.stdout.splitlines() if "FedAvg" in line]
    assert line.split()[:5] == ["FedAvg", "2.000", "0.250", "0.625", "–"]


def test_a_folder_that_is_no_run_is_a_murmura_error(invoke, tmp_path):
    result = invoke(tmp_path / "nowhere")
    assert isinstance(result.exception, MurmuraError)
    assert "nowhere" in str(result.exception)


@pytest.mark.parametrize(("width", "upright"), [(120, False), (60, True)])
def test_a_narrow_terminal_gets_a_column_a_method(tmp_path, width, upright):
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width)
    reports.show(reports.table(read_all([write_run(tmp_path / "a")])), console)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    assert any(line.split()[:2] == ["Held-out", "loss"] for line in lines) == upright
    assert not any("…" in line for line in lines)


def test_a_sheet_is_written_for_one_run(invoke, tmp_path):
    folder = write_run(tmp_path / "a")
    result = invoke(folder, "--sheet", "sheets/a.html")
    assert result.exit_code == 0 and "Sheet: sheets/a.html" in result.stdout
    assert "What is not covered" in (tmp_path / "sheets" / "a.html").read_text()
    refused = invoke(folder, write_run(tmp_path / "b"), "--sheet", "two.html")
    assert isinstance(refused.exception, MurmuraError) and "one run" in str(refused.exception)
    assert not (tmp_path / "two.html").exists()


def test_runs_side_by_side_are_compared_as_far_as_their_seeds_show(invoke, tmp_path):
    folders = [
        write_run(tmp_path / f"{name}-{seed}", name, seed, [metrics(2, heldout_loss=loss)])
        for name, losses in (("FedAvg", (2.0, 2.01)), ("FedProx", (2.5, 2.514)))
        for seed, loss in enumerate(losses)
    ]
    result = invoke(*folders, "--markdown", "table.md")
    said = "FedAvg (held-out loss 2.005) is better than FedProx by 0.502"
    assert said in result.stdout.replace("\n", " ")
    assert said in (tmp_path / "report.html").read_text() and said in (tmp_path / "table.md").read_text()


def test_a_page_with_drafts_is_written_nowhere_by_itself(invoke, tmp_path):
    folder = write_run(tmp_path / "a")
    refused = invoke(folder, "--drafts")
    assert isinstance(refused.exception, MurmuraError) and "--out" in str(refused.exception)
    assert not (folder / "report.html").exists()
    none = invoke(folder, "--drafts", "--out", "page.html")
    assert "no site has kept drafts" in str(none.exception) and not (tmp_path / "page.html").exists()
