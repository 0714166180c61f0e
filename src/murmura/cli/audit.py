"""``murmura audit``: attack what a finished run has left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run of simulated sites.")],
    records: Annotated[
        int, typer.Option("--records", min=1, help="Score at most this many of the sites' records, and of others.")
    ] = 1000,
    texts: Annotated[
        int,
        typer.Option(
            "--texts", min=0, help="Have the model write this many texts for each kind of extraction; 0 for none."
        ),
    ] = 100,
    temperature: Annotated[
        float, typer.Option("--temperature", help="Sampling temperature of texts that an attacker has the model write.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option("--top-k", min=0, help="Sample from the k likeliest tokens; 0 for all.")] = 40,
    probability: Annotated[
        float, typer.Option("--probability", help="Probability of getting a record: p of (n, p)-extraction.")
    ] = 0.9,
) -> None:
    """Attack the model of a finished run with all that is known, and say how much it gives away of its sites' records.

    Nothing is trained. The sites' records are prepared as for the run, and refused if they are no longer the same.
    Figures are kept in the run folder, and `murmura report` puts them on the page; scores of single records are for the
    run's owner alone, in private/@run. Stop it at any time with Ctrl-C: what an earlier audit has found stays.
    """
    from murmura.audit.run import Options
    from murmura.audit.run import audit as make
    from murmura.generation.sampling import Sampling
    from murmura.report.sections.audit import figures_of
    from murmura.report.terminal import show_blocks
    from murmura.runs import read
    from murmura.runs.names import AUDIT, AUDIT_SCORES

    make(run, Options(records, texts, Sampling(temperature, top_k=top_k), probability))
    show_blocks(figures_of(read(run)))
    typer.echo(f"Figures: {run / AUDIT}; `murmura report {run}` puts them on the page.")
    typer.echo(f"Scores of single records, for the run's owner alone: {run / AUDIT_SCORES}")
