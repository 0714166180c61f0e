"""The engine: asks to sites on other machines, which may be out of reach, come back, or be started again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import Any
from uuid import uuid4

from murmura.errors import MurmuraError
from murmura.federation.engines.flower.door import Door, hang_up
from murmura.federation.wire.frames import answer_of, ask_frame, frame, named, parted, unframe
from murmura.federation.wire.messages import JOIN, LATE, Ask, Failure, Reply
from murmura.progress import bar, say

SECONDS = 3600.0
"""How long a site may take to answer, where ``run.answer_seconds`` does not say."""
PATIENCE = 120.0
"""Seconds that a site may be out of reach before nobody waits for it any longer."""
_UNNOTICED = 60.0  # seconds that a site has been out of reach when Flower notices: two heartbeats
_HELLO = 30.0  # seconds that a site may take to say that it is there
_LOOK = 0.5
_SPARE = 30.0  # seconds that Flower keeps a message longer than anybody waits for the answer
_AGAIN = 5.0  # seconds between attempts to have Flower carry, and to hand over what it has lost
_LOST = (None, 3, 4, 5)  # codes of what Flower could not bring there and back; of others the site's app is the reason
_RESTARTED = "it was started again since it joined"


@dataclass
class _Errand:
    """One ask to one site, until it is answered.

    Args:
        message: makes its bytes, the same each time; those to all sites at once would be an adapter for each of them.
        handed: when it was handed over last.
        lost: when Flower lost it, or its answer; None while it is on its way.
        since: when that was the first time since it was last on its way for a while.
    """

    site: str
    message: Callable[[], bytes]
    seconds: float
    answer: bytes | None = None
    failed: str | None = None
    handed: float = 0.0
    lost: float | None = None
    since: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.answer is not None or self.failed is not None

    def lose(self) -> None:
        """Note that Flower has lost it. Where that is of another outage, and not because it does not get there at all,
        it counts anew."""
        self.lost = time.monotonic()
        if not self.since or self.lost - self.handed > _AGAIN:
            self.since = self.lost


class FlowerEngine:
    """Hands frames to what runs inside Flower (``app.py``), as often as that is started anew, and takes the answers.

    An ask that was handed over and not answered when Flower's server ended, or that Flower lost since the site was out
    of reach, is handed over again, as the same bytes; a site that had answered it gives the same answer again.

    Args:
        nodes: Flower's number of each site, in the order of the run.
        door: where what carries the frames connects.
        carry: starts that.
        close: is called when the engine is closed.
        patience: seconds that a site may be out of reach.
    """

    def __init__(
        self,
        nodes: Mapping[str, int],
        door: Door,
        carry: Callable[[], None],
        close: Callable[[], None],
        patience: float = PATIENCE,
    ) -> None:
        self.sites, self._nodes, self._door, self._carry, self._patience = list(nodes), nodes, door, carry, patience
        self._release, self._closed, self._id = close, False, uuid4().hex
        self._changed = threading.Condition()
        self._line: Connection | None = None
        self._errands: dict[int, _Errand] = {}
        self._number = 0
        self._online: frozenset[int] = frozenset()
        self._seen = dict.fromkeys(self.sites, time.monotonic())  # when each was in reach last
        self._joined: dict[str, str] = {}  # the worker of each site that has joined
        self._away: set[str] = set()  # sites that are to join anew
        for work in (self._accept, self._carried):
            threading.Thread(target=work, daemon=True, name="flower").start()

    def ask(self, ask: Ask, sites: Sequence[str]) -> Iterator[Reply | Failure]:
        """Answers in the order of ``sites``. One of a site that was started again since it joined does not count."""
        seconds = ask.seconds or SECONDS
        numbers = [self._send(site, seconds, ask) for site in sites]
        until = time.monotonic() + seconds
        try:
            with bar(f"answers to '{ask.verb}'", len(sites)) as progress:
                for site, number in zip(sites, numbers, strict=True):
                    answer = self._awaited(ask.verb, site, number, until)
                    self._drop(number)
                    progress.advance()
                    yield answer
        finally:
            for number in numbers:
                self._drop(number)

    def returned(self) -> list[str]:
        """Sites that have not joined this run, or were away or started again since, and are there now."""
        away = [site for site in self.sites if site in self._away or site not in self._joined]
        with self._changed:
            online = [site for site in away if self._nodes[site] in self._online]
        return self._there(online, _HELLO)

    def missing(
        self, seconds: float, least: int | None = None, told: Callable[[list[str]], None] = lambda sites: None
    ) -> list[str]:
        """Sites that are not there within so many seconds; or, where that is said, as soon as so many are there.

        Args:
            told: is called with those that are still to come, whenever that changes.
        """
        end = time.monotonic() + seconds
        missing = list(self.sites)
        most = 0 if least is None else len(missing) - least
        told(missing)
        while len(missing) > most and time.monotonic() < end:
            with self._changed:
                self._changed.wait_for(lambda: any(self._nodes[one] in self._online for one in missing), _LOOK)
                online = [site for site in missing if self._nodes[site] in self._online]
            for site in self._there(online, min(_HELLO, max(end - time.monotonic(), 1))):
                missing.remove(site)
                told(missing)
                say(f"site {site} is there, {len(missing)} to come")
        return missing

    def close(self) -> None:
        """Let go of everything; sites stay, and wait for the next run."""
        if not self._closed:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            self._release()
            self._door.close()
            if self._line is not None:
                hang_up(self._line)

    # ---- errands -----------------------------------------------------------------------------------------------------

    def _send(self, site: str, seconds: float, ask: Ask | None = None) -> int:
        """Hand an ask over, or none, to hear whether the site is there."""
        with self._changed:
            self._number += 1
            number = self._number
        head = {"number": number, "engine": self._id}  # another server's are other bytes, and are done anew

        def message() -> bytes:
            return frame(head) if ask is None else ask_frame(ask.narrowed([site]), [site], **head)

        with self._changed:
            self._errands[number] = _Errand(site, message, seconds)
            self._hand_over(number)
        return number

    def _hand_over(self, number: int) -> None:
        errand = self._errands[number]
        if self._line is not None and not errand.is_over:
            errand.handed = time.monotonic()
            head = {"number": number, "node": self._nodes[errand.site], "seconds": errand.seconds + _SPARE}
            self._tell(head, errand.message())

    def _tell(self, head: Mapping[str, Any], message: bytes = b"") -> None:
        if self._line is not None:
            with suppress(OSError):  # whoever reads it notices, and it is handed over again
                self._line.send_bytes(json.dumps(head).encode() + b"\n" + message)

    def _drop(self, number: int) -> None:
        with self._changed:
            errand = self._errands.pop(number, None)
            if errand is not None and not errand.is_over:
                self._tell({"drop": number})

    def _awaited(self, verb: str, site: str, number: int, until: float) -> Reply | Failure:
        errand = self._errands[number]
        with self._changed:
            while not errand.is_over and not self._closed:
                if time.monotonic() >= until:
                    return Failure(site, LATE)
                if self._is_gone(errand):
                    self._away.add(site)
                    return Failure(site, f"it has been out of reach for {self._patience:.0f} seconds")
                self._hand_over_again()
                self._changed.wait(_LOOK)
        if errand.answer is None:
            self._away.add(site)
            return Failure(site, errand.failed or "the run was closed")
        return self._heard(verb, site, errand.answer)

    def _heard(self, verb: str, site: str, message: bytes) -> Reply | Failure:
        """An answer, which may be anything: nobody but the site has looked at it."""
        try:
            answer: Reply | Failure | None = None
            worker = None
            for head, parts in map(unframe, parted(message)):
                if "done" in head:
                    worker, failed = str(head["done"]["worker"]), head["done"]["failed"]
                    answer = answer or Failure(site, named(failed) if failed else "it did not answer")
                else:
                    answer = answer_of(head, parts)
            if answer is None or worker is None or answer.site != site:
                return Failure(site, "it answers for another site, or without an end")
        except Exception as error:
            return Failure(site, f"its answer cannot be read ({type(error).__name__})")
        if verb == JOIN and isinstance(answer, Reply):
            self._joined[site] = worker
            self._away.discard(site)
        elif verb != JOIN and self._joined.get(site, worker) != worker:
            self._away.add(site)
            return Failure(site, _RESTARTED)
        return answer

    def _there(self, sites: Sequence[str], seconds: float) -> list[str]:
        """Those of the sites whose own processes answer."""
        numbers = {site: self._send(site, seconds) for site in sites}
        errands = {site: self._errands[number] for site, number in numbers.items()}
        with self._changed:
            self._changed.wait_for(lambda: self._closed or all(one.is_over for one in errands.values()), seconds)
        for number in numbers.values():
            self._drop(number)
        return [site for site, errand in errands.items() if errand.answer is not None]

    def _hand_over_again(self) -> None:
        """Hand over what Flower has lost, where the site is in reach again."""
        for number, errand in self._errands.items():
            late = errand.lost is not None and time.monotonic() - errand.lost > _AGAIN
            if late and self._line is not None and self._nodes[errand.site] in self._online:
                errand.lost = None
                self._hand_over(number)

    def _is_gone(self, errand: _Errand) -> bool:
        """Whether the site has been out of reach for too long, or is in reach and Flower loses all the same."""
        now, site = time.monotonic(), errand.site
        if self._line is None or self._nodes[site] in self._online:
            self._seen[site] = now
        out = now - (errand.since if errand.lost is not None and self._seen[site] == now else self._seen[site])
        return out > self._patience

    # ---- what carries the frames -------------------------------------------------------------------------------------

    def _carried(self) -> None:
        """Have Flower carry, as long as the engine is open."""
        while not self._closed:
            if self._line is None:
                try:
                    self._carry()
                except (MurmuraError, OSError) as error:  # else nothing would be carried any more
                    say(str(error))
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or self._line is not None, 4 * _AGAIN)
            time.sleep(_LOOK)

    def _accept(self) -> None:
        while not self._closed:
            try:
                line = self._door.accept()
            except (OSError, EOFError, AuthenticationError):
                time.sleep(_LOOK)
                continue
            with self._changed:
                if self._line is not None:  # one that was given up
                    hang_up(self._line)
                self._line = line
                for number in self._errands:
                    self._hand_over(number)
                self._changed.notify_all()
            threading.Thread(target=self._read, args=(line,), daemon=True, name="flower").start()

    def _read(self, line: Connection) -> None:
        with suppress(EOFError, OSError):
            while True:
                head, _, message = line.recv_bytes().partition(b"\n")
                self._take(json.loads(head), message)
        with self._changed:
            if self._line is line:
                self._line, self._online = None, frozenset()
                self._seen = dict.fromkeys(self.sites, time.monotonic())
            self._changed.notify_all()

    def _take(self, head: Mapping[str, Any], message: bytes) -> None:
        with self._changed:
            now = time.monotonic()
            if "nodes" in head:
                before, self._online = self._online, frozenset(head["nodes"])
                for site, node in self._nodes.items():
                    if node in before - self._online:
                        self._seen[site] = now - _UNNOTICED
            elif (errand := self._errands.get(head.get("answered", head.get("failed")))) and not errand.is_over:
                if "answered" in head:
                    errand.answer = message
                elif head.get("code") in _LOST:
                    errand.lose()
                else:
                    why = str(head.get("why") or "")
                    why = why if why.isprintable() else ""  # a site's own client may have said it
                    errand.failed = f"it cannot be reached ({why or head.get('code') or 'not connected'})"[:200]
            self._changed.notify_all()
