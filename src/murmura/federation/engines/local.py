"""All sites on this machine, in this process, sharing one resident model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from murmura.errors import UndeclaredReleaseError, nearest
from murmura.federation.cohort import Cohort, Site
from murmura.federation.messages import Ask, Failure, Payload, Reply
from murmura.federation.method import Method
from murmura.streams import Stream
from murmura.workbench import Workbench


class LocalEngine:
    """Runs verbs on cohorts of at most ``workbench.slots`` sites."""

    def __init__(self, sites: Sequence[Site], method: Method, workbench: Workbench, stream: Stream) -> None:
        self._sites = {site.name: site for site in sites}
        self.method, self.workbench, self.stream = method, workbench, stream

    @property
    def sites(self) -> list[str]:
        return list(self._sites)

    def ask(self, ask: Ask, sites: Sequence[str]) -> Iterator[Reply | Failure]:
        """Replies in the order of ``sites``, as they come."""
        for start in range(0, len(sites), self.workbench.slots):
            yield from self.work(ask, sites[start : start + self.workbench.slots])

    def work(self, ask: Ask, sites: Sequence[str]) -> list[Reply]:
        """One cohort's replies; raises ``UndeclaredReleaseError`` before anything undeclared is sent."""
        declared = self.method.releases(ask.verb)
        cohort = Cohort([self._sites[name] for name in sites], self.workbench, ask, self.stream, self.method.rule)
        replies: list[Reply] = getattr(self.method, ask.verb)(cohort, ask)
        for reply in replies:
            for name in reply.fields:
                if name not in declared:
                    raise UndeclaredReleaseError(
                        f"verb {ask.verb} would send '{name}', which it does not declare",
                        where=f"site {reply.site}, round {ask.round}",
                        fix=nearest(name, declared),
                    )
        return replies

    def stores(self) -> dict[str, Payload]:
        """What each site keeps to itself, for the checkpoint; sites that keep nothing are left out."""
        return {name: site.store for name, site in self._sites.items() if site.store}

    def restore(self, stores: dict[str, Payload]) -> None:
        for name, site in self._sites.items():
            site.store = stores.get(name, {})
