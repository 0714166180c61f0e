"""Workers without processes: threads at the other end of real pipes, each with a method, a model and sites of its
own, so that whatever crosses does so in bytes."""

from __future__ import annotations

import copy
import os
import socket
import threading
import time
from multiprocessing import Pipe

from murmura.federation.engines import processes
from murmura.federation.engines.processes import ProcessesEngine
from murmura.federation.engines.worker import Worker, serve
from murmura.federation.site.answer import Host
from murmura.federation.wire.frames import unframe


class Inbox:
    """The worker's end of a pipe, at which nothing waits."""

    def __init__(self, connection):
        self._connection, self.send_bytes = connection, connection.send_bytes

    def receive(self):
        """The next message, which arrives when it is asked for."""
        return self._connection.recv_bytes(), time.monotonic()


class ThreadProcess:
    """A worker in a thread."""

    def __init__(self, assemble, name="worker 0"):
        self.name = name
        self.connection, theirs = Pipe()
        self.worker = Worker(assemble, lambda device: 1000)
        self._theirs = theirs
        threading.Thread(target=serve, args=(Inbox(theirs), self.worker), daemon=True).start()

    def release(self):
        """Close the pipe."""
        self.kill()

    def kill(self):
        """As a SIGKILL would: the other end of the pipe is gone."""
        with socket.socket(fileno=os.dup(self._theirs.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def end(self):
        return "was killed by signal 9"


class Wired(ProcessesEngine):
    """The sites of a host behind a few workers; nothing is shared with the host but the sites themselves, which a test
    may look into."""

    def __init__(self, host, workers=2):
        self.host = host
        sites = list(host.sites.values())
        shares = [sites[k::workers] for k in range(workers)]
        super().__init__([self._worker(f"worker {k}", own) for k, own in enumerate(shares)])
        self.set_up([([site.name for site in own], {}) for own in shares], list(host.sites))

    def kill(self, site):
        """Kill the worker of a site; returns all the sites that it had."""
        self._line_of[site].process.kill()
        return self._line_of[site].sites

    def crossing(self, monkeypatch):
        """What workers have sent so far."""
        crossed = bytearray()
        monkeypatch.setattr(processes, "unframe", lambda message: crossed.extend(message) or unframe(message))
        return crossed

    def _worker(self, name, own):
        host = self.host

        def assemble(told):
            verbs, runtime = copy.deepcopy(host.verbs), copy.deepcopy(host.runtime)
            return Host(own, verbs, runtime, host.stream, host.rule, host.run)

        return ThreadProcess(assemble, name)
