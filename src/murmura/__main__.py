"""``python -m murmura`` is ``murmura``."""

from __future__ import annotations

from murmura.cli import app

app(prog_name="murmura")
