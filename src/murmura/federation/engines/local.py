"""All sites in this process, sharing one resident model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from murmura.federation.site.answer import Host
from murmura.federation.wire.messages import Ask, Failure, Reply


class LocalEngine:
    """Hands asks to the host as they are; what goes wrong there stops the run, since whoever runs it owns the sites."""

    def __init__(self, host: Host) -> None:
        self.host = host

    memory = 0
    """Bytes in other processes than this one."""

    @property
    def sites(self) -> list[str]:
        return list(self.host.sites)

    def ask(self, ask: Ask, sites: Sequence[str]) -> Iterator[Reply | Failure]:
        """Replies in the order of ``sites``, as they come.

        Raises:
            Exception: what went wrong at a site, as it was.
        """
        for answer in self.host.answer(ask, sites):
            if isinstance(answer, Failure) and answer.error is not None:
                raise answer.error
            yield answer

    def commit(self, round: int, last: bool = False) -> dict[str, str]:
        """Let every site keep its store as it is after a round; returns why, of sites that have not: there are none.

        Raises:
            CheckpointError: a store could not be written.
        """
        self.host.commit(round)
        return {}

    def unkept(self) -> dict[str, dict[int, str]]:
        """None: nobody is late."""
        return {}

    def rewind(self, round: int) -> None:
        """Let every site go back to its store as it was after a round."""
        self.host.rewind(round)

    def close(self) -> None:
        """Let other processes work with what the sites keep."""
        self.host.close()
