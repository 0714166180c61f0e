"""What sites with ledgers of their own report of them to the server, and what that keeps.

A site that is asked may have answered, though nothing of it has arrived here: too late, cut off, or refused. So from
the ask on, what that costs counts, and what the site has reported before is not enough.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmura.errors import PrivacyError
from murmura.harmless import harmless
from murmura.privacy.journal import Anchor, Journal
from murmura.units import listing

if TYPE_CHECKING:
    from murmura.privacy.ledger import PrivacyLedger

_WHAT = "journal of the ε that sites have reported"
_NOTHING = {"epsilon": 0.0, "refused": None}
_LONGEST = 500  # characters that are kept of a site's reason
_STEP = 1.25  # between one ε that is told of sites' records and the next


def target_of(method: Mapping[str, Any], unit: str) -> float | None:
    """The ε that each site's noise was made for.

    Args:
        method: the options of a run's method.
        unit: what it protects.

    Returns:
        None where noise was given, or protects whole sites: then their ε follows from nothing that is a secret.
    """
    target = method.get("epsilon")
    return float(target) if target and unit == "record" else None


def rounded(epsilon: float, target: float | None) -> float:
    """An ε as it may be told. Where a site's noise was made for a ``target``, it is rounded up to that or to the target
    times a power of 1.25: the exact one follows from how many records the site has, which is nobody's business."""
    if target is None or not 0 < epsilon < math.inf:
        return epsilon
    power = math.ceil(math.log(epsilon / target, _STEP) - 1e-9)
    while target * _STEP**power < epsilon:
        power += 1
    return target * _STEP**power


def told(ledger: PrivacyLedger, accountant: str = "best", target: float | None = None) -> dict[str, Any]:
    """What a site says of its ledger: its ε so far, ``rounded``, or why there is none; and in how many answers."""
    try:
        spent = ledger.epsilon(accountant).value
    except PrivacyError as error:
        return {"epsilon": None, "refused": str(error)}
    return {"epsilon": rounded(spent, target), "refused": None, "answers": len(ledger.rounds)}


