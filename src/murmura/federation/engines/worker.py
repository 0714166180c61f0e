"""A process with sites in it: it is told their folders and what is asked of them, and answers in bytes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from murmura.errors import MurmuraError
from murmura.federation.site.answer import Host
from murmura.federation.wire.frames import answer_frame, ask_of, frame, unframe
from murmura.federation.wire.messages import Failure
from murmura.harmless import harmless
from murmura.progress import Told, collect_phases, relay
from murmura.runs.machine import peak_memory, return_freed_memory

if TYPE_CHECKING:
    from murmura.experiment.worker import Inbox


class Worker:
    """What a worker process does with a message; the process itself is ``serve``.

    Args:
        open_sites: gives the sites of some folders that the server names; None: it may name none, since it is not the
            server's machine, and learns nothing of it.
        host: the sites, where they are open.

    Attributes:
        id: another one for each worker, by which an engine knows that this one is as it was.
    """

    def __init__(self, open_sites: Callable[[Sequence[Path]], Host] | None, host: Host | None = None) -> None:
        self._open_sites, self._host, self.id = open_sites, host, uuid4().hex

    def handle(self, message: bytes, since: float | None = None) -> Iterator[bytes]:
        """Answers to one message. The last one is ``done``: with the number of the message, what went wrong, if
        anything did, by its class alone, seconds of each phase where sites tell their progress, and peak memory.

        Args:
            since: when it arrived; see ``Host.answer``.
        """
        head, parts = unframe(message)
        phases, failed = collect_phases(), None
        try:
            if "folders" in head and self._open_sites is not None:
                self._host = self._open_sites([Path(folder) for folder in head["folders"]])
            elif "verb" in head:
                ask, sites = ask_of(head, parts)
                said = None
                for answer in self.host.answer(ask, sites, since):
                    if isinstance(answer, Failure) and answer.error is not said:  # it is a whole cohort's
                        said = answer.error
                        self._tell(said)
                    yield answer_frame(answer)
        except Exception as error:
            self._tell(error)
            failed = type(error).__name__
        # What is mapped from files the server has too, and counts it.
        memory = peak_memory(self.host.runtime.device, mapped=False) if self._open_sites and self._host else 0
        return_freed_memory()
        seconds = phases.seconds if self._open_sites and self.tells_progress else {}
        done = {"number": head["number"], "failed": failed, "seconds": seconds, "memory": memory, "worker": self.id}
        yield frame({"done": done})

    @property
    def tells_progress(self) -> bool:
        """Whether whoever asks may learn how far the sites are, and how long they took (``Host.tells_progress``)."""
        return self._host is not None and self._host.tells_progress

    def _tell(self, error: BaseException | None) -> None:
        """Say at the site what went wrong there; nobody else learns more than its class. A server on another machine
        may have had a hand in its words."""
        is_own, said = self._open_sites is not None, str(error)
        if isinstance(error, MurmuraError):
            print(said if is_own else harmless(said), file=sys.stderr, flush=True)
        elif error is not None and is_own:
            traceback.print_exception(error)
        elif error is not None:
            traceback.print_tb(error.__traceback__)
            print(f"{type(error).__name__}: {harmless(said)}", file=sys.stderr, flush=True)

    @property
    def host(self) -> Host:
        assert self._host is not None, "a worker is told its folders before anything else"
        return self._host


def serve(inbox: Inbox, worker: Worker) -> None:
    """Handle messages until the other end is closed or gone."""
    while True:
        try:
            for answer in worker.handle(*inbox.receive()):
                inbox.send_bytes(answer)
        except (EOFError, ConnectionError, KeyboardInterrupt):
            return


def relay_to(inbox: Inbox, worker: Worker) -> None:
    """Show progress not here but at the other end, as far as that may learn of it. When it is gone, nobody waits for
    the work, and it ends."""

    def send(told: Told) -> None:
        if not worker.tells_progress:
            return
        try:
            inbox.send_bytes(frame({"told": told}))
        except ConnectionError:
            raise SystemExit from None

    relay(send)
