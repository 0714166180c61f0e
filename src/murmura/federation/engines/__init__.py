"""What carries asks to sites and replies back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from murmura.federation.wire.messages import Ask, Failure, Reply


class Engine(Protocol):
    """The way to the sites of a run."""

    @property
    def sites(self) -> list[str]:
        """Their names, in the order of the run."""
        ...

    def ask(self, ask: Ask, sites: Sequence[str]) -> Iterator[Reply | Failure]:
        """One answer of each of these sites; replies in the order of ``sites``, as they come.

        A site that has not answered within ``ask.seconds`` is ``LATE``, and an answer that comes later is dropped; one
        that cannot be reached is ``gone``. Of what goes wrong at a site only the class crosses.
        """
        ...

    def close(self) -> None:
        """Let go of processes and connections; once more does nothing."""
        ...
