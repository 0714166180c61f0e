"""``murmura predict``: labels for new texts, by the classifier that a run has made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmura.cli.of_run import Overwrite, Run, Site, require_new
from murmura.units import several


def predict(
    run: Run,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Texts: a CSV, JSONL, Excel or Parquet file.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="The CSV to write. Default: NAME.labels.csv in this folder."),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="COLUMN", help="Column that holds the text. Default: as in the run.")
    ] = None,
    site: Site = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out rows without a text and count them.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Label texts and write a CSV with a row for each text.

    Its columns: line (where the text begins in FILE; its row, where FILE is Excel or Parquet), text, label (the
    likeliest), and p(NAME), the probability of each label.
    """
    import csv

    from murmura.data.files import stem
    from murmura.data.loading import load_records
    from murmura.data.records import Document
    from murmura.experiment.predict import Classifier, described
    from murmura.report.output_file import replacing

    _, experiment = described(run)
    target = out or Path(f"{stem(file)}.labels.csv")
    require_new(target, file, run, overwrite)
    column = text or experiment.data.fields.get("text")
    loaded = load_records(
        file, Document, fields={"text": column} if column else {}, skip_bad=skip_bad, renaming="--text '{column}'"
    )
    texts = [record.text for record in loaded.records]
    lines = [place.number for place in loaded.places]
    with replacing(target, "the file of labels", "--out") as stream:  # an impossible place is reported before any work
        classifier = Classifier(run, site)
        writer = csv.writer(stream)
        writer.writerow(["line", "text", "label", *(f"p({name})" for name in classifier.labels)])
        for line, one, (name, row) in zip(lines, texts, classifier.label(texts), strict=True):
            writer.writerow([line, one, name, *(f"{p:.6f}" for p in row)])
    left_out = f", {several(len(loaded.bad), 'row')} left out" if loaded.bad else ""
    typer.echo(f"{several(len(texts), 'text')} labelled{left_out}: {target}")
    if short := classifier.shortened:
        were = "was" if short == 1 else "were"
        typer.echo(f"{several(short, 'text')} {were} shortened to {classifier.max_length} tokens, pattern included")
