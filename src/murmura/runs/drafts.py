"""What is in a site's ``drafts.jsonl``: some of the texts that a model has written after its records, for its owner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShownDraft:
    """A text that a model has written after a site's records, and so as private as these.

    Attributes:
        round: in which it was written.
        text: all of it, or as much of it as there was when it was dropped.
        kept: whether the site trained on it.
        why: it was kept or dropped, in words.
    """

    round: int
    text: str
    kept: bool
    why: str
