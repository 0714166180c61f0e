"""Experiments of papers, as files to start from."""

from __future__ import annotations

from pathlib import Path

import murmura

_PACKAGED = Path(murmura.__file__).with_name("papers")
_FOLDER = _PACKAGED if _PACKAGED.is_dir() else Path(murmura.__file__).parents[2] / "examples" / "papers"


def presets() -> list[str]:
    """The names of all."""
    return sorted(file.stem for file in _FOLDER.glob("*.toml"))


def preset(name: str) -> str:
    """The file called ``name`` of ``presets``, for a copy ``my.toml`` in the current folder: its header runs that, and
    what it names in the repository is looked for here."""
    text = (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    return text.replace(f"examples/papers/{name}.toml", "my.toml").replace('"../../', '"')
