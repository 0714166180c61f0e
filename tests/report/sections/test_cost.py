"""What a run costs its sites."""

from murmura.report.sections.cost import cost
from murmura.runs.schema import SiteReport
from tests.report.blocks import tables
from tests.report.runs import metrics, rows_of, write_run


def test_what_a_site_and_a_record_cost(tmp_path):
    # Two sites with 52 records that are used; in round 3 the server works alone.
    alone = metrics(3, bytes_up=0, bytes_down=0, at_sites=0.0)
    rows = [metrics(0), *(metrics(n, at_sites=2.6) for n in (1, 2)), alone]
    voted = write_run(tmp_path / "a", method="PrE-Text ε=8", rows=rows)
    untold = [SiteReport(name, None, None, None, None) for name in ("cardiology", "skin")]
    told = [metrics(n, at_sites=2.6) for n in range(3)]
    private = write_run(tmp_path / "b", method="DP-FedAvg ε=8", rows=told, sites=untold)
    old = write_run(tmp_path / "c")
    assert tables(cost(rows_of(voted, private, old))) == [
        [
            ["PrE-Text ε=8", "2", "1.12 MB", "2.25 MB", "2.6 s", "0.10 s"],
            ["DP-FedAvg ε=8", "2", "1.12 MB", "2.25 MB", "3.9 s", "–"],
            ["FedAvg", "2", "1.12 MB", "2.25 MB", "–", "–"],
        ]
    ]
    assert cost(rows_of(old)) is None
