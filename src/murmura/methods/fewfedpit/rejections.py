"""What becomes of drafts that are not used, in words, and what to try where none is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal, get_args

from murmura.drafting.rejections import REASONS, counted
from murmura.drafting.rejections import Rejection as Drafted

Rejection = Literal[Drafted, "does_not_fit", "no_score"]
"""Why a draft is not used; counted as ``drafts.FATE``."""

_STRONGER = "choose a stronger model (model.name)"
_NAMED = 5  # sites named in a message

WHY: Mapping[str, str] = {
    **REASONS,
    "does_not_fit": "a draft was longer than the records may be",
    "no_score": "the judge's loss was not a finite number",
}
_FIXES: Mapping[Rejection, str] = {
    "empty": _STRONGER,
    "unfinished": "raise method.instruction_tokens",
    "refusal": _STRONGER,
    "too_short": _STRONGER,
    "too_long": "lower method.instruction_tokens",
    "bad_start": _STRONGER,
    "keyword": "set method.alpaca_filters = false",
    "program": "set method.alpaca_filters = false",
    "similar": f"raise method.rouge, or {_STRONGER}",
    "same_prompt": "give the site more records",
    "no_response": f"raise method.example_tokens or method.example_attempts, or {_STRONGER}",
    "not_tried": "raise method.example_attempts",
    "copied": f"raise method.rouge, or {_STRONGER}",
    "echo": _STRONGER,
    "short_response": _STRONGER,
    "does_not_fit": "raise data.max_length",
    "no_score": "lower training.lr",
}


def left_without(sites: Mapping[str, Mapping[str, int]], asked: int, then: str) -> str:
    """That some of the sites of a round were left without synthetic records, why for the most part, and what to try.

    Args:
        sites: what became of each one's drafts.
        asked: how many sites took part.
        then: what became of these sites.
    """
    names = [*sites][:_NAMED]
    shown = ", ".join(names) + (" ..." if len(sites) > _NAMED else "")
    together: Counter[str] = Counter()
    for counts in sites.values():
        together.update(counts)
    return _told(f"{len(sites)} of {asked} sites had no synthetic record to train on ({shown}); {then}", together)


def some_left_without(count: int, counts: Mapping[str, int], asked: int, then: str) -> str:
    """The same where it is not known which sites these are, since only sums are.

    Args:
        count: of these sites.
        counts: what became of the drafts of all sites together.
    """
    return _told(f"{count} of {asked} sites had no synthetic record to train on; {then}", counts)


def _told(what: str, counts: Mapping[str, int]) -> str:
    reasons: Counter[Rejection] = Counter(
        {rejection: counts.get(counted(rejection), 0) for rejection in get_args(Rejection)}
    )
    same, total = reasons.pop("same_prompt"), reasons.total()
    if not total:
        reasons, total = Counter[Rejection]({"same_prompt": same}), same
    [(rejection, count)] = reasons.most_common(1)
    return f"{what}. Most often, {WHY[rejection]} ({count} of {total}): {_FIXES[rejection]}"
