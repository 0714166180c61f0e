"""Membership inference against models of a run: the parts of the server, which has non-members, and of the sites.

The server scores non-members and sends cut points between their scores; a site scores its own records and sends back
how many lie in each cell (``murmura.measure.roc``). Neither scores nor records leave it.

Of members and non-members alike one in four is set apart, the same ones in every round. They decide which attack is the
strongest, and the others say how strong it is, so that the choice flatters nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murmura.measure.attacks import ATTACKS, CONTROL, Passes
from murmura.measure.evaluation_set import EvaluationSet, Figures
from murmura.measure.reader import Reader
from murmura.measure.roc import CUTS, ENOUGH, Roc, cut_points, strongest, tally
from murmura.model_runtime import ModelRuntime
from murmura.progress import phase
from murmura.streams import Stream
from murmura.training.adapter import State

if TYPE_CHECKING:
    from murmura.generation.scoring import TokenScores
    from murmura.tasks.task import Task

_APART = 4  # one in so many decides which attack is the strongest

Scores = dict[str, np.ndarray]
"""Of each attack by name, float64 [records]."""


def scores(
    reader: Reader, task: Task, runtime: ModelRuntime, adapters: Sequence[State], records: Sequence[Sequence[Any]]
) -> list[Scores]:
    """Scores by every attack on a kind of record, of ``records[k]`` under ``adapters[k]``; all share batches."""
    base = runtime.origin
    with phase("attack"):
        found = reader.read(runtime, [*adapters, *[base] * len(adapters)], [*records, *records])
    read = [passes(*both) for both in zip(found[: len(adapters)], found[len(adapters) :], strict=True)]
    return [{name: np.array([score(ATTACKS[name], one) for one in some]) for name in task.attacks} for some in read]


def passes(model: Sequence[TokenScores], base: Sequence[TokenScores]) -> list[Passes]:
    """Of each record both readings."""
    return [Passes(*both) for both in zip(model, base, strict=True)]


def score(attack: Callable[[Passes], float], one: Passes) -> float:
    """A record's score by an attack; 0 where no token of it is read."""
    return attack(one) if len(one.raised) else 0.0


def chosen(records: Sequence[Any], most: int, stream: Stream) -> list[Any]:
    """At most so many of the records that can be attacked, drawn at random; more of them begin with the same ones."""
    order = [record for record in records if record.is_complete]
    stream.python().shuffle(order)
    return order[:most]


def set_apart(count: int, task: Task, stream: Stream) -> np.ndarray:
    """Which of so many records decide on the strongest attack, bool [count]; none where there is one attack only."""
    return one_in_four(count, stream) if len(_rivals(task)) > 1 else np.zeros(count, dtype=bool)


def one_in_four(count: int, stream: Stream) -> np.ndarray:
    """One in four of so many records, bool [count]."""
    return (np.arange(count) + (stream / "apart").python().randrange(_APART)) % _APART == 0


def tallies(scores: Scores, cuts: Mapping[str, torch.Tensor], apart: np.ndarray) -> State:
    """Of each attack how many scores lie in each cell: float32 [2, cells], those set apart and the others."""
    return {
        name: torch.from_numpy(
            np.stack([tally(values[part], cuts[name].numpy()) for part in (apart, ~apart)]).astype(np.float32)
        )
        for name, values in scores.items()
    }


def cuts(scores: Scores) -> State:
    """Of each attack the cut points between non-members' scores, float64."""
    return {name: torch.from_numpy(cut_points(values)) for name, values in scores.items()}


def member_stream(run: Stream, site: str) -> Stream:
    """What decides about a site's members."""
    return run / "attack" / "members" / site


def others_stream(run: Stream) -> Stream:
    """What decides about non-members, the same at the server and at sites that are sent them."""
    return run / "attack" / "others"


@dataclass(frozen=True)
class Others:
    """What non-members look like to one adapter.

    Args:
        cuts: of each attack.
        tally: of each attack, as ``tallies`` has it.
    """

    cuts: State
    tally: State


class Nonmembers:
    """The server's part.

    Args:
        public: the server's records.
        most: at most so many of them are scored.
        stream: the run's randomness.
    """

    def __init__(self, public: EvaluationSet, most: int, stream: Stream) -> None:
        stream = others_stream(stream)
        self.task, self.records = public.task, chosen(public.nonmembers, most, stream)
        self.apart = set_apart(len(self.records), self.task, stream)
        self._reader = public.reader

    @property
    def tally(self) -> State:
        """What a tally is like, of any adapter: see ``tallies``."""
        return {name: torch.zeros(2, CUTS + 1) for name in self.task.attacks}

    def to_payload(self) -> dict[str, Any]:
        """What a site needs to make cut points itself, as a payload."""
        return {"nonmembers": [asdict(record) for record in self.records]}

    def seen(self, runtime: ModelRuntime, adapters: Sequence[State]) -> list[Others]:
        """What they look like to each adapter."""
        found = scores(self._reader, self.task, runtime, adapters, [self.records] * len(adapters))
        return [Others(points, tallies(own, points, self.apart)) for own, points in ((own, cuts(own)) for own in found)]

    def against(self, members: State, others: State) -> tuple[Figures, dict[str, Any]]:
        """What comes of tallies of members and of these records, in any multiple.

        Returns:
            ``auc`` of the strongest attack with ``auc_low`` and ``auc_high``; ``loss_auc`` of the plain loss, likewise;
            ``tpr``, the share of members that the strongest attack finds at 1 % false positives, and ``tpr_n``, of how
            many, where there are enough non-members. Then which attack that is (``attack``), how many ``members`` and
            ``others`` it was measured on, and AUC and interval of ``each``. Nothing, where there are no records.
        """
        distinct = (int(self.apart.sum()), int((~self.apart).sum()))
        apart, rest = (
            {
                name: Roc(counts[part].double().numpy(), others[name][part].double().numpy(), distinct[part])
                for name, counts in members.items()
            }
            for part in (0, 1)
        )
        rivals = _rivals(self.task)
        best = rivals[strongest([apart[name] for name in rivals])]
        roc = rest[best]
        if not roc.count or not roc.distinct:
            return {}, {}
        each = {name: [one.auc, *one.interval] for name, one in rest.items()}
        figures: Figures = {}
        for key, name in (("auc", best), ("loss_auc", CONTROL)):
            figures |= dict(zip((key, f"{key}_low", f"{key}_high"), each[name], strict=True))
        if roc.distinct >= ENOUGH:
            figures |= {"tpr": roc.caught, "tpr_n": roc.count}
        return figures, {"attack": best, "members": roc.count, "others": roc.distinct, "each": each}


def _rivals(task: Task) -> list[str]:
    """The attacks of which one is the strongest."""
    return [name for name in task.attacks if name != CONTROL]
