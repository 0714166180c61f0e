"""Why a run would stop before its first round, other than by what stops its dry run too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from murmura.errors import MurmuraError
from murmura.experiment.config import Experiment
from murmura.experiment.forecast.budget import require_answers
from murmura.federation.method import Method
from murmura.privacy.plan import PrivacyPlan
from murmura.runs.folder import RunFolder


def refusals(
    experiment: Experiment,
    method: Method,
    promised: PrivacyPlan | None,
    records: Mapping[str, Sequence[Any]] | None,
    disk: int | None,
) -> list[str]:
    """What the run would say, each time that it would refuse to start: all of it is worth knowing at once, beside what
    the run would take.

    Args:
        experiment: with what is measured decided.
        promised: the plan that the run follows.
        records: of each site, where they are known.
        disk: bytes that the run needs, where they are known.
    """
    tried: list[Callable[[], None]] = []
    if disk is not None:
        tried.append(lambda: RunFolder(experiment.run.path).require_room(disk))
    if records:
        tried.append(lambda: require_answers(experiment, method, promised, records))
    return [said for attempt in tried if (said := _refused(attempt))]


def _refused(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except MurmuraError as error:
        return str(error)
    return ""
