"""All sites in this process, sharing one resident model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from murmura.federation.site.answer import Host
from murmura.federation.wire.messages import Ask, Failure, Reply
from murmura.progress import bar

if TYPE_CHECKING:
    from murmura.experiment.simulation import Simulated


class LocalEngine:
    """Hands asks to the host as they are."""

    def __init__(self, host: Host) -> None:
        self.host, self.sites = host, list(host.sites)

    def ask(self, ask: Ask, sites: Sequence[str]) -> Iterator[Reply | Failure]:
        """Answers of the host."""
        with bar(f"answers to '{ask.verb}'", len(sites)) as progress:
            for answer in self.host.answer(ask, sites):
                progress.advance()
                yield answer

    def close(self) -> None:
        """Let other processes work with what the sites keep."""
        self.host.close()


def start(simulation: Simulated) -> LocalEngine:
    """Play all sites here."""
    return LocalEngine(simulation.open(list(simulation.folders.values())))
