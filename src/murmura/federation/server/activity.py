"""What a server is doing just now, for whoever looks while it works (``runs.status``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Told = dict[str, Any]
"""JSON: ``began`` and ``since`` are Unix times (s) of the round and of the ask; ``waiting`` names sites whose answers
are to come, the first few; ``left`` counts them all."""
_SECONDS_BETWEEN = 1.0  # to keep a file for each of many answers would take longer than they do
NAMED = 20
"""Sites that are named as not having answered yet; the others are counted."""


class Activity:
    """Keeps what is going on where others can read it.

    Args:
        keep: gets it whenever it changes, but not more than about once a second while answers come.

    Attributes:
        rounds: how many there will be; 0 until that is known.
    """

    def __init__(self, keep: Callable[[Told], None]) -> None:
        self._keep, self._kept, self.rounds = keep, 0.0, 0
        self._round: Told = {"round": 0, "began": time.time()}

    def begin(self, round: int) -> None:
        """From now on it is this round that is worked on."""
        self._round = {"round": round, "rounds": self.rounds, "began": time.time()}
        self._tell({})

    @contextmanager
    def asking(self, verb: str, sites: Sequence[str]) -> Iterator[Callable[[str], None]]:
        """For as long as answers to one ask are awaited; yields what is to be called with each site that has answered,
        or that nobody waits for any longer."""
        waiting = dict.fromkeys(sites)
        asked = {"verb": verb, "asked": len(waiting), "since": time.time()}

        def tell(*, now: bool = True) -> None:
            if now or time.monotonic() - self._kept > _SECONDS_BETWEEN:
                named = [site for site, _ in zip(waiting, range(NAMED), strict=False)]
                self._tell({**asked, "left": len(waiting), "waiting": named})

        def heard(site: str) -> None:
            waiting.pop(site, None)
            tell(now=False)

        tell()
        try:
            yield heard
        finally:
            self._tell({})

    def _tell(self, more: Told) -> None:
        self._kept = time.monotonic()
        self._keep({**self._round, **more})
