"""What carries asks to sites and replies back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from murmura.registry import Registry

if TYPE_CHECKING:
    from murmura.federation.wire.messages import Ask, Failure, Reply

ENGINES = Registry(
    "murmura.engines",
    {"local": "murmura.federation.engines.local:start", "processes": "murmura.federation.engines.processes:start"},
)
"""By the name that ``run.engine`` has for it, the function that starts each, given ``experiment.simulation.Simulated``
sites."""


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
