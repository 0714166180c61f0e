"""What a reader of the table should know before trusting it: said below it, on the page and in a terminal alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from murmura.measure.catalogue import figure
from murmura.report.table import Row
from murmura.units import count, decimal, several

HARDLY = 0.02  # of the loss before training; a run that moves it by less has learnt hardly anything
_MOVED = 0.01  # of ROUGE-L, from which on it counts as having moved
_GUESSED = ("accuracy", "choice_accuracy", "fpb", "fiqa", "tfns")
"""Figures of which a level without skill is known; larger is better. Beside them there is the held-out loss."""


def caveats(rows: Sequence[Row]) -> list[str]:
    """Sentences on records that lost text or were left out, on losses that hardly moved or that ROUGE-L contradicts,
    and on figures that guessing reaches."""
    several = len(rows) > 1
    found = [(row.label, sentence) for row in rows for part in _PARTS for sentence in part(row)]
    return [f"{label}: {sentence}" if several else sentence for label, sentence in found]


def _lengths(row: Row) -> Iterator[str]:
    sites, left_out = row.runs[0].sites or (), row.runs[0].exclusions
    cut, dropped = sum(one.truncated or 0 for one in sites), sum(one.dropped or 0 for one in sites)
    told = [f"{count(cut)} cut"] * bool(cut) + [f"{count(dropped)} left out"] * bool(dropped)
    if told:
        records = count(sum(one.records or 0 for one in sites))
        yield f"Of the sites' {records} records {' and '.join(told)}, as too long for data.max_length."
    if left_out and left_out.train:
        records = several(left_out.train, "record")
        yield f"Left out before the others were shared out: {records}, as too long for data.max_length."
    if left_out and left_out.asked:
        asked = several(left_out.asked, "held-out record") + (" asks" if left_out.asked == 1 else " ask")
        yield (
            f"{asked} what a record of a site asks too, with another answer: what is measured so is in part what the "
            "model remembers, and attacks seem to find less."
        )


def _learnt(row: Row) -> Iterator[str]:
    before, after = row.before("heldout_loss").mean, row.cells["heldout_loss"].mean
    if before is None or after is None or row.runs[0].last.number == 0:
        return
    went = f"held-out loss {decimal(before)} before training, {decimal(after)} after"
    if after > before * (1 + HARDLY):
        yield f"The model has become worse ({went}): a lower rate or fewer steps may help."
    elif after > before * (1 - HARDLY):
        yield f"Hardly anything was learnt ({went}): more rounds, steps or a higher rate may help."
    first, last = row.before("heldout_rouge").mean, row.cells["heldout_rouge"].mean
    if first is None or last is None or abs(last - first) < _MOVED or abs(after - before) < HARDLY * before:
        return
    if (last > first) != (after < before):
        written = f"ROUGE-L {decimal(first)} before, {decimal(last)} after"
        yield (
            f"Loss and ROUGE-L disagree ({went}; {written}). The loss is of given answers, word by word, ROUGE-L of "
            "those that the model writes: read some of them before you choose by either."
        )


def _guessed(row: Row) -> Iterator[str]:
    for key in _GUESSED:
        cell = row.cells.get(key)
        if cell is None or cell.mean is None or cell.guess is None or cell.ends is None:
            continue
        if cell.ends[0] <= cell.guess:
            level = f"{figure(key).title} is {decimal(cell.mean)}, and guessing is right in {decimal(cell.guess)}"
            yield f"{level}: no skill is shown{'' if cell.mean <= cell.guess else ' by so few texts'}."
    loss = row.cells["heldout_loss"]
    if loss.mean is not None and loss.guess is not None and loss.mean >= loss.guess:
        yield (
            f"The held-out loss is {decimal(loss.mean)}, and {decimal(loss.guess)} for whoever knows how often each "
            "answer occurs, and no question: no skill is shown."
        )


_PARTS = (_lengths, _learnt, _guessed)
