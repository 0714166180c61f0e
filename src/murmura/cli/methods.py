"""``murmura methods``: what can be run, and where it comes from."""

from __future__ import annotations

import typer


def methods() -> None:
    """List the methods, those of other installed packages too, and the engines, attacks and trackers they add."""
    from murmura.audit import BROUGHT
    from murmura.federation.engines import ENGINES
    from murmura.methods import METHODS, section
    from murmura.tracking import TRACKERS

    width = max(map(len, METHODS))
    for name, source in METHODS.items():
        origin = f"[{source.package}] " if source.package else ""
        typer.echo(f"{name:<{width}}  {origin}{' '.join((section(name).__doc__ or '').split())}")
    for kind, registry in (("engine", ENGINES), ("attack", BROUGHT), ("tracker", TRACKERS)):
        for name, source in registry.items():
            if source.package:
                typer.echo(f"{kind} {name}  [{source.package}]")
