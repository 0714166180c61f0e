"""All sites in this process, sharing one resident model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from murmura.federation.engines import Simulation
from murmura.federation.site.answer import Host
from murmura.federation.wire.messages import Ask, Failure, Reply
from murmura.progress import bar


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


def start(simulation: Simulation) -> LocalEngine:
    """Play all sites here."""
    return LocalEngine(simulation.open(list(simulation.folders.values())))
