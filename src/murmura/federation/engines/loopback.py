"""The local engine with every ask and reply sent through the wire encoding.

Nothing crosses by reference, so a method that passes here will pass a network. Sites work alone, as they would there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from murmura.federation.engines.local import LocalEngine
from murmura.federation.messages import Ask, Failure, Reply, decode, encode


class LoopbackEngine(LocalEngine):
    """For tests of methods, and for whoever writes one."""

    def ask(self, ask: Ask, sites: Sequence[str]) -> Iterator[Reply | Failure]:
        for site in sites:
            received = Ask(ask.verb, ask.round, decode(encode(ask.payload(site))))
            for reply in self.work(received, [site]):
                yield Reply(reply.site, decode(encode(reply.fields)))
