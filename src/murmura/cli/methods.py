"""``murmura methods``: what can be run, and where it comes from."""

from __future__ import annotations

import typer


def methods() -> None:
    """List the methods, those of other installed packages too."""
    from murmura.methods import METHODS, section

    width = max(map(len, METHODS))
    for name, source in METHODS.items():
        origin = f"[{source.package}] " if source.package else ""
        typer.echo(f"{name:<{width}}  {origin}{' '.join((section(name).__doc__ or '').split())}")
