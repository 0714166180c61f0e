"""How long a run will take on this machine, by steps and tokens that are tried (``murmura run --dry-run --time``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from murmura.experiment.forecast.dry_run import DryRun
from murmura.experiment.prepare import Plan, prepare
from murmura.federation.forecast import Attempt, Trial, Work
from murmura.federation.wire.cohorts import draw
from murmura.streams import Stream


@dataclass(frozen=True)
class Timing:
    """Seconds of a whole run, for all work that could be tried.

    Programs that a benchmark runs, tasks of lm-evaluation-harness, and the search for public records, are not counted;
    private steps are tried as plain ones.
    """

    parts: Sequence[tuple[Work, float]]

    @property
    def total(self) -> float:
        return self.of()

    def of(self, part: str = "", option: str = "") -> float:
        """Seconds of a part of the run's time, or of what an option bounds."""
        return sum(one for work, one in self.parts if part in ("", work.part) and option in ("", work.option))


def timing(dry_run: DryRun) -> Timing:
    """Try a few steps and tokens, and tell from them how long the run that was planned will take.

    The model is loaded, and fetched if need be. Nothing of what is tried is kept.

    Raises:
        MurmuraError: what would stop the run before its first round.
    """
    trial = trial_of(prepare(dry_run.experiment))
    rates: dict[Attempt, float] = {}
    parts = []
    for work in dry_run.work:
        if work.attempt is not None and work.total:
            if work.attempt not in rates:
                rates[work.attempt] = work.attempt(trial)
            parts.append((work, rates[work.attempt] * work.total))
    return Timing(parts)


def trial_of(plan: Plan) -> Trial:
    """What a run's work is tried with: its model, and the records of the sites that its first round asks."""
    context, records = plan.complete
    server, sites = context.runtime("server"), records.planted.sites
    asked = plan.experiment.method.cohort_size
    cohort = draw([site.name for site in sites], asked, Stream(plan.experiment.run.seed), 1)[: server.slots]
    shards = [site.records for site in sites if site.name in cohort]
    return Trial(server, context.runtime("site"), records.public.heldout, shards)
