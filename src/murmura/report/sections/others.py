"""Who else was told something of a run: besides server and sites, by what its owner asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from murmura.report.content import Listing, ReportSection
from murmura.report.table import Row, each_run, runs_of
from murmura.runs.judgement import Posted
from murmura.runs.record import RunRecord
from murmura.units import listing

_LEAD = "Besides server and sites. What is sent to a server of somebody else, an endpoint, cannot be called back."
_TRACKERS = {
    "tensorboard": "TensorBoard (files)",
    "mlflow": "MLflow ({})",
    "wandb": "Weights & Biases (a server of that company, unless the environment named another or none)",
}
_SOURCES = {
    True: "questions that come out of the sites’ private records",
    False: "questions that do not come out of the sites’ records",
}


def others(rows: Sequence[Row]) -> ReportSection | None:
    """Of those runs of which somebody else was told."""
    found = [run for run in runs_of(rows) if told_others(run)]
    if not found:
        return None
    return ReportSection("Who else was told", _LEAD, each_run(rows, found, lambda run: [Listing(told_others(run))]))


def told_others(run: RunRecord) -> list[str]:
    """Who was told what, a sentence each; none where nobody was."""
    return [*map(_judge, run.posted), *_writer(run), *_trackers(run)]


def _judge(posted: Posted) -> str:
    own = f", one of them by the adapter that site ‘{posted.site}’ keeps for itself" if posted.site else ""
    return (
        f"Whoever runs {posted.where}, where answers were judged: {_SOURCES[posted.private]}, with two answers to "
        f"each{own}."
    )


def _writer(run: RunRecord) -> Iterator[str]:
    """Who writes texts for a method that has an endpoint do it."""
    method = run.options.get("method", {})
    if method.get("endpoint") and method.get("samples", 1):
        private = method.get("seeds") == "private"
        what = "texts of the sites, as they are" if private else "the texts that further ones are written after"
        yield f"Whoever runs {method['endpoint']}, where texts are written (method.endpoint): {what}, in prompts."


def _trackers(run: RunRecord) -> Iterator[str]:
    tracking = run.options.get("tracking", {})
    if to := tracking.get("to"):
        kept = tracking.get("mlflow_uri") or "files"
        names = [_TRACKERS.get(one, one).format(kept) for one in to]
        yield (
            f"Whoever can read what trackers were told (tracking.to), {listing(names)}: the figures of rounds that the "
            "run publishes, and its options."
        )
