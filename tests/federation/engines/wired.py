"""Workers without processes: threads at the other end of real pipes, each with a method, a model and sites of its
own, so that whatever crosses does so in bytes."""

import copy
import os
import socket
import threading
import time
from multiprocessing import Pipe
from pathlib import Path

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

    def __init__(self, open_sites, name="worker 0"):
        self.name = name
        self.connection, theirs = Pipe()
        self.worker = Worker(open_sites)
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

    def __init__(self, host, workers=2, **options):
        self.host = host
        processes = [ThreadProcess(self._open, f"worker {k}") for k in range(workers)]
        super().__init__(processes, {site: Path(site) for site in host.sites}, **options)

    def kill(self, site):
        """Kill the worker of a site; returns all the sites that it had."""
        self._line_of[site].process.kill()
        return self._line_of[site].sites

    def crossing(self, monkeypatch):
        """What workers have sent so far."""
        crossed = bytearray()
        monkeypatch.setattr(processes, "unframe", lambda message: crossed.extend(message) or unframe(message))
        return crossed

    def _open(self, folders):
        host, [run] = self.host, {site.run for site in self.host.sites.values()}
        verbs, runtime = copy.deepcopy(host.verbs), copy.deepcopy(host.runtime)
        return Host([host.sites[str(one)] for one in folders], verbs, runtime, host.stream, host.rule, run=run)
