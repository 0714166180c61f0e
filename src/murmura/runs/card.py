"""The card by which what a run has left is known again, wherever it was copied to."""

from __future__ import annotations

from pathlib import Path

from murmura.runs.previous import is_run

CARD = "README.md"
TAG = "- murmura"
"""A line of its head."""


def is_made_here(place: Path) -> bool:
    """Whether a run has left a folder, or a file: by the card that lies there or beside it, or since it is in a run."""
    try:
        if not place.exists():
            return False
        folders = [one if one.is_dir() else one.parent for one in (place.absolute(), place.resolve())]
        return any(is_tagged(folder / CARD) or any(map(is_run, (folder, *folder.parents))) for folder in folders)
    except OSError:  # what may not be read, or can be no path
        return False


def is_tagged(card: Path) -> bool:
    """Whether Murmura has written a card."""
    if not card.is_file():
        return False
    begun, *head = card.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
    return begun == "---" and "---" in head and TAG in head[: head.index("---")]
