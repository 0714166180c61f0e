"""``murmura audit``: attack what a finished run has left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run of simulated sites.")],
    records: Annotated[
        int, typer.Option("--records", min=1, help="Score at most so many of the sites' records, and of others.")
    ] = 1000,
) -> None:
    """Attack the model of a finished run with all that is known, and say how far it gives its sites' records away.

    Nothing is trained. The sites' records are prepared as for the run, and refused if they are not the same any more.
    Figures are kept in the run folder, and `murmura report` puts them on the page; scores of single records are for the
    run's owner alone, in private/@run. Stop it at any time with Ctrl-C: what an earlier audit has found stays.
    """
    from murmura import report as reports
    from murmura.audit.run import Options
    from murmura.audit.run import audit as make
    from murmura.runs import read
    from murmura.runs.schema import AUDIT, AUDIT_SCORES

    make(run, Options(records=records))
    reports.show_audit(read(run))
    typer.echo(f"Figures: {run / AUDIT}; `murmura report {run}` puts them on the page.")
    typer.echo(f"Scores of single records, for the run's owner alone: {run / AUDIT_SCORES}")
