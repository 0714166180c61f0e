"""The commands that run it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from murmura.report.content import Block, Paragraph, ReportSection, folded, note
from murmura.report.run_facts import software
from murmura.report.table import Row, runs_of
from murmura.runs.names import CONFIG
from murmura.runs.record import RunRecord
from murmura.runs.schema import DEPLOYED

_LEAD = (
    "A run’s config.toml has every option as the last round was run with, the seed too. On the same machine, with as "
    "many threads and the same versions, the same seed gives the same figures, digit for digit, but for times and "
    "memory; on another one the last digits may differ."
)
_NOISE = "Noise and samples of an ε come from the operating system and not from the seed: figures come out otherwise."
_RESUMED = "An option changed while it ran (“Options changed”, above): the command has the last value from the start."
_DEPLOYED = "Sites were on machines of their own: `murmura serve FOLDER`, with the federation’s folder, leads it again."
_FEW = 4


def repeat(rows: Sequence[Row]) -> ReportSection:
    """Of each run, with which versions it was made, and the command."""
    runs = runs_of(rows)
    commands = [command(run) for run in runs if not _deployed(run)]
    told = [
        f"# with {versions}" for versions in dict.fromkeys(software(run.environment) for run in runs if run.environment)
    ]
    blocks: list[Block] = []
    if commands:
        several = f"The commands of {len(commands)} runs" * (len(commands) > _FEW)
        blocks += folded([Paragraph("\n".join([*told, *commands]), "file")], several)
    blocks += [note(_DEPLOYED)] * any(map(_deployed, runs))
    blocks += [note(_NOISE)] * any(run.last.privacy for run in runs)
    blocks += [note(_RESUMED)] * any(one.changed for run in runs for one in run.resumed)
    return ReportSection("To run it again", _LEAD, blocks)


def command(run: RunRecord) -> str:
    """Into a folder of its own, so that nothing is replaced."""
    again = f"run.folder={run.folder}-again"
    return shlex.join(["murmura", "run", str(run.folder / CONFIG), "--set", again])


def _deployed(run: RunRecord) -> bool:
    return bool(run.options.get("run", {}).get("engine") == DEPLOYED)
