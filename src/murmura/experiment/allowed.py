"""What a run's guarantee, and its secure sums, leave of an experiment's other wishes."""

from __future__ import annotations

from murmura.experiment.apart import require_apart
from murmura.experiment.config import Experiment
from murmura.experiment.keeping import require_keepable
from murmura.experiment.summing import require_summable
from murmura.federation.method import Method
from murmura.measure.config import EvaluationConfig
from murmura.privacy.plan import PrivacyPlan


def allowed(
    experiment: Experiment, method: Method, promised: PrivacyPlan | None, sites: int | None
) -> EvaluationConfig:
    """How the run is measured, once nothing is asked for that would break what it promises.

    Args:
        promised: the plan that the run follows, as far as that is known.
        sites: of the federation, where that is known.

    Raises:
        ConfigError: something is, and why.
    """
    require_keepable(experiment, method, promised)
    require_apart(experiment, promised, sites or 0)
    secret = bool(promised and promised.has_secret_cohort)
    evaluation = experiment.evaluation.settled(promises=method.protects is not None, secret_cohorts=secret)
    require_summable(experiment, method, evaluation, promised, sites)
    return evaluation
