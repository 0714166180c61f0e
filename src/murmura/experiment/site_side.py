"""The sites' side of a run, assembled from the experiment and the sites' own records; no server is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from murmura.data.records import KINDS, Kind, digest
from murmura.experiment.context import ProcessContext
from murmura.experiment.summing import agreement
from murmura.experiment.verbs import verbs_of
from murmura.federation.method import Method
from murmura.federation.site.answer import Host
from murmura.federation.site.answered import Answered
from murmura.federation.site.cohort import Site
from murmura.federation.site.identity import identity, read_roster
from murmura.federation.site.masking import Masking
from murmura.federation.site.signed import SignedInAllRuns
from murmura.federation.site.store import SiteStore
from murmura.privacy.budget import Budget, BudgetConfig
from murmura.privacy.journal import Journal
from murmura.runs.locks import allow_open_files
from murmura.runs.schema import ANSWERS_JOURNAL, SUMS_JOURNAL
from murmura.streams import Stream


def assemble(
    context: ProcessContext,
    method: Method,
    records: Mapping[str, Sequence[Any]],
    *,
    run: str,
    private: Path,
    results: Path,
) -> Host:
    """Sites that share a resident model. What they keep is theirs alone until ``Host.close``.

    Args:
        context: of this process; of its experiment's data section nothing is read.
        method: of the run.
        records: of each site, all of which fit the model.
        run: the run's id.
        private: a folder for what each site keeps to itself, and with secure sums for the roster of all sites.
        results: a folder for what each site keeps as its own when the run is finished.

    Raises:
        DataError: a site cannot take part with its records.
        CheckpointError: another process works with what a site keeps, or it cannot be written; or there is no
            roster of the sites.
        SecureSumError: the roster has another key for a site than its own.
        PrivacyError: a journal of a site is damaged, or its account over all runs.
    """
    experiment = context.experiment
    for name, own in records.items():
        method.check(name, own)
    runtime = context.runtime("site")
    allow_open_files(len(records))
    roster = read_roster(private) if method.rule.config.secure else {}
    agreed = agreement(experiment, method, len(roster))
    sites = []
    with ExitStack() as opened:
        for name, own in records.items():
            kept = SiteStore.held(private, name)
            opened.callback(kept.release)
            budget, masking, accounts = None, None, experiment.budget.folder
            if accounts:
                budget = _budget(experiment.budget, name, own)
            if agreed:
                signed = Journal(kept.folder / SUMS_JOURNAL, f"journal of secure sums of site {name}")
                all_runs = SignedInAllRuns(Path(accounts), own, run) if accounts else None
                masking = Masking(name, run, identity(kept.folder), roster, agreed, signed, all_runs)
            sites.append(
                Site(
                    name, list(own), kept=kept, journal=kept.ledger, centres=kept.centres, results=results,
                    budget=budget, masking=masking, answered=Answered(kept.folder / ANSWERS_JOURNAL),
                )
            )  # fmt: skip
        opened.pop_all()
    return Host(
        sites, verbs_of(experiment, method), runtime, Stream(experiment.run.seed), method.rule, run,
        experiment.method.total_rounds,
    )  # fmt: skip


def _budget(chosen: BudgetConfig, site: str, records: Sequence[Any]) -> Budget:
    """The account of a site, in the place that its owner has chosen for all runs."""
    assert chosen.folder is not None
    return Budget(Path(chosen.folder), site, digest(list(records)), chosen.epsilon, chosen.delta)


def told(records: Mapping[str, Sequence[Any]]) -> dict[str, list[dict[str, Any]]]:
    """Sites' records as JSON, for the process in which the sites are simulated."""
    return {name: [asdict(record) for record in own] for name, own in records.items()}


def heard(kind: Kind, told: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[Any]]:
    """The inverse of ``told``."""
    return {name: [KINDS[kind](**fields) for fields in own] for name, own in told.items()}
