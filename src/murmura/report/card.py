"""What the card of an exported model says of its run, in Markdown and in the report's own words."""

from __future__ import annotations

from murmura.report.content import Block, Paragraph, Table
from murmura.report.markdown import markdown
from murmura.report.run_facts import facts
from murmura.report.sections.audit import figures_of
from murmura.report.sections.disclosure import disclosure
from murmura.report.table import table
from murmura.runs.record import RunRecord

_TOLD = ("Model", "Data", "Sites", "Records left out", "Held-out records", "Read as", "Rounds", "Seed", "Precision")
_LIMITS = (
    "Figures are of one run, on the held-out records named above: other records may give others. Attacks that find "
    "nothing are no proof that nothing can be found. A guarantee holds for what the run has released, and for no other "
    "run over the same records."
)


def run_card(run: RunRecord) -> str:
    """Data, figures, what left the sites, what an audit found, and limits."""
    rows = table([run])
    told = facts(rows)
    parts = ["## What it was trained on", "\n".join(f"- {name}: {told[name]}" for name in _TOLD if name in told)]
    parts += ["## How good it is, what it gives away, and what it cost", markdown(rows).strip()]
    released = disclosure(rows)
    parts += [f"## {released.title}", released.lead, *map(_block, released.blocks)]
    if found := figures_of(run):
        parts += ["## What an audit found", *map(_block, found)]
    parts += ["## Limits", _LIMITS]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block) -> str:
    """Tables and sentences; pictures are in the report."""
    if isinstance(block, Paragraph):
        return block.text
    if not isinstance(block, Table):
        return ""
    lines = [
        list(block.columns),
        ["---"] * len(block.columns),
        *([cell.words for cell in row] for row in block.entries),
    ]
    title = f"{block.title}\n\n" if block.title else ""
    return title + "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
