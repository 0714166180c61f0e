"""``murmura pool``: public records and their vectors, made once, for methods that fetch from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from murmura.cli.data import mapping

if TYPE_CHECKING:
    from murmura.retrieval.pool import Pool

app = typer.Typer(
    suggest_commands=False, no_args_is_help=True, help="Make a pool of public records to fetch from, or look at one."
)


@app.command("build")
def build(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="[DOMAIN=]FILE...",
            help="JSONL, CSV, Excel or Parquet files, or Hugging Face ids, of instructions; a domain is named "
            "after its file unless you name it.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="The pool's folder.")],
    encoder: Annotated[
        str, typer.Option("--encoder", metavar="NAME", help="Sentence encoder: an alias, a folder or a hub id.")
    ] = "minilm",
    field: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            metavar="[DOMAIN.]FIELD=COLUMN",
            help="Column of a field, where the names differ: output=answer; in one domain alone: math.output=answer.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without",
            metavar="FILE",
            help="Leave out records whose instruction and input are in this public file, or folder: held-out ones.",
        ),
    ] = None,
    without_private: Annotated[
        list[str] | None,
        typer.Option(
            "--without-private",
            metavar="FILE",
            help="The same for private records, for simulations: whoever has the sources can tell which are "
            "missing, so no run with an ε takes such a pool.",
        ),
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Split of Hugging Face data sets.")] = "train",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out and count bad records.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a pool that is in the folder.")] = False,
) -> None:
    """Gather public records of several domains and compute the vectors to search them by.

    Of records with the same instruction and input the first is kept. Vectors are kept in the cache as they come: stop
    at any time with Ctrl-C; the same command resumes it.
    """
    from murmura.retrieval.build import Origin, SourceOptions
    from murmura.retrieval.build import build as make
    from murmura.retrieval.encoder import Encoder

    reading = SourceOptions(dict(map(mapping, field or [])), split, without or [], without_private or [], skip_bad)
    _print(make([Origin.of(text) for text in sources], out, Encoder(encoder), reading, overwrite=overwrite))


@app.command("info")
def info(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The pool's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Read a whole pool, refuse it if it is damaged, and say what it holds."""
    from murmura.retrieval.pool import Pool

    pool = Pool.open(folder)
    pool.verify()
    if as_json:
        typer.echo(pool.manifest.model_dump_json())
    else:
        _print(pool)


@app.command("index")
def index(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The pool's folder.")],
    recall: Annotated[
        float,
        typer.Option("--recall", min=0, max=1, help="Share of what exact search finds that it must find on average."),
    ] = 0.95,
) -> None:
    """Make an index for approximate search (augment.search), and measure what it misses.

    It needs faiss, and is for pools of many millions of records. Exact search reads all vectors once.
    """
    from murmura.retrieval.approximate import Index
    from murmura.retrieval.pool import Pool

    pool = Pool.open(folder)
    pool.verify()
    typer.echo(f"{folder}: {Index.make(pool, recall).about.in_words}")


def _print(pool: Pool) -> None:
    from murmura.report.content import Table
    from murmura.report.terminal import draw, wide
    from murmura.retrieval.pool import WITHOUT_PRIVATE
    from murmura.units import count, size

    rows = [
        [one.domain, one.source, *map(count, (one.records, one.repeated, one.exclusions, one.bad))]
        for one in pool.manifest.sources
    ]
    columns = ["domain", "source", "in the pool", "repeated", "left out", "bad"]
    wide(120).print(draw(Table(columns, rows, text=(0, 1))))
    on_disk = size(sum(file.bytes for file in pool.manifest.files.values()))
    typer.echo(
        f"{pool.folder}: {count(len(pool))} records, vectors of {pool.dimension} numbers by '{pool.encoder.name}' "
        f"({pool.encoder.fingerprint[:12]}), {on_disk}"
    )
    if pool.manifest.without_private:
        typer.echo(f"{pool.folder}: {WITHOUT_PRIVATE}.")
