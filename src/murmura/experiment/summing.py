"""Whether the sums of a run may be secure (``aggregation.secure``), and what its server and sites know of them."""

from __future__ import annotations

import torch

from murmura.errors import ConfigError
from murmura.experiment.config import Experiment
from murmura.federation.method import Method
from murmura.federation.wire.layout import Agreement, Layout
from murmura.federation.wire.masks import protocol_bytes
from murmura.measure.config import EvaluationConfig
from murmura.privacy.plan import PrivacyPlan

_FEWEST = 3  # of two sites each learns the other's vector from the sum and its own


def agreement(experiment: Experiment, method: Method, sites: int) -> Agreement | None:
    """What is known of secure sums without being told; None where sums are in clear.

    Args:
        sites: of the federation.
    """
    options = method.rule.config.secure
    asked = experiment.method.cohort_size or sites
    return Agreement(options, min(asked, sites)) if options else None


def require_summable(
    experiment: Experiment,
    method: Method,
    evaluation: EvaluationConfig,
    promised: PrivacyPlan | None,
    sites: int | None,
) -> None:
    """Refuse ``aggregation.secure`` where something needs more than sums, or a sum would hide nothing. What a method
    or a rule needs is refused before (``methods.build``).

    Args:
        evaluation: settled.
        promised: the plan that the run follows.
        sites: of the federation, where that is known.

    Raises:
        ConfigError: it is refused, and why.
    """
    if not method.rule.config.secure:
        return
    what = fix = None
    if experiment.audit.keep:
        what = "audit.keep keeps what each site sends, which no server sees where sums are secure"
        fix = "Remove one of the two."
    elif _attacks_uploads(experiment, method, evaluation):
        what = "single uploads are to be attacked, which no server sees where sums are secure"
        fix = "Set evaluation.uploads = 0: the model is attacked all the same."
    elif promised is not None and promised.has_secret_cohort:
        what = (
            "the run's ε counts on nobody knowing which sites a round has asked, and in a secure sum sites know of one "
            "another"
        )
        fix = "Set method.sampler = 'full', or leave 'secure' out."
    elif sites is not None and (found := agreement(experiment, method, sites)) and found.cohort < _FEWEST:
        what = f"a sum over {found.cohort} sites hides nothing: of two, each knows the other's part"
        fix = f"Have {_FEWEST} sites or more in a round."
    if what is not None:
        raise ConfigError(what, where="aggregation.secure", fix=fix)


def _attacks_uploads(experiment: Experiment, method: Method, evaluation: EvaluationConfig) -> bool:
    wanted = (bool(evaluation.attacks) or bool(experiment.audit.canaries)) and evaluation.uploads > 0
    return wanted and method.trains and method.uploads_are_heard and not method.keeps_adapters


def foreseen(method: Method, sites: int) -> tuple[float, int, int]:
    """What secure sums over so many sites make of the bytes of tensors.

    Returns:
        How many times as large uploads are, which are foreseen as float32; and bytes that each site sends, and is sent,
        besides.
    """
    options = method.rule.config.secure
    if not options:
        return 1.0, 0, 0
    up, down = protocol_bytes(sites)
    if not method.trains:
        return 1.0, up, down
    weighed = {"adapter": "examples"} if getattr(method, "weight", None) else {}
    like = {"adapter": torch.zeros(1), **dict.fromkeys(weighed.values(), 0)}
    return Layout.of(like, weighed, sites, options).bits / 32, up, down
