"""What the server does for ``[augment]`` at the beginning of a round: choose public records, send them, tell of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import TypeAdapter

from murmura.augment.selection_summary import centres_of, given, told
from murmura.augment.strategies import Chosen, FromPool, Rows, sent
from murmura.data.texts import text_hash
from murmura.errors import ConfigError, RunError
from murmura.runs import names
from murmura.runs.augment import Given, PublicSelection

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.retrieval.pool import Pool
    from murmura.runs.folder import RunFolder

_KEPT, _GIVEN = "augment", "augment_given"  # in the server's store
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
        self._identity = strategy.identity(pool)
        self._taken: set[str] = set()  # sites that have taken theirs in this round

    def before(self, server: Server, fleet: Fleet, round: int) -> None:
        """What comes before the method in a round (``Server.opening``). A round that is repeated repeats it.

        Raises:
            RunError: too few sites answer.
        """
        self._taken.clear()
        kept = server.store.setdefault(_KEPT, {"pool": self._identity, "selections": []})
        selections = [TypeAdapter(PublicSelection).validate_python(one) for one in kept["selections"]]
        if self.strategy.config.is_due(round):
            server.store.pop(_GIVEN, None)
            selections = [replace(one, points=()) for one in selections]  # many, and no page shows earlier ones
            selections.append(self._select(server, fleet, round))
        elif late := self._late(server, fleet, selections[-1]):
            selections[-1] = self._joined_by(late, selections[-1], server, fleet, round)
        kept["selections"] = [asdict(one) for one in selections]
        self._folder.write(names.AUGMENT, selections)
        if selections[-1].coverage is not None:
            server.note("coverage", selections[-1].coverage)

    def lost(self, server: Server, sites: Sequence[str]) -> None:
        """Of sites that have not kept a round, those that took public records in it have none, should they come back
        (``Server.losing``)."""
        if gone := [site for site in sites if site in self._taken]:
            last = server.store[_KEPT]["selections"][-1]
            last["sites"] = {site: one for site, one in last["sites"].items() if site not in gone}
            for site in gone:
                server.store.get(_GIVEN, {}).pop(site, None)
            server.event(f"these sites have not kept their public records: {', '.join(gone)}; {self._then(server)}")

    def require_same_pool(self, server: Server) -> None:
        """Refuse to go on with another pool, or another index of it, than the run was begun with.

        Raises:
            ConfigError: it is another.
        """
        kept: dict[str, Any] | None = server.store.get(_KEPT)
        if kept is not None and kept["pool"] != self._identity:
            or_index = ", or another index of it," if self.strategy.config.search == "approximate" else ""
            what = f"this is another pool{or_index} than the run was started with"
            fix = "Bring it back as it was, or start another run."
            raise ConfigError(what, where=str(self.pool.folder), fix=fix)

    def _select(self, server: Server, fleet: Fleet, round: int) -> PublicSelection:
        answered, sites = self._give(server, fleet, fleet.sites, round)
        if missing := [site for site in fleet.sites if site not in sites]:
            then = self._then(server)
            server.event(f"these sites have no public records of this choice: {', '.join(missing)}; {then}")
        return told(self.strategy, self.pool, answered, sites, round, self.strategy.stream(server, round) / "told")

    # ---- sites that miss a choice ------------------------------------------------------------------------------------

    @property
    def _asks_again(self) -> bool:
        """Noisy centres that were lost on their way have cost their ε, and would cost it again."""
        return self.strategy.config.noise_multiplier is None

    def _then(self, server: Server) -> str:
        if not self._asks_again:
            return "they are not asked again for it, since centres that have left would cost their ε twice"
        when = "of a later round, if they answer anything" if server.publication.tells_sites else "of every round"
        return f"they are asked again at the beginning {when}"

    def _late(self, server: Server, fleet: Fleet, last: PublicSelection) -> list[str]:
        """Sites that have missed the last choice and answer again. Who answers tells who was asked: where cohorts are
        secret, all that have missed it."""
        if not self._asks_again:
            return []
        heard = fleet.answering if server.publication.tells_sites else fleet.sites
        return [site for site in fleet.sites if site in heard and site not in last.sites]

    def _joined_by(
        self, late: Sequence[str], last: PublicSelection, server: Server, fleet: Fleet, round: int
    ) -> PublicSelection:
        """The last choice with what these sites are given now; that one does not answer stops no run."""
        try:
            answered, sites = self._give(server, fleet, late, round)
        except RunError as error:
            server.event(f"{error.what}; {', '.join(late)} had no public records before, and have none now")
            return last
        if sites:
            server.event(f"public records for sites that had missed those of round {last.round}: {', '.join(sites)}")
        known = {**last.sites, **sites}
        centres, alone = centres_of(answered.values(), self.strategy.config)
        return replace(
            last,
            sites={site: known[site] for site in fleet.sites if site in known},
            centres=_sum(last.centres, centres),
            alone=_sum(last.alone, alone),
        )

    # ---- what is sent ------------------------------------------------------------------------------------------------

    def _give(
        self, server: Server, fleet: Fleet, sites: Sequence[str], round: int
    ) -> tuple[dict[str, Chosen], dict[str, Given]]:
        """Choose for some sites and send them their records: what was chosen, and what each has that has taken it."""
        before, config = server.store.get(_GIVEN, {}), self.strategy.config
        if isinstance(before, torch.Tensor):  # of an earlier release, which did not note whose they are
            before = {"": before}
        strategy = self.strategy.without(torch.cat(list(before.values())).numpy()) if before else self.strategy
        chosen = strategy.choose(server, fleet, sites, self.pool, round)
        self._tell_of_few(server, chosen)
        chosen = self._fitting(server, chosen)
        each = {
            site: {"records": [sent(record) for record in self.pool.records(one.rows)]} for site, one in chosen.items()
        }
        taken = set()
        try:
            for reply in fleet.ask("take", list(each), each):
                taken.add(reply.site)
        except RunError:
            if config.is_due(round):
                raise
        self._taken |= taken
        if config.dedup == "all":
            rows = {site: torch.from_numpy(one.rows) for site, one in chosen.items() if site in taken}
            server.store[_GIVEN] = {**before, **rows}
        return chosen, {site: given(one, self.pool, config) for site, one in chosen.items() if site in taken}

    def _tell_of_few(self, server: Server, chosen: dict[str, Chosen]) -> None:
        """Tell where the pool is too small; of a site without centres the strategy has told."""
        config = self.strategy.config
        sought = {site: len(one.rows) for site, one in chosen.items() if one.sizes is None or len(one.sizes)}
        few = [f"{site} {count}" for site, count in sought.items() if config.bytes is None and count < config.records]
        if few:
            whose = "the pool has" if config.search == "exact" else "the index of the pool proposes"
            server.event(f"{whose} fewer records for these sites than the {config.records} asked for: {', '.join(few)}")

    def _fitting(self, server: Server, chosen: dict[str, Chosen]) -> dict[str, Chosen]:
        """Without records that the model cannot take: sites would leave them out, and count for them all the same."""
        rows = np.unique(np.concatenate([np.zeros(0, np.int64), *(one.rows for one in chosen.values())]))
        fit = rows[list(server.runtime.reading.fit(self.pool.records(rows)).kept)]
        if len(fit) == len(rows):
            return chosen
        server.event(
            f"{len(rows) - len(fit)} of {len(rows)} public records that were chosen do not fit data.max_length, and no "
            "site is given them"
        )
        return {site: one.of(fit) for site, one in chosen.items()}


def _sum(before: int | None, more: int | None) -> int | None:
    return before if more is None else (before or 0) + more


def asking(pool: Pool, texts: Iterable[str]) -> Rows:
    """The rows of a pool whose question is one of some texts, int64, ascending."""
    wanted = {text_hash(text) for text in texts}
    begin = np.ascontiguousarray(pool.hashes[:, :_PREFIX]).view(np.uint64).ravel()
    begins = np.array([int.from_bytes(one[:_PREFIX], "little") for one in wanted], dtype="<u8")
    found = [int(row) for row in np.flatnonzero(np.isin(begin, begins)) if pool.hashes[row].tobytes() in wanted]
    return np.array(found, dtype=np.int64)
