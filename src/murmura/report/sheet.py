"""A sheet for the data-protection officer of a run, made of what the report is made of, with a place to sign."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from murmura.federation.wire.releases import DifferentialPrivacy
from murmura.report.content import Block, Listing, Paragraph, Pictures, ReportSection
from murmura.report.guarantee import interrupted, limits
from murmura.report.in_short import LEAKS, contradicted, in_short, standing_of
from murmura.report.output_file import replacing
from murmura.report.page import rendered, warnings
from murmura.report.protection import added_by_server, protection, summed
from murmura.report.run_facts import facts
from murmura.report.sections.disclosure import disclosure
from murmura.report.sections.guarantee import guarantee
from murmura.report.sections.others import told_others
from murmura.report.standing import UNATTACKED, promised
from murmura.report.table import Row, table
from murmura.runs.record import RunRecord
from murmura.runs.schema import Disclosure
from murmura.units import listing

_FACTS = ("Model", "Data", "Sites", "Rounds", "Seed", "Started", "Engine", "Software")
_SIMULATED = (
    "This run was a simulation: all records were on one machine, and whoever works on it could see them. What follows "
    "is for sites on machines of their own."
)
_NETWORK = (
    "Who listens on the network: which machines speak with one another, when, and how many bytes. TLS hides the rest."
)
_ANYONE = "Other sites, and whoever is given the result: what the server made of all this. They can keep trying."
_LOWER = "Other attacks may find more. The report has every figure ({})."
_ADDED = "`murmura privacy spent RUN...` adds up ε"
_AT_SITES = (
    "ask each site’s owner: `murmura site log` tells which runs had answers, and [budget] in site.toml stops what "
    "would be too much"
)
_SITE = "Whoever works on a site’s own machine: all of its records. Nothing here protects against them."


def write_sheet(run: RunRecord, out: Path) -> Path:
    """Write the sheet of a run as one self-contained HTML file.

    Raises:
        CheckpointError: it cannot be written.
    """
    rows = table([run])
    told = facts(rows)
    page = rendered(
        "sheet.html.j2",
        title=f"{run.label}, {run.name}",
        warnings=warnings(rows),
        facts={name: told[name] for name in _FACTS if name in told},
        digest=hashlib.sha256(run.config.encode()).hexdigest(),
        sections=sheet(rows[0]),
    )
    with replacing(out, "the sheet", "--sheet") as stream:
        stream.write(page)
    return out


def sheet(row: Row) -> list[ReportSection]:
    """Its parts: what left, who could see it, what is guaranteed, what attackers found, and what is not covered.

    Args:
        row: of one run.
    """
    answers = in_short([row]).answers
    return [
        disclosure([row]),
        ReportSection("Who could see it", blocks=[Listing(_seen(row.runs[0]))]),
        _guaranteed(row, [*promised([standing_of(row)]), *interrupted([row]), *contradicted(row.runs)]),
        ReportSection("What an attacker found", blocks=[Paragraph(" ".join(_found(row.runs[0], answers[LEAKS])))]),
        ReportSection("What is not covered", blocks=[Listing(_uncovered(row))]),
    ]


def _found(run: RunRecord, told: Sequence[str]) -> Sequence[str]:
    figures = "“Results” and “Audit”" if run.audit else "“Results”"
    return told if UNATTACKED in told else [*told, _LOWER.format(figures)]


def _guaranteed(row: Row, told: Sequence[str]) -> ReportSection:
    """The report's own section, without its pictures; where it has none, that nothing is guaranteed."""
    found = guarantee([row])
    blocks: list[Block] = [] if found is None else [one for one in found.blocks if not isinstance(one, Pictures)]
    return ReportSection(
        "What is guaranteed", "" if found is None else found.lead, [Paragraph(" ".join(told)), *blocks]
    )


def _seen(run: RunRecord) -> list[str]:
    """By whom, of each kind of protection what was sent under it."""
    sent = run.disclosure
    if sent is None:
        server = ["The server: not recorded, and so it cannot be told."]
    elif not sent:
        server = ["The server: nothing, since nothing left any site."]
    else:
        server = _by_server(sent)
    return [
        *([_SIMULATED] if run.simulated else []),
        *server,
        *told_others(run),
        _ANYONE,
        *([] if run.simulated else [_NETWORK]),
        _SITE,
    ]


def _by_server(sent: tuple[Disclosure, ...]) -> list[str]:
    told: dict[str, list[str]] = {}
    for one in sent:
        told.setdefault(_how(one), []).append(f"“{one.field}”")
    return [
        f"The server, and whoever runs it or breaks into it: {listing(list(dict.fromkeys(fields)))} {how}."
        for how, fields in told.items()
    ]


def _how(one: Disclosure) -> str:
    noisy = isinstance(protection(one), DifferentialPrivacy)
    trusted = "without noise, which the server adds itself: that it does so must be trusted"
    if summed(one):
        noise = f", {trusted}" if added_by_server(one) else ", with noise that sites add" if noisy else ""
        return f"as the sum over the sites asked, and of no single site{noise}"
    if not noisy:
        return "of each site, as sent"
    return f"of each site {trusted}" if added_by_server(one) else "of each site, with noise that was added there"


def _uncovered(row: Row) -> list[str]:
    """What the run does not protect from, by what it was."""
    run = row.runs[0]
    experiment, sent = run.options, run.disclosure or ()
    private = run.last.privacy.get("epsilon") is not None
    told = _beyond(run, experiment) if private else ["Any attack that was not tried: no guarantee bounds it."]
    told.append(f"Other runs over the same records: their risks add up ({_ADDED if run.simulated else _AT_SITES}).")
    told += limits([row])
    texts = any(one.kind == "text" and protection(one) is None for one in sent)
    if texts or any("drafts" in key for key in _counted(run)) or _written_at_sites(experiment):
        told.append("Texts that were written after private records: they are as private as those records.")
    if any(one.private for one in run.augment):
        where = "“Public records for the sites” in the report"
        told.append(f"Which public records a site was given: that follows from what it sent ({where}).")
    told.append("Whether the purpose is lawful, and whether consent covers it: no figure can tell.")
    return told


def _beyond(run: RunRecord, experiment: Mapping[str, Any]) -> list[str]:
    """What a run's ε is not for."""
    data, unit = experiment.get("data", {}), run.last.privacy["unit"]
    most, at = data.get("records_per_user"), run.exclusions.person_at if run.exclusions else None
    bare = [f"“{one.field}”" for one in run.disclosure or () if protection(one) is None and one.kind != "keys"]
    told = [f"What left without noise or secure sum: {listing(list(dict.fromkeys(bare)))}."] if bare else []
    if unit == "record" and not isinstance(most, int):
        told.append(
            "Persons with several records: ε is for one record, and the run did not bound how many a person has "
            "(data.user, data.records_per_user)."
        )
    if unit == "site" or at is None or at > 1:
        told.append(f"Persons with records at several sites: ε is for one {unit}, and no site sees that.")
    if not data.get("heldout") or data.get("nonmember_records"):
        told.append("Records that were taken out of the private ones to measure on: no ε covers those figures.")
    return told


def _written_at_sites(experiment: Mapping[str, Any]) -> bool:
    """Whether sites trained on records that a model wrote there after their own, which no run counts."""
    return experiment.get("augment", {}).get("strategy") == "self-instruct"


def _counted(run: RunRecord) -> set[str]:
    return {key for one in run.rounds for key in one.counts}
