"""The sections of a report, in the order of the page: a new one is a file here and a line below.

Each is built from the rows of the table, and is None where no run has anything for it. What a method or an
augmentation leaves in the run folder (``RunRecord.evolution``, ``RunRecord.augment``) has its section here too: the
report knows what runs leave, not which method left it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from murmura.report.content import ReportSection
from murmura.report.sections.audit import audit
from murmura.report.sections.augmentation import augmentation
from murmura.report.sections.bars import answers, counts, time
from murmura.report.sections.confusion import confusion
from murmura.report.sections.cost import cost
from murmura.report.sections.details import details, events
from murmura.report.sections.disclosure import disclosure
from murmura.report.sections.evaluation import evaluation
from murmura.report.sections.guarantee import guarantee
from murmura.report.sections.judged import judged
from murmura.report.sections.others import others
from murmura.report.sections.personal import personal
from murmura.report.sections.repeat import repeat
from murmura.report.sections.results import results
from murmura.report.sections.rounds import rounds
from murmura.report.sections.sites import sites
from murmura.report.sections.text_evolution import by_texts, text_evolution
from murmura.report.table import Row

SECTIONS: tuple[Callable[[Sequence[Row]], ReportSection | None], ...] = (
    results,
    rounds,
    confusion,
    answers,
    judged,
    evaluation,
    augmentation,
    personal,
    text_evolution,
    by_texts,
    disclosure,
    others,
    guarantee,
    audit,
    sites,
    cost,
    time,
    counts,
    events,
    repeat,
    details,
)


def sections(rows: Sequence[Row]) -> list[ReportSection]:
    """Those that the runs have something for."""
    return [section for build in SECTIONS if (section := build(rows)) is not None]