class ReportedEpsilons:
    """What each site reported last of what it has spent.

    It is a journal, which is not rewound with a checkpoint: a site that uploads in a round that is then lost, and does
    not answer any more when that round is repeated, has spent it all the same.

    Args:
        path: of the journal.

    Raises:
        PrivacyError: a line is not what was written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._journal = Journal(path, _WHAT)
        self._last: dict[str, dict[str, Any]] = {}
        self._silent: dict[str, float | None] = {}  # with the most that they may have spent
        self._asked = Counter[str]()
        self._arrived = Counter[str]()  # answers
        self._rounds: list[int] = []  # of the asks
        for line in self._journal.lines:
            self._follow(line)

    @classmethod
    def peek(cls, path: Path) -> ReportedEpsilons:
        """A copy of what another process may be writing.

        Raises:
            PrivacyError: a line is not what was written.
            OSError: it cannot be read.
        """
        found = cls()
        for line in Journal.peek(path, _WHAT).lines:
            found._follow(line)
        return found

    @property
    def anchor(self) -> Anchor:
        """As of its journal."""
        return self._journal.anchor

    def check(self, anchor: Anchor) -> None:
        """As of its journal.

        Raises:
            PrivacyError: lines are gone, so that what sites have spent is not known.
        """
        self._journal.check(anchor)

    @property
    def most_asked(self) -> int:
        """How often the site was asked that was asked most often; 0 where none was, as none may answer."""
        return max(self._asked.values(), default=0)

    @property
    def worst(self) -> Mapping[str, Any]:
        """What holds for the least protected site, whether it still answers or not: ``epsilon``, or None and why it is
        ``refused``, which is worse than any other. Before any site was asked, ε = 0."""
        found = {"": _NOTHING, **self._last}
        unknown = [site for site, most in self._silent.items() if most is None]
        for site, most in self._silent.items():
            before = found.get(site, _NOTHING)["epsilon"]
            if most is not None and before is not None:
                found[site] = {"epsilon": max(most, before), "refused": None}
        if unknown:
            what = f"no ε: {listing(unknown)} did not say what the last answer has cost"
            return {"epsilon": None, "refused": what}
        return max(found.values(), key=lambda one: math.inf if one["epsilon"] is None else one["epsilon"])

    def record(self, site: str, figures: Any, *, answers: int = 0) -> None:
        """Keep what a site reports of its ε: ``epsilon`` or, where there is none, ``refused``, why. Nothing else that
        it may say is kept. It is on disk when this returns.

        What a site has spent never decreases: an ε smaller than before is refused, since the site's ledger must have
        been lost. So must a part of it where it has fewer ``answers`` than have come from the site, as in a folder that
        was restored from an old copy.

        Args:
            answers: how many have come with it that cost something.

        Raises:
            CheckpointError: it could not be written.
        """
        if not _is_readable(figures):
            figures = {"epsilon": None, "refused": f"no ε: site {site} has told none that can be read"}
        elif figures["epsilon"] is None:
            figures = {"epsilon": None, "refused": f"site {site} says: {harmless(figures['refused'][:_LONGEST])}"}
        else:
            figures = {"epsilon": float(figures["epsilon"]), "refused": None, "answers": figures["answers"]}
        before, entered = self._last.get(site), figures.pop("answers", math.inf)
        if (before is not None and _has_lost(figures, before)) or entered < self._arrived[site] + answers:
            lost = f"no ε: the privacy ledger of site {site} has lost what it had spent before"
            figures = {"epsilon": None, "refused": (before["refused"] if before else None) or lost}
        if before != figures or answers or site in self._silent:
            self._enter({"site": site, "figures": figures, "answers": answers})

    def asked_after(self, round: int) -> int:
        """How often sites were asked in later rounds."""
        return sum(one > round for one in self._rounds)

    def asked(self, sites: Sequence[str], round: int, promised: Callable[[int], float | None] = lambda _: None) -> None:
        """Keep that sites are asked for an answer that costs something. It is on disk when this returns.

        Args:
            promised: the ε, for any site, of answering so often; None where that is not known. It counts for a site
                until it says what it has spent.

        Raises:
            CheckpointError: it could not be written.
        """
        most = {}
        for site in sites:
            value = promised(self._asked[site] + 1)
            most[site] = value if value is not None and math.isfinite(value) else None
        self._enter({"silent": most, "round": round})

    def _enter(self, line: dict[str, Any]) -> None:
        self._journal.append(line)
        self._follow(line)

    def _follow(self, line: Mapping[str, Any]) -> None:
        try:
            if "silent" in line:
                self._silent |= line["silent"].items()
                self._asked.update(line["silent"].keys())
                self._rounds.append(line["round"])
            else:
                self._arrived[line["site"]] += line["answers"]
                self._last[line["site"]] = dict(line["figures"])
                self._silent.pop(line["site"], None)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PrivacyError(f"this is not a {_WHAT}") from error


def _is_readable(figures: Any) -> bool:
    """Whether what a site reports, which may be anything, is an ε or why there is none."""
    if not isinstance(figures, Mapping) or not {"epsilon", "refused"} <= figures.keys():
        return False
    epsilon, refused = figures["epsilon"], figures["refused"]
    if epsilon is None:
        return isinstance(refused, str)
    if type(figures.get("answers")) is not int:
        return False
    return isinstance(epsilon, int | float) and not isinstance(epsilon, bool) and 0 <= epsilon <= sys.float_info.max


def _has_lost(figures: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether a site reports less than it did before."""
    if before["epsilon"] is None or figures["epsilon"] is None:
        return before["refused"] is not None and figures["epsilon"] is not None
    return bool(figures["epsilon"] < before["epsilon"])
