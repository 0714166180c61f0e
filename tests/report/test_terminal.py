"""What the terminal shows is what was said, whatever it looks like."""

from murmura.report.content import FirstScreen, Paragraph, Table
from murmura.report.terminal import show_blocks


def test_brackets_are_text(capsys):
    """Arms, runs and sites may be called so, and tables of a file are written in brackets."""
    odd = ["FedAvg [/b]", "X [v1]", "[red]odd", "`[audit] keep = true`", "a:heart:b"]
    table = Table(["Arm", *odd], [["[bold]row", *odd]], title="Of [all]")
    show_blocks([FirstScreen({"Which [one]?": tuple(odd)}), table, Paragraph(" ".join(odd))])
    told = capsys.readouterr().out
    assert all(told.count(one) == 4 for one in odd), told
    assert all(one in told for one in ("Which [one]?", "[bold]row", "Of [all]"))
