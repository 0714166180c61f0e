"""How much disk a run will take, from sizes alone."""

from __future__ import annotations

from murmura.aggregation.low_rank import modules
from murmura.aggregation.rules import Rule
from murmura.experiment.model_spec import ModelSpec
from murmura.experiment.prepare import Plan
from murmura.experiment.simulation import bytes_of
from murmura.federation.adapter_folder import nbytes_of
from murmura.federation.forecast import SitePart
from murmura.training.adapter import State
from murmura.units import FLOAT32


def disk(plan: Plan, model: ModelSpec, sites: int, rank: int) -> int:
    """Most bytes at a time: of checkpoints, final adapters and what a curious server would keep of all rounds
    (``audit.keep``), or of the copies of the records that sites of a simulation are opened from before that.

    There are three checkpoints for a moment: of the two that are kept the older goes when a newer one is whole.

    Args:
        sites: how many there are.
        rank: most that the rank of a residual can have grown to at the end.
    """
    experiment, method = plan.experiment, plan.method
    adapter, beside = model.trainable * FLOAT32, residual(method.rule, model.state, rank)
    kept = method.forecast(SitePart((), 1, True, experiment.training, adapter=adapter))
    own = sites if experiment.personal else 0
    checkpoint = adapter + kept.server_keeps + sites * kept.site_keeps + own * adapter
    final = (own + (sites if method.keeps_adapters else 1)) * (adapter + nbytes_of(model.tokenizer))
    cohort = min(sites, experiment.method.cohort_size or sites)
    rounds = experiment.method.rounds * (1 + cohort) * (adapter + beside) if experiment.audit.keep else 0
    return max(bytes_of({} if plan.is_remote else plan.owned or {}), 3 * checkpoint + final + beside * (3 + 1) + rounds)


def residual(rule: Rule, adapter: State, rank: int) -> int:
    """Most bytes of a residual beside an adapter.

    Args:
        rank: most that its rank can have grown to, but for the sizes of the weights and the rule's own limit.
    """
    shapes = [(adapter[b].shape[0], adapter[a].shape[1]) for a, b in modules(adapter)]
    return FLOAT32 * sum(min(rank, rule.config.residual_rank or rank, *shape) * sum(shape) for shape in shapes)
