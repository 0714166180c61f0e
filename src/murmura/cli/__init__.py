"""The command line: one file per verb, and ``planned`` for what two of them ask. What a verb needs is imported inside
its function, so that help is instant."""

from __future__ import annotations

import io
import os
import shlex
import signal
import sys
import threading
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from murmura import __version__
from murmura.cli import (
    answer,
    audit,
    chat,
    compare,
    data,
    evaluate,
    export,
    federation,
    init,
    judge,
    methods,
    models,
    path,
    pool,
    predict,
    privacy,
    report,
    run,
    runs,
    schema,
    serve,
    site,
    status,
)
from murmura.errors import INTERRUPTED, MAY_PASS, MISTAKE, Interrupted, MurmuraError, may_pass, unforeseen
from murmura.progress import LOG_FORMAT


class Commands(TyperGroup):
    """Reports a user's mistake in one red line, and how to resume after an interruption, without tracebacks."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["murmura.words"] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MurmuraError as error:
            typer.secho(str(error), fg=typer.colors.RED, err=True)
            raise typer.Exit(_code(error)) from error
        except BrokenPipeError:  # whoever read what is printed has enough, which typer ends quietly
            raise
        except OSError as error:
            typer.secho(str(unforeseen(error)), fg=typer.colors.RED, err=True)
            raise typer.Exit(_code(error)) from error
        except KeyboardInterrupt as interrupt:
            typer.secho(_parting(ctx.meta["murmura.words"], ctx.invoked_subcommand, interrupt), err=True)
            raise typer.Exit(INTERRUPTED) from interrupt


def _code(error: Exception) -> int:
    """What tells service managers whether another start may help."""
    return MAY_PASS if may_pass(error) else MISTAKE


def _parting(words: list[str], verb: str | None, interrupt: KeyboardInterrupt) -> str:
    """What to say to whoever has stopped a command.

    Args:
        words: what was given, options before the verb too.
    """
    own, again = words[words.index(verb) :] if verb in words else words, shlex.join(["murmura", *words])
    if own[:2] == ["pool", "build"]:
        return f"Stopped. Vectors so far are in the cache; go on with: {again}"
    if verb == "compare" and "--dry-run" not in own:
        return f"Stopped. What is finished is kept; go on with: {again}"
    if verb not in ("run", "serve") or "--dry-run" in own:
        return "Stopped."
    if not isinstance(interrupt, Interrupted):
        return f"Stopped before the run began. Start it with: {again}"
    resumed = [word for word in words if word not in ("--resume", "--overwrite", "--go-on")]
    stopped = " ".join(part for part in ("Stopped.", interrupt.cost) if part)
    return f"{stopped} Every finished round is kept; resume with: {shlex.join(['murmura', *resumed, '--resume'])}"


# Without typer's own tracebacks: they can print local variables, and those hold private records.
# And without its suggestions, which come after the same ones of the library below it.
app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    suggest_commands=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("run")(run.run)
app.command("compare")(compare.compare)
app.command("serve")(serve.serve)
app.command("status")(status.status)
app.command("runs")(runs.runs)
app.command("report")(report.report)
app.command("audit")(audit.audit)
app.command("export")(export.export)
app.command("judge")(judge.judge)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("answer")(answer.answer)
app.command("chat")(chat.chat)
app.command("init")(init.init)
app.command("methods")(methods.methods)
app.command("schema")(schema.schema)
app.add_typer(data.app, name="data")
app.add_typer(pool.app, name="pool")
app.add_typer(privacy.app, name="privacy")
app.add_typer(federation.app, name="federation")
app.add_typer(site.app, name="site")
app.add_typer(models.app, name="models")
app.command("path")(path.path)


def end_as_by_hand() -> None:
    """Have SIGTERM, which batch systems, service managers and comparisons end a process with, and SIGHUP, as when a
    terminal is closed, do what Ctrl-C does: what is there is kept, what was half made goes, runs of a comparison end,
    and the command says how to go on. Nothing changes where somebody has decided otherwise, as `nohup` does."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, signal.default_int_handler)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"murmura {__version__}")
        raise typer.Exit


@app.callback()
def murmura(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    log: Annotated[
        Literal["text", "json"],
        typer.Option("--log", envvar=LOG_FORMAT, help="How lines on standard error are written: json for programs."),
    ] = "text",
) -> None:
    """Fine-tune a language model across many owners' few, private examples, and measure what it costs and leaks."""
    os.environ[LOG_FORMAT] = log
    if isinstance(sys.stdout, io.TextIOWrapper):  # what files hold, and are called, need not be text
        sys.stdout.reconfigure(errors="backslashreplace")
    if context.invoked_subcommand != "site":  # a site's process ends in its own way
        end_as_by_hand()
