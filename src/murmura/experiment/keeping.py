"""Whether a run may keep what a curious server would (``audit.keep``)."""

from __future__ import annotations

from murmura.errors import ConfigError
from murmura.experiment.config import Experiment
from murmura.federation.method import Method
from murmura.privacy.plan import PrivacyPlan


def require_keepable(experiment: Experiment, method: Method, promised: PrivacyPlan | None) -> None:
    """Refuse ``audit.keep`` where there is nothing to keep, or where to keep it would break what is promised.

    Args:
        promised: the plan that the run follows.

    Raises:
        ConfigError: it is refused, and why.
    """
    if not experiment.audit.keep:
        return
    if method.keeps_adapters or not method.trains or not method.uploads_are_heard:
        raise ConfigError(
            "of this method no server sees what could be kept: sites send it no adapter of theirs",
            where="audit.keep", fix="Remove it; `murmura audit` attacks what the run leaves all the same.",
        )  # fmt: skip
    if promised is not None and promised.unit == "site":
        raise ConfigError(
            "the ε of whole sites holds for the noisy sum alone: single uploads have no noise, and tell who took part",
            where="audit.keep", fix="Remove it; `murmura audit` attacks the model all the same.",
        )  # fmt: skip
