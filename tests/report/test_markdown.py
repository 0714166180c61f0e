"""The table as Markdown."""

from murmura.report import markdown, table
from murmura.report.content import Table
from murmura.report.markdown import pipes
from murmura.runs import read_all
from tests.report.runs import write_run


def a_run(folder, seed, loss):
    return write_run(
        folder, seed=seed, rows=[{"round": 1, "heldout_loss": loss, "attack_auc": None, "bytes_up": 2_000_000}]
    )


def test_a_row_a_method_with_spread_and_dashes(tmp_path):
    folders = [a_run(tmp_path / f"s{seed}", seed, loss) for seed, loss in ((0, 2.0), (1, 3.0))]
    lines = markdown(table(read_all(folders))).splitlines()
    head, rule, row = [line for line in lines if line.startswith("|")]
    assert head.count("|") == rule.count("|") == row.count("|")
    assert row.startswith("| FedAvg (mean ± sd of 2 seeds) | 2.500 ± 0.707 |")
    assert "| – |" in row or "| — |" in row


def test_what_a_user_has_called_something_ends_no_column_and_opens_no_tag():
    lines = pipes(Table(["a|b", "<i>c"], [["d", "1"]])).splitlines()
    assert lines == ["| a\\|b | &lt;i>c |", "| --- | --: |", "| d | 1 |"]
