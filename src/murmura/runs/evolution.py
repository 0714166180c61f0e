"""What a run of PrE-Text leaves in ``outcomes``: how its population evolved, and how good the model is by how many
texts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Generation:
    """An entry of ``outcomes/evolution.json``: the candidates of one round.

    Attributes:
        candidates: Their texts.
        votes: Of each the votes, as they were released: with the noise, if there is any.
        drawn: How often each was drawn; those with 0 did not survive.
        pairs: Candidates were compared and not drawn (POPri): each one that was preferred stands before the one that it
            was preferred to, and was drawn once. Those that no pair was made of are left out.
    """

    candidates: tuple[str, ...]
    votes: tuple[float, ...]
    drawn: tuple[int, ...]
    pairs: bool = False

    def __post_init__(self) -> None:
        if not len(self.candidates) == len(self.votes) == len(self.drawn) > (-1 if self.pairs else 0):
            raise ValueError("a round needs candidates, and for each of them votes and how often it was drawn")
        if self.pairs and self.drawn != (1, 0) * (len(self.drawn) // 2):
            raise ValueError("a round of pairs needs each preferred candidate before the one that it was preferred to")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """An entry of ``outcomes/curve.json``: the model after training on so many texts, each time from the start."""

    texts: int
    heldout_loss: float | None = None
    heldout_accuracy: float | None = None
