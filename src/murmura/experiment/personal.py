"""Which of a site's records are set apart under an experiment; the same in every process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from murmura.experiment.config import Experiment
from murmura.federation.method import Method
from murmura.personal.apart import set_apart
from murmura.streams import Stream


def apart_of(experiment: Experiment, method: Method, site: str, records: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The records that a site takes part with, and those that it only measures its own model with (``[personal]``).

    Canaries are never set apart: they are to be trained on.
    """
    options = experiment.personal
    share = 0.0 if options is None else options.apart(promises=method.protects is not None)
    stays = experiment.task.is_canary if experiment.audit.canaries else lambda record: False
    return set_apart(records, share, Stream(experiment.run.seed), site, stays)
