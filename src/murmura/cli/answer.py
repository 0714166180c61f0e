"""``murmura answer``: what the model of a run answers to questions in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from murmura.cli.of_run import Overwrite, Run, Site, require_new
from murmura.units import listing, several

_NAMED = 5  # lines in a message


def answer(
    run: Run,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Instructions, or prompts after a run on preferences: JSONL, CSV, Excel or Parquet; no output needed.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="The JSONL to write. Default: NAME.answers.jsonl here."),
    ] = None,
    base: Annotated[bool, typer.Option("--base", help="Also what the model answered before training.")] = False,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Maximum tokens per answer.")] = 256,
    site: Site = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out rows that cannot be used.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Answer the instructions in a file, greedily, and write a line of JSON for each.

    Its keys: line (in FILE), instruction, input, answer, finished (false where --tokens or the model's context cut it
    off), and with --base before and before_finished.
    """
    from murmura.data.files import stem
    from murmura.experiment.trained import Trained, answer_rows, questions, require_answers
    from murmura.report.output_file import replacing

    experiment = require_answers(run)
    target = out or Path(f"{stem(file)}.answers.jsonl")
    require_new(target, file, run, overwrite)
    unanswered: list[str] = []
    asked = questions(experiment, file, skip_bad=skip_bad)
    with replacing(target, "the file of answers", "--out") as stream:  # an impossible place is reported before any work
        for row, had_room in answer_rows(Trained.load(run, site), asked, tokens, base=base):
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            if not had_room:
                unanswered.append(str(row["line"]))
    if unanswered:
        they = "it fills" if len(unanswered) == 1 else "they fill"
        what = f"{several(len(unanswered), 'question')} without an answer, since {they} the model's context"
        typer.echo(f"{what}: line{'s' * (len(unanswered) > 1)} {listing(unanswered, _NAMED)}")
    left_out = f", {several(len(asked.bad), 'row')} left out" if asked.bad else ""
    typer.echo(f"{several(len(asked.records) - len(unanswered), 'question')} answered{left_out}: {target}")
