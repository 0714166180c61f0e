"""MLflow, in a database or at a server."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TypeVar

from murmura.tracking.sink import Sink, Tracked

T = TypeVar("T")

_RUN, _REPORT = "murmura.run", "murmura.report"
_LONGEST = 500  # characters of a parameter that every store takes
_ODD = re.compile(r"[^/\w.\- :]")  # what no name of its own may have


class MLflow(Sink):
    """A run of the experiment that ``project`` names; its tag ``murmura.run`` is the run's id, by which it is found
    again."""

    needs = extra = "mlflow"

    def __init__(self, run: Tracked) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would tell its makers what is called
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # else it tells of every table that it makes
        run.folder.mkdir(parents=True, exist_ok=True)
        self._client = MlflowClient(run.uri or f"sqlite:///{run.folder.absolute() / 'mlflow.db'}")
        known = self._client.get_experiment_by_name(run.project)
        experiment = known.experiment_id if known else self._client.create_experiment(run.project)
        found = self._client.search_runs([experiment], f"tags.`{_RUN}` = '{run.run}'")
        if found:
            self._run = found[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            return
        self._run = self._client.create_run(experiment, tags={_RUN: run.run}, run_name=run.name).info.run_id
        given = [Param(key, value[:_LONGEST]) for key, value in _named(run.parameters).items()]
        for start in range(0, len(given), 100):  # as many as a server takes at once
            self._client.log_batch(self._run, params=given[start : start + 100])

    def log(self, round: int, figures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(
            self._run, metrics=[Metric(key, value, now, round) for key, value in _named(figures).items()]
        )

    def close(self, report: Path | None) -> None:
        if report is not None:
            self._client.set_tag(self._run, _REPORT, str(report))
        self._client.set_terminated(self._run, "FINISHED" if report is not None else "KILLED")


def _named(values: Mapping[str, T]) -> dict[str, T]:
    """Values by names that MLflow takes; of names that would be the same then, the later ones have a number."""
    found: dict[str, T] = {}
    for key, value in values.items():
        name = plain = _ODD.sub("_", key)
        for number in count(2):
            if name not in found:
                break
            name = f"{plain}_{number}"
        found[name] = value
    return found
