"""Flower's part at a site: a SuperNode, what starts its processes, and the gateway to the server."""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from pathlib import Path

from murmura import atomic
from murmura.errors import MurmuraError
from murmura.federation.engines.flower import environment, free_port, prefork
from murmura.federation.engines.flower.bundle import expected
from murmura.federation.engines.flower.certificates import new_local
from murmura.federation.engines.flower.child import Child
from murmura.federation.engines.flower.gateway import Gateway
from murmura.federation.engines.flower.temporary import temporary
from murmura.harmless import harmless
from murmura.progress import say

_WATCH, _LONGEST = 1.0, 60.0  # seconds between looks whether it runs
_CHANGING = re.compile(r"\x1b\[\d+m|[\d.]+")  # colours, and numbers that are others each time


class SuperNode:
    """A SuperNode that is started again when it ends.

    Args:
        folder: where it keeps what it keeps; only its owner may look into it.
        server: HOST:PORT of the federation's server.
        authority: certificate that the server's must be signed by.
        key: private key that the server knows the site by.
        door: address of the socket at which messages are handed over.

    Raises:
        RunError: it cannot be started.
    """

    def __init__(self, folder: Path, server: str, authority: Path, key: Path, door: Path) -> None:
        self._folder, self._key, self._door, self._ending = folder, key, door, False
        atomic.make_private(folder)
        self._local = folder / "local.crt", folder / "local.key"
        new_local(*self._local)
        self._server, app = server, expected(folder)
        self._children: dict[str, Child] = {}
        self._known: list[str] = []
        self._problem: str | None = None
        self._wait, self._ended = _WATCH, threading.Event()
        with ExitStack() as opened:
            self._temporary = temporary(opened)
            here, upstream = ("127.0.0.1", 0), f"https://{server}"
            self._gateway = Gateway(here, self._local, upstream, authority, app=app, notice=self._notice)
            opened.callback(self._gateway.close)
            opened.callback(self._end)
            self._forking = prefork.prepare(self._temporary)
            self._ensure()
            self._opened = opened.pop_all()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="supernode")
        self._thread.start()

    def close(self) -> None:
        """End it, and the gateway."""
        if not self._ending:
            self._ending = True
            self._ended.set()
            self._thread.join()
            self._opened.close()

    def _end(self) -> None:
        for child in self._children.values():
            child.end()

    def _ensure(self) -> None:
        """Have both processes run."""
        home = environment(self._folder)
        forking, node = "what forks for Flower", "Flower's SuperNode"
        if self._is_gone(forking):
            (self._temporary / "fork").unlink(missing_ok=True)
            self._children[forking] = Child(forking, self._forking, home, self._folder / "clientapp.log")
        if self._is_gone(node):
            if node in self._children:
                self._tell(self._children[node].said)
            found = environment(self._folder, self._temporary / "bin")
            self._children[node] = Child(node, self._program(), found, self._folder / "supernode.log")

    def _is_gone(self, name: str) -> bool:
        """Whether one of them does not run; of one that has ended nothing is left open then."""
        child = self._children.get(name)
        if child is None or child.is_alive:
            return child is None
        child.end()
        return True

    def _notice(self, problem: str | None) -> None:
        """Say whether the server is reached; Flower's SuperNode tries again by itself, or is started again."""
        self._problem = problem
        why = harmless(problem or "")
        say(f"connected to {self._server}" if problem is None else f"{self._server} is out of reach ({why})")

    def _tell(self, said: str) -> None:
        """Say once what it said at last; wait longer each time that it says so again or the server is out of reach."""
        known = [_CHANGING.sub("", line) for line in said.strip().splitlines()[-3:]]
        is_known = self._problem is not None or known == self._known
        self._wait = min(2 * self._wait, _LONGEST) if is_known else _WATCH
        if not is_known:
            say("Flower's SuperNode has ended, and is started again; its last words: " + harmless(" ".join(known)))
        self._known = known

    def _program(self) -> list[str]:
        return [
            "flower-supernode",
            *("--root-certificates", str(self._local[0]), "--superlink", f"127.0.0.1:{self._gateway.port}"),
            *("--auth-supernode-private-key", str(self._key)),
            *("--host", "127.0.0.1", "--port", str(free_port()), "--node-config", f'door="{self._door}"'),
        ]

    def _watch(self) -> None:
        while not self._ending:
            try:
                self._ensure()
                for child in self._children.values():
                    child.shorten()
            except (MurmuraError, OSError) as error:  # else it would not be started again
                say(str(error))
            self._ended.wait(self._wait)
