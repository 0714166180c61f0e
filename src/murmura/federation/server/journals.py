"""The server's journals, which do not go back with a checkpoint: it notes how far each of them had come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from murmura.privacy.journal import Anchor


class Anchored(Protocol):
    """A journal, or what stands on one."""

    @property
    def anchor(self) -> Anchor:
        """How far it has come (``Journal.anchor``)."""

    def check(self, anchor: Anchor) -> None:
        """As of ``Journal``."""


T = TypeVar("T", bound=Anchored)


class Journals:
    """Those of a run, by name.

    Args:
        place: gives the file of a name.
    """

    def __init__(self, place: Callable[[str], Path]) -> None:
        self._place = place
        self._open: dict[str, Any] = {}
        self._anchors: dict[str, Anchor] = {}  # when the run was last saved, of those not open yet, too

    def open(self, name: str, kind: Callable[[Path], T]) -> T:
        """The journal of a name; see ``Server.journal``."""
        if name not in self._open:
            made = kind(self._place(name))
            if name in self._anchors:
                made.check(self._anchors[name])
            self._open[name] = made
        found: T = self._open[name]
        return found

    def check(self, anchors: Mapping[str, Anchor]) -> None:
        """Hold those that are open to what a checkpoint notes.

        Raises:
            PrivacyError: one has lost lines since then.
        """
        for name in self._open.keys() & anchors.keys():
            self._open[name].check(anchors[name])

    def noted(self, anchors: Mapping[str, Anchor]) -> None:
        """Hold to these anchors whatever is opened from now on."""
        self._anchors = dict(anchors)

    def anchors(self) -> dict[str, Anchor]:
        """How far each has come, for a checkpoint to note."""
        self._anchors |= {name: journal.anchor for name, journal in self._open.items()}
        return dict(self._anchors)
