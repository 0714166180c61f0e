"""``murmura schema``: what an editor needs to complete and check experiment files."""

from __future__ import annotations

import json

import typer


def schema() -> None:
    """Print the JSON schema of experiment files: murmura schema > murmura.schema.json."""
    from murmura.experiment import schema

    typer.echo(json.dumps(schema.schema(), indent=2))
