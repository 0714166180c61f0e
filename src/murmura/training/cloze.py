"""The gradient that an optimiser's step follows: training on labels, hard or soft, through cloze patterns.

LP-FL (Jiang et al. 2023, eq. 2 and 5; after PET, Schick and Schütze 2021): what the model would put at a pattern's
blank is turned into a distribution over labels, and that is trained towards the record's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.nn import functional as F

from murmura.data.cloze import Cloze, ClozeItem
from murmura.streams import Stream
from murmura.training.step import Chosen, Rows, Step


@dataclass(frozen=True, slots=True)
class ClozeRecord:
    """A text in its patterns, and what is known of its label.

    Attributes:
        items: the text as ``Cloze.tokenise_all`` returns it, one a pattern.
        target: the probability of each label, in the order of ``Cloze.labels``; one of them 1 where the label is known.
    """

    items: tuple[ClozeItem, ...]
    target: tuple[float, ...]


class ClozeStep(Step):
    """A step whose loss is the mean over records and patterns of ``−Σ_l target_l · log softmax(scores)_l``.

    A batch counts records, and each goes through the model once a pattern; shards hold ``ClozeRecord``. A weight on a
    record is on all its patterns. What ``Step`` calls tokens are the blanks that were filled in.

    Args:
        arguments: those of ``Step``.
        cloze: which tokens are read at a blank, and how they add up to scores of labels.
        sample_pattern: a record goes through with one of its patterns, drawn anew in each step, and not with all.
    """

    def __init__(self, *arguments: Any, cloze: Cloze, sample_pattern: bool = False) -> None:
        super().__init__(*arguments)
        self.sample_pattern = sample_pattern
        self._words = torch.as_tensor(cloze.tokens, dtype=torch.long, device=self.bank.device)
        self._share = torch.as_tensor(cloze.weights, dtype=torch.float32, device=self.bank.device)

    def rows(self, chosen: Chosen, step: int) -> Rows:
        """The rows of a step: slot by slot, record by record, pattern by pattern."""
        found = [
            (slot, index, item)
            for slot, indices in chosen.items()
            for index in indices
            for item in self._patterns(slot, index, step)
        ]
        slots = torch.tensor([slot for slot, _, _ in found], dtype=torch.long)
        return Rows(slots, [index for _, index, _ in found], [item for _, _, item in found], [1] * len(found))

    def nll(
        self, ids: torch.Tensor, labels: torch.Tensor, factors: torch.Tensor, rows: Rows, group: list[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cross-entropies [n] of rows' distributions over labels, times the rows' factors, and which rows."""
        logits, row = self.bank.head.logits_at(ids, labels, self._words)
        places = zip(rows.slots[group].tolist(), [rows.index[i] for i in group], strict=True)
        targets = torch.tensor([self.shards[slot][index].target for slot, index in places]).to(logits)
        with torch.autocast(logits.device.type, enabled=False):  # a score is a mean of few logits: no place to round
            scores = F.linear(logits, self._share)
            return F.cross_entropy(scores, targets[row], reduction="none") * factors[row], row

    def dropout_stream(self, rows: Rows, row: int, step: int) -> Stream:
        """A record's patterns have masks of their own each."""
        return super().dropout_stream(rows, row, step) / cast(ClozeItem, rows.items[row]).pattern

    def _patterns(self, slot: int, index: int, step: int) -> tuple[ClozeItem, ...]:
        """What of a record goes through the model in this step."""
        record: ClozeRecord = self.shards[slot][index]
        if not self.sample_pattern:
            return record.items
        return ((self.streams[slot] / "pattern" / step / index).python().choice(record.items),)
