"""What the server does for ``[augment]`` at the beginning of a round: choose public records, send them, tell of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter

from murmura.augment.strategies import Chosen, FromPool, Rows, sent
from murmura.augment.telling import given, told
from murmura.errors import ConfigError
from murmura.retrieval.texts import text_hash
from murmura.runs.augment import Selection

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.measure.yardstick import Yardstick
    from murmura.retrieval.pool import Pool
    from murmura.runs.folder import RunFolder

_KEPT = "augment"  # in the server's store
_PREFIX = 8  # bytes of a hash that are compared first


class Augmentation:
    """Chooses public records for all sites, in the first round and whenever it is due again.

    Args:
        strategy: how.
        pool: from what.
        folder: of the run, which tells of every choice.
    """

    def __init__(self, strategy: FromPool, pool: Pool, folder: RunFolder) -> None:
        self.strategy, self.pool, self._folder = strategy, pool, folder
        self._identity = hashlib.sha256(pool.manifest.model_dump_json(include={"files"}).encode()).hexdigest()

    def before(self, server: Server, fleet: Fleet, round: int) -> None:
        """What comes before the method in a round (``Server.opening``). A round that is repeated repeats it.

        Raises:
            RunError: too few sites answer.
        """
        kept = server.store.setdefault(_KEPT, {"pool": self._identity, "selections": []})
        selections = [TypeAdapter(Selection).validate_python(one) for one in kept["selections"]]
        if self.strategy.config.is_due(round):
            selections.append(self._select(server, fleet, round))
            kept["selections"] = [asdict(one) for one in selections]
        self._folder.write_augment(selections)
        if selections[-1].coverage is not None:
            server.note("coverage", selections[-1].coverage)

    def require_same_pool(self, server: Server) -> None:
        """Refuse to go on with another pool than the run was begun with.

        Raises:
            ConfigError: it is another.
        """
        kept: dict[str, Any] | None = server.store.get(_KEPT)
        if kept is not None and kept["pool"] != self._identity:
            raise ConfigError(
                "this is another pool than the run was started with", where=str(self.pool.folder),
                fix="Bring it back as it was, or start another run.",
            )  # fmt: skip

    def _select(self, server: Server, fleet: Fleet, round: int) -> Selection:
        answered = self.strategy.choose(server, fleet, fleet.sites, self.pool, round)
        chosen = {site: answered[site] for site in self._send(fleet, answered)}
        sites = {site: given(one, self.pool, self.strategy.config) for site, one in chosen.items()}
        few = ", ".join(f"{site} {one.rows}" for site, one in sites.items() if one.missing)
        if few:
            wanted = self.strategy.config.records
            server.event(f"the pool has fewer records for these sites than the {wanted} asked for: {few}")
        self._tell_of_long_ones(server, chosen)
        return told(self.strategy, self.pool, answered, sites, round, self.strategy.stream(server, round) / "told")

    def _tell_of_long_ones(self, server: Server, chosen: dict[str, Chosen]) -> None:
        """Sites leave out records that the model cannot take; which these are, the server sees as well."""
        rows = np.unique(np.concatenate([np.zeros(0, np.int64), *(one.rows for one in chosen.values())]))
        dropped = server.workbench.reading.fit(self.pool.records(rows)).dropped
        if dropped:
            server.event(
                f"{dropped} of {len(rows)} public records that sites were given do not fit data.max_length, so nobody "
                "trains on them"
            )

    def _send(self, fleet: Fleet, chosen: dict[str, Chosen]) -> list[str]:
        """Send each site its records; those that have taken them."""
        each = {
            site: {"records": [sent(record) for record in self.pool.records(one.rows)]} for site, one in chosen.items()
        }
        answered = {reply.site for reply in fleet.ask("take", list(each), each)}
        return [site for site in chosen if site in answered]


def measured_with(pool: Pool, yardstick: Yardstick) -> Rows:
    """The rows of a pool that ask what the run is measured with, so that no site may train on them: held-out records,
    non-members, and questions of all kinds. int64, ascending."""
    return asking(pool, [*(one.subject for one in (*yardstick.heldout, *yardstick.nonmembers)), *yardstick.asks])


def asking(pool: Pool, texts: Iterable[str]) -> Rows:
    """The rows of a pool whose question is one of some texts, int64, ascending."""
    wanted = {text_hash(text) for text in texts}
    begin = np.ascontiguousarray(pool.hashes[:, :_PREFIX]).view(np.uint64).ravel()
    begins = np.array([int.from_bytes(one[:_PREFIX], "little") for one in wanted], dtype="<u8")
    found = [int(row) for row in np.flatnonzero(np.isin(begin, begins)) if pool.hashes[row].tobytes() in wanted]
    return np.array(found, dtype=np.int64)
