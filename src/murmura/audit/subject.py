"""What an audit needs of a finished run: its sites' records, records that no site has, and its models.

Records are prepared as they were for the run, by the same code from the same seed, and held to the digests that the
sites kept when they joined. So members are members, whatever has become of the files since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmura.data.records import digest
from murmura.errors import CheckpointError, ConfigError, DataError
from murmura.experiment.config import Experiment
from murmura.experiment.context import runtime_over
from murmura.experiment.inputs import require_same_inputs
from murmura.experiment.prepare import records_of
from murmura.experiment.released import RunModels
from murmura.experiment.trained import finished
from murmura.experiment.validate import method_of
from murmura.federation.server.transcript import TranscriptRound, kept_rounds
from murmura.federation.site.site import Site
from murmura.model_runtime import ModelRuntime
from murmura.privacy.journal import Journal
from murmura.runs.folder import RunFolder
from murmura.runs.names import SITE_JOURNAL, SITE_RECORDS
from murmura.runs.schema import DEPLOYED
from murmura.streams import Stream


@dataclass(frozen=True)
class Subject:
    """A finished run of a simulation.

    Attributes:
        experiment: as its last round was run.
        runtime: the base model with what records of the run need.
        models: what the run has left.
        records: of each site all that it joined with.
        members: each site's own records that can be attacked, without canaries.
        others: records that no site trained on, at least one.
        rounds: what a curious server has kept, where the run was told to keep it.
        stream: the run's randomness.
    """

    experiment: Experiment
    runtime: ModelRuntime
    models: RunModels
    records: Mapping[str, Sequence[Any]]
    members: Mapping[str, Sequence[Any]]
    others: Sequence[Any]
    rounds: Sequence[TranscriptRound]
    stream: Stream


def subject(path: Path) -> Subject:
    """Load a run.

    Args:
        path: of the run folder.

    Raises:
        CheckpointError: no run, one that is not finished, one whose ``model.adapter`` is another now, or one whose
            sites' journals are not here.
        ConfigError: a real deployment, or a run that left no model.
        DataError: the records are others than those of the run, or there are none to compare with.
        ModelError: a model cannot be loaded.
    """
    folder = RunFolder(path)
    experiment = finished(path)
    if experiment.run.engine == DEPLOYED:
        raise ConfigError(
            f"the sites of this run were real (run.engine = '{experiment.run.engine}'), and their records are not here",
            where=str(path),
            fix="Audit a simulation; real sites measure leakage themselves: evaluation.attacks = true.",
        )
    require_same_inputs(folder, experiment)
    released = RunModels(experiment, folder)
    runtime = runtime_over(experiment, released.bank, released.tokenizer, released.start)
    stream = Stream(experiment.run.seed)
    method = method_of(experiment)
    prepared = records_of(experiment, method, runtime.reading)
    joined = prepared.planted.sites
    hold_to_digests(folder, joined)
    others = [record for record in prepared.public.nonmembers if record.is_complete]
    if not others:
        fix = "Hold out more records (data.heldout_records) or, beside a file of them, give data.nonmember_records."
        raise DataError("there is no record that no site trained on, to compare members with", where=str(path), fix=fix)
    planted = experiment.task.is_canary if experiment.audit.canaries else lambda record: False
    own = {site.name: method.members(site, stream) for site in joined}
    members = {
        site: [record for record in records if record.is_complete and not planted(record)]
        for site, records in own.items()
    }
    records = {site.name: site.records for site in joined}
    return Subject(experiment, runtime, released, records, members, others, kept_rounds(folder.transcript), stream)


def hold_to_digests(folder: RunFolder, sites: Sequence[Site]) -> None:
    """Refuse records that are not those that the run was trained on.

    Raises:
        CheckpointError: the run has no journal of a site's records here.
        DataError: they are others.
    """
    for site in sites:
        noted = _digest(folder.private_of(site.name) / SITE_JOURNAL, site.name)
        if noted is None:
            what = f"what site {site.name} noted of its records is not here, so nobody knows whether these are they"
            fix = "Take the folder where the run was made, not a copy of its published files."
            raise CheckpointError(what, where=str(folder.private), fix=fix)
        if noted != digest(site.records):
            fix = "Bring the files of the [data] section back as they were, or choose another run."
            raise DataError("the records are not those that the run was trained on", where=f"site {site.name}", fix=fix)


def _digest(journal: Path, site: str) -> str | None:
    """Of the records that a site joined with; None where that is not noted."""
    lines = Journal.peek(journal, f"journal of site {site}").lines
    return next((line[SITE_RECORDS] for line in lines if SITE_RECORDS in line), None)
