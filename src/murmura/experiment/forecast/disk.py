"""How much disk a run will take, from sizes alone."""

from __future__ import annotations

from murmura.experiment.forecast.rounds import drawn_cohorts, largest_residual, residual_growth
from murmura.experiment.model_spec import ModelSpec
from murmura.experiment.prepare import Plan
from murmura.experiment.simulation import bytes_of
from murmura.federation.adapter_folder import nbytes_of
from murmura.federation.forecast import SitePart
from murmura.streams import Stream
from murmura.units import FLOAT32


def disk(plan: Plan, model: ModelSpec, names: list[str]) -> int:
    """Most bytes at a time: of checkpoints, final adapters and what a curious server would keep of all rounds
    (``audit.keep``), or of the copies of the records that sites of a simulation are opened from before that.

    There are three checkpoints for a moment: of the two that are kept the older goes when a newer one is whole.

    Args:
        names: of the sites.
    """
    experiment, method, sites = plan.experiment, plan.method, len(names)
    cohorts = drawn_cohorts(experiment, method, names, Stream(experiment.run.seed))
    grown = sum(residual_growth(experiment, method, names, cohorts))
    adapter, beside = model.trainable * FLOAT32, largest_residual(method.rule, model.state, grown)
    kept = method.forecast(SitePart((), 1, True, experiment.training, adapter=adapter))
    own = sites if experiment.personal else 0
    checkpoint = adapter + kept.server_keeps + sites * kept.site_keeps + own * adapter
    final = (own + (sites if method.keeps_adapters else 1)) * (adapter + nbytes_of(model.tokenizer))
    cohort = min(sites, experiment.method.cohort_size or sites)
    rounds = experiment.method.rounds * (1 + cohort) * (adapter + beside) if experiment.audit.keep else 0
    return max(bytes_of({} if plan.is_remote else plan.owned or {}), 3 * checkpoint + final + beside * (3 + 1) + rounds)
