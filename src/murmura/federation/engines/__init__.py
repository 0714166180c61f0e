"""What carries asks to sites and replies back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from murmura.registry import Registry

if TYPE_CHECKING:
    from murmura.federation.site.answer import Host
    from murmura.federation.wire.messages import Ask, Failure, Reply

ENGINES = Registry(
    "murmura.engines",
    {"local": "murmura.federation.engines.local:start", "processes": "murmura.federation.engines.processes:start"},
)
"""By the name that ``run.engine`` has for it, the function that starts each, given a ``Simulation``."""
DEPLOYED = "flower"
"""The engine of runs whose sites are on machines of their own, which `murmura serve` leads."""
SIMULATIONS: tuple[str, ...] = ("local", "processes")
"""Those whose sites are played on this machine."""


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


class Simulation(Protocol):
    """The sites of a run that are played on this machine."""

    @property
    def folders(self) -> Mapping[str, Path]:
        """Of each site, in the order of the run: all that whoever plays it is told."""
        ...

    @property
    def workers(self) -> int:
        """Most processes to play them in."""
        ...

    @property
    def program(self) -> Sequence[str]:
        """What Python runs in a process that plays sites, with the file descriptor of a pipe as its last argument."""
        ...

    def open(self, folders: Sequence[Path]) -> Host:
        """Play the sites of these folders in this process, over the server's own model."""
        ...
