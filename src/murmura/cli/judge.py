"""``murmura judge``: whose answers a judge prefers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from murmura.cli.of_run import Run, Site
from murmura.errors import ConfigError


def judge(
    run: Run,
    other: Annotated[
        Path | None,
        typer.Argument(metavar="[OTHER]", help="The run to compare it with. Default: its own model before training."),
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="MODEL", help="An instruction model that judges on this machine.")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint", metavar="URL", help="Or an OpenAI-compatible server, such as http://localhost:8000/v1."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="What that server calls the judge.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="VARIABLE", help="Environment variable with the server's key.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--questions", metavar="FILE", help="Instructions to answer. Default: the run's held-out ones."),
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Ask at most this many questions.")] = 80,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Maximum tokens per answer.")] = 256,
    verdict: Annotated[
        int,
        typer.Option(
            "--verdict-tokens", min=1, help="Maximum tokens per verdict. A judge that thinks first needs far more."
        ),
    ] = 200,
    at_once: Annotated[
        int | None,
        typer.Option("--at-once", min=1, help="Requests to an endpoint on their way at the same time. Default: 16."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask an endpoint without confirmation.")] = False,
    private: Annotated[
        bool,
        typer.Option(
            "--send-private",
            help="Send an endpoint questions that come from sites' records, or answers by a site's own adapter.",
        ),
    ] = False,
    site: Site = None,
) -> None:
    """Have a judge compare a run's answers with those of another run, or of its own model before training.

    The judge sees each question with both answers, in both orders. What it said is kept in RUN/private, and is not
    asked again: the same command resumes a judgement that was stopped.
    """
    from murmura.experiment.trained import require_answers
    from murmura.judge.conclusion import begin, conclude
    from murmura.judge.pairs import answered, are_private, asked_of, require_sendable, require_site, require_unseen
    from murmura.runs.folder import RunFolder

    experiment = require_answers(run)
    if other is not None:
        require_answers(other)
        if other.resolve() == run.resolve():
            fix = "Name another run, or none: then it is compared with its own model before training."
            raise ConfigError("a run is not compared with itself", where=str(other), fix=fix)
    if endpoint is None and (yes or private):
        raise ConfigError("--yes and --send-private are for --endpoint", where="judge", fix="Leave them out.")
    judge = begin(by, endpoint, model, key, at_once, verdict)
    if endpoint is not None and not yes and not sys.stdin.isatty():  # told before answers are written, which takes long
        what = "an endpoint is asked only after a yes, and there is no terminal to ask for one on"
        raise ConfigError(what, where="--endpoint", fix="Give --yes.")
    require_site(run, other, site)
    if endpoint is not None:
        require_sendable(experiment, run, file, site, private=private)
    questions = asked_of(experiment, run, file, most)
    if other is not None and file is None:
        require_unseen(questions, run, other)
    confirmed = _confirmed if endpoint is not None and not yes else None
    source = "held-out questions" if file is None else f"questions of {file.name}"
    with RunFolder(run).locked():  # another judgement of it would ask, and pay for, the same again
        compared = answered(run, other, questions, tokens, site)
        conclude(run, other, judge, endpoint, compared, source, confirmed, site, are_private(experiment, file))


def _confirmed(what: str) -> bool:
    return typer.confirm(f"{what}. Go on?")
