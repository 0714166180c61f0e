"""How often a site has answered, where what was promised, or what a run measures, is for so many answers and no more.

A server that lies may ask for the same again and again, under another number of a round too. What a site adds noise to
then costs its ε each time, and noise that is added anew averages out. So a site counts by itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from murmura.errors import RefusedError
from murmura.privacy.journal import Journal

_ANOTHER = "If this is another run, it takes another folder of this site's: this one counts over all runs. "


class Answered:
    """The count of one site's answers in a run; it does not go back when the run does.

    A run that is stopped and resumed does its last round again. That takes the owner's word, and not a server's, nor
    that of whatever starts a process again, which a server may have brought down. So whenever the site was started
    ``again``, it may answer once more than the run is planned to ask.

    Args:
        path: of the journal; None counts in memory.
        again: whether its owner has it answer once more; so it is in a simulation, whose owner resumes the run.

    Raises:
        PrivacyError: the journal is damaged or was edited.
    """

    def __init__(self, path: Path | None = None, *, again: bool = True) -> None:
        self._journal, self._start = Journal(path, "journal of answers"), secrets.token_hex(8)
        if not again and self._journal.lines:
            self._start = self._journal.lines[-1]["start"]

    def enter(self, verb: str, round: int, most: int, run: str | None = None) -> str:
        """Enter an answer before it is given.

        Args:
            most: answers to this verb that the run is planned to ask for.
            run: whose answers count; None: of all runs, as where the ε of all of them is in one ledger.

        Returns:
            What to tell the site's owner; empty for nothing.

        Raises:
            RefusedError: there were as many as there may be.
            CheckpointError: it cannot be entered, so that nothing may leave.
        """
        before = [line for line in self._journal.lines if (line["verb"], line.get("run")) == (verb, run)]
        starts = {self._start, *(line["start"] for line in before)}
        if len(before) >= most + len(starts) - 1:
            raise RefusedError(
                f"'{verb}' is asked for once more, and this site has answered it {len(before)} times, where the run is "
                f"planned to ask {most} times",
                fix="If the server had to begin a round anew, start this site with --again: then it answers once more. "
                + (_ANOTHER if run is None else "")
                + "If not, do not trust this server.",
            )
        line: Mapping[str, Any] = {"verb": verb, "round": round, "start": self._start}
        self._journal.append(line if run is None else {**line, "run": run})
        again = len(before) + 1 - most
        if again <= 0:
            return ""
        return (
            f"'{verb}' is answered for the {len(before) + 1}th time, as the site was told to answer again; the run is "
            f"planned to ask {most} times, and what it promises does not cover the {again} more."
        )
