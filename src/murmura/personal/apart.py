"""Which of a site's own records are set apart, to measure with what nobody has trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from murmura.streams import Stream

if TYPE_CHECKING:
    from murmura.experiment.config import Experiment
    from murmura.federation.method import Method


def apart_of(experiment: Experiment, method: Method, site: str, records: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The records that a site takes part with, and those that it only measures its own model with (``[personal]``); the
    same in every process.

    Canaries are never set apart: they are to be trained on.
    """
    options = experiment.personal
    share = 0.0 if options is None else options.apart(promises=method.protects is not None)
    stays = experiment.task.is_canary if experiment.audit.canaries else lambda record: False
    return set_apart(records, share, Stream(experiment.run.seed), site, stays)


def set_apart(
    records: Sequence[Any], share: float, stream: Stream, site: str, stays: Callable[[Any], bool] = lambda record: False
) -> tuple[list[Any], list[Any]]:
    """The records of a site that are trained on, and those that are set apart, in their order.

    Which ones these are follows from the run's seed, the site's name and the records themselves, whatever their order
    and whichever process asks. Records with the same text stay together, so that nothing is measured on what the site
    has trained on; another site that has it too may. Of one text alone nothing is set apart, and of more at least one.

    Args:
        share: of the texts, from 0 to below 1.
        stream: the run's randomness.
        site: its name.
        stays: records that are never set apart, such as canaries; nor are those that nothing can be measured on, nor
            any with the text of such a one.
    """
    staying = {record.identity for record in records if stays(record) or not record.is_complete}
    texts = {record.identity for record in records} - staying
    if not share or len(texts) < 2:
        return list(records), []
    salt = (stream / "personal" / "heldout" / site).integer()
    order = sorted(texts, key=lambda text: hashlib.sha256(f"{salt}\0{text!r}".encode()).digest())
    chosen = set(order[: min(len(texts) - 1, max(1, round(share * len(texts))))])
    kept = [record for record in records if record.identity not in chosen]
    return kept, [record for record in records if record.identity in chosen]
