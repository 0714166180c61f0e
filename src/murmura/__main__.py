"""``python -m murmura`` is ``murmura``."""

from murmura.cli import app

app(prog_name="murmura")
