"""Self-Instruct (Wang et al. 2023, arXiv 2212.10560): a model writes new records after a site's own, at the site.

Nothing of it leaves. FedDCA's authors show two instructions for a new one, and one record for its response.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from murmura.augment.config import WRITER, AugmentConfig
from murmura.augment.strategies import Selections, Strategy
from murmura.drafting.draft import Drafts, Order, draft
from murmura.drafting.plan import Drafting
from murmura.drafting.rejections import REASONS, counted
from murmura.errors import RunError
from murmura.federation.forecast import Forecast, Work, token
from murmura.generation.sampling import Sampling

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.cohort import Cohort
    from murmura.federation.wire.messages import Ask
    from murmura.retrieval.pool import Pool

_INSTRUCTIONS, _EXAMPLES = 2, 1  # shown, as FedDCA's authors do
_TOKENS = 64  # most of a new instruction
_WRITTEN = "written"  # in the server's store: the sites that have had records written


def drafting(config: AugmentConfig) -> Drafting:
    """How much is written for each site, and how."""
    return Drafting(
        drafts=config.records,
        instructions_shown=_INSTRUCTIONS,
        examples_shown=_EXAMPLES,
        instruction_attempts=config.write_attempts,
        example_attempts=config.write_attempts,
        rouge=config.write_rouge,
        alpaca_filters=False,
        instruction_tokens=_TOKENS,
        example_tokens=config.write_tokens,
        sampling=Sampling(config.write_temperature),
    )


def written(cohort: Cohort, ask: Ask, config: AugmentConfig) -> list[Drafts]:
    """New records for each site, by the resident model with the adapter that the ask brings, or by another one."""
    bench = cohort.runtime
    if config.writer is not None:
        bench = bench.another(WRITER)
        adapters = [bench.bank.untrained for _ in cohort.sites]
    else:
        adapters = [cohort.whole(site, ask.payload(site.name).get("adapter")) for site in cohort.sites]
    streams = cohort.streams("write")
    orders = [
        Order(site.records, [], adapter, stream)
        for site, adapter, stream in zip(cohort.sites, adapters, streams, strict=True)
    ]
    return draft(bench, orders, drafting(config))


def account(round: int, drafts: Drafts, asked: int) -> str:
    """How many records were written for a site, and why not more, for its owner."""
    reasons = {reason: drafts.counts[counted(rejection)] for rejection, reason in REASONS.items()}
    why = "".join(f"; {count} times {reason}" for reason, count in reasons.items() if count)
    return f"Round {round}: {len(drafts.records)} of {asked} records were written after this site's own{why}."


class SelfInstruct(Strategy):
    """Sites train on records that a model writes after their own, where they are (Self-Instruct, Wang et al. 2023,
    arXiv 2212.10560, as FedDCA's comparison takes it)."""

    title = "Self-Instruct"
    asks: ClassVar[tuple[str, ...]] = ("write",)
    private: ClassVar[str] = "the records themselves, which are shown at the site to the model that writes"

    def __init__(self, config: AugmentConfig) -> None:
        super().__init__(config)
        self._new: list[str] = []  # sites that have had records written in this round

    @property
    def warning(self) -> str:
        return (
            "Sites would train on records that a model writes after their own (Self-Instruct). These are not public: "
            "they are as private as what they follow, and stay at the site."
        )

    def forecast(self, run: Selections, pool: Pool | None) -> Forecast:
        down = 0 if self.config.writer else run.times * run.sites * run.adapter
        return Forecast(records=self.config.records, tokens=drafting(self.config).most_tokens, down=down)

    def work(self, run: Selections, pool: Pool | None) -> Iterator[Work]:
        each = run.sites * drafting(self.config).most_tokens
        yield Work("tokens to write at the sites", "writing", each, token, run.times, at_most=True)

    def before(self, server: Server, fleet: Fleet, round: int) -> None:
        """What comes before the method in a round (``Server.opening``). A round that is repeated repeats it.

        Raises:
            RunError: too few sites answer.
        """
        self._new = []
        kept: list[str] = server.store.setdefault(_WRITTEN, [])
        due = self.config.is_due(round)
        if due:
            kept.clear()
        sites = [site for site in fleet.sites if due or (site in fleet.answering and site not in kept)]
        if not sites:
            return
        each = server.current(sites) if self.config.writer is None else {}
        before = len(kept)
        try:
            for reply in fleet.ask("write", sites, each):
                kept.append(reply.site)
        except RunError:
            if due:  # later it is about sites that have missed this, and that one does so again stops no run
                raise
        self._new = kept[before:]
        server.tell(
            f"{len(kept) - before} sites have had records written after their own, at most {self.config.records} each "
            "(Self-Instruct), and train on these too; none of them is public, and none has left its site"
        )

    def lost(self, server: Server, sites: Sequence[str]) -> None:
        """Sites that have not kept the round in which they had records written have none, should they come back
        (``Server.losing``), and are asked again."""
        gone = set(self._new).intersection(sites)
        server.store[_WRITTEN] = [site for site in server.store.get(_WRITTEN, []) if site not in gone]
