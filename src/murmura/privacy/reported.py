"""What sites with ledgers of their own have reported of them to the server."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from murmura.privacy.journal import Journal
from murmura.units import listing


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
        self._journal = Journal(path, "journal of the ε that sites have reported")
        self._last: dict[str, dict[str, Any]] = {}
        self._silent: list[str] = []
        for line in self._journal.lines:
            self._follow(line)

    @property
    def last(self) -> Mapping[str, Mapping[str, Any]]:
        """What each site reported last."""
        return self._last

    @property
    def worst(self) -> Mapping[str, Any]:
        """What the least protected site reported last, whether it still answers or not. A refused ε is worse than any
        other, and so is what a site does not say."""
        if self._silent:
            what = f"no ε: {listing(self._silent)} did not say what the last answer has cost"
            return {"plan": None, "epsilon": None, "refused": what}
        return max(self._last.values(), key=lambda one: math.inf if one["epsilon"] is None else one["epsilon"])

    def record(self, site: str, figures: Any) -> None:
        """Keep what a site reports of its ε: ``epsilon`` or, where there is none, ``refused``, with whatever else.
        It is on disk when this returns.

        What a site has spent never decreases: an ε smaller than before is refused, since the site's ledger must have
        been lost.

        Raises:
            CheckpointError: it could not be written.
        """
        if not _is_readable(figures):
            what = f"no ε: site {site} has told none that can be read"
            figures = {"plan": None, "epsilon": None, "refused": what}
        before = self._last.get(site)
        if before is not None and _has_lost(figures, before):
            lost = before["refused"] or f"no ε: the privacy ledger of site {site} has lost what it had spent before"
            figures = {**figures, "epsilon": None, "refused": lost}
        if before != figures or site in self._silent:
            self._enter({"site": site, "figures": dict(figures)})

    def silent(self, sites: Sequence[str]) -> None:
        """Keep that sites have released something, before they say what that has cost. It is on disk when this returns.

        Raises:
            CheckpointError: it could not be written.
        """
        self._enter({"silent": list(sites)})

    def _enter(self, line: dict[str, Any]) -> None:
        self._journal.append(line)
        self._follow(line)

    def _follow(self, line: Mapping[str, Any]) -> None:
        if "silent" in line:
            self._silent = list(dict.fromkeys([*self._silent, *line["silent"]]))
            return
        self._last[line["site"]] = dict(line["figures"])
        self._silent = [site for site in self._silent if site != line["site"]]


def _is_readable(figures: Any) -> bool:
    """Whether what a site reports, which may be anything, is an ε or why there is none, with words and figures."""
    if not isinstance(figures, Mapping) or not {"epsilon", "refused", "plan"} <= figures.keys():
        return False
    if not all(one is None or isinstance(one, str | int | float) for one in figures.values()):
        return False
    epsilon, refused = figures["epsilon"], figures["refused"]
    if epsilon is None:
        return isinstance(refused, str)
    return isinstance(epsilon, int | float) and not isinstance(epsilon, bool) and epsilon >= 0


def _has_lost(figures: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether a site reports less than it did before."""
    if before["epsilon"] is None or figures["epsilon"] is None:
        return before["refused"] is not None and figures["epsilon"] is not None
    return bool(figures["epsilon"] < before["epsilon"])
