"""Sites behind Flower on the loopback interface, with TLS and keys: its own processes, and the sites' in threads."""

import atexit
import copy
import shutil
import tempfile
import threading
import time
from pathlib import Path
from unittest.mock import patch

from murmura.federation.engines.flower import bundle, supernode
from murmura.federation.engines.flower import engine as engine_module
from murmura.federation.engines.flower.certificates import new_authority, new_server, node_key
from murmura.federation.engines.flower.door import Door
from murmura.federation.engines.flower.engine import FlowerEngine
from murmura.federation.engines.flower.site import answer
from murmura.federation.engines.flower.superlink import SuperLink
from murmura.federation.engines.flower.supernode import SuperNode
from murmura.federation.engines.worker import Worker
from murmura.federation.site.answer import Host
from murmura.federation.wire.frames import parted

NAMES = [f"site-{k}" for k in range(5)]


class Unhurried(SuperLink):
    """One that makes the keys of sites known to Flower when they are first needed: each takes seconds.

    Attributes:
        needed: names of sites.
    """

    needed = ()

    def need(self, names):
        self.needed = [*self.needed, *names]
        self.nodes = self._registered(self._keys)

    def _registered(self, keys):
        self._keys = keys
        return super()._registered({name: keys[name] for name in self.needed})


class Link:
    """One SuperLink and a SuperNode for each site, started once for all tests, when one first needs it."""

    found = None

    @classmethod
    def of_tests(cls):
        if cls.found is None:
            cls.found = cls()
            atexit.register(cls.end)
        return cls.found

    @classmethod
    def end(cls):
        found, cls.found = cls.found, None
        if found is not None:
            found.close()

    def __init__(self):
        self.folder = folder = Path(tempfile.mkdtemp(prefix="murmura-tests-"))
        self.authority = folder / "ca.crt"
        new_authority(self.authority, folder / "ca.key", "tests")
        tls = folder / "server.crt", folder / "server.key"
        new_server(*tls, ["localhost", "127.0.0.1"], self.authority, folder / "ca.key")
        self.keys = {name: node_key(folder / f"{name}.key") for name in NAMES}
        self.door = Door()
        self.superlink = Unhurried(folder / "superlink", ("127.0.0.1", 0), tls, self.keys, self.door.address)
        self.doors = {name: Swinging() for name in NAMES}
        self.supernodes, self._bundle = {}, None
        self._engine = FlowerEngine(self.superlink.nodes, self.door, self.superlink.carry, lambda: None, patience=5.0)

    def _start(self, names):
        """Start the SuperNodes that are not there yet."""
        server, new = f"127.0.0.1:{self._reached()}", [name for name in names if name not in self.supernodes]
        if new:
            self.superlink.need(new)
        for name in new:
            self.doors[name].worker, key = Worker(None), self.folder / f"{name}.key"
            door = self.doors[name].door.address
            with patch.object(supernode, "expected", self._expected):
                self.supernodes[name] = SuperNode(self.folder / name, server, self.authority, key, door)
        if new:
            engine = self._engine
            engine.sites, engine._seen = new, dict.fromkeys(new, time.monotonic())
            engine._nodes = {name: self.superlink.nodes[name] for name in new}
            assert engine.missing(120) == []

    def _reached(self):
        """The port that sites connect to."""
        return self.superlink.port

    def _expected(self, home):
        """Made once, which takes seconds: it is the same for all."""
        self._bundle = self._bundle or bundle.expected(home)
        return self._bundle

    def engine(self, workers):
        """The one engine, with these workers behind the doors: to start another would take seconds too."""
        self.places = dict(zip(workers, NAMES, strict=False))
        self._start(self.places.values())
        for site, place in self.places.items():
            self.doors[place].worker = workers[site]
        engine = self._engine
        engine.sites, engine._joined, engine._away = list(workers), {}, set()
        engine._nodes = {site: self.superlink.nodes[place] for site, place in self.places.items()}
        engine._seen = dict.fromkeys(workers, time.monotonic())
        return engine

    def leave(self):
        """Let nobody be behind the doors."""
        for one in self.doors.values():
            one.worker = None

    def close(self):
        doors = [one.door for one in self.doors.values()]
        for one in [self._engine, *self.supernodes.values(), self.superlink, *doors]:
            one.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Swinging:
    """A site's door, behind which there is another worker in each test."""

    def __init__(self):
        self.door, self.worker = Door(), Worker(None)
        threading.Thread(target=answer, args=(self.door, self), daemon=True).start()

    def handle(self, message, since):
        if self.worker is None:
            raise OSError("the site is gone")
        return self.worker.handle(message, since)


class Flowered:
    """The sites of a host behind Flower; nothing is shared with the host but the sites themselves."""

    link = Link

    def __init__(self, host):
        self.host, self._link = host, self.link.of_tests()
        self._engine = self._link.engine({name: Worker(None, self._host(name)) for name in host.sites})
        self.sites, self.ask = self._engine.sites, self._engine.ask

    def close(self):
        """Let nobody be behind the doors."""
        self._link.leave()

    def kill(self, site):
        """Let nobody be behind a site's door."""
        self._link.doors[self._link.places[site]].worker = None
        return [site]

    def crossing(self, monkeypatch):
        """What sites have sent so far."""
        crossed = bytearray()
        monkeypatch.setattr(engine_module, "parted", lambda message: crossed.extend(message) or parted(message))
        return crossed

    def _host(self, name):
        [run] = {site.run for site in self.host.sites.values()}
        verbs, runtime = copy.deepcopy(self.host.verbs), copy.deepcopy(self.host.runtime)
        return Host([self.host.sites[name]], verbs, runtime, self.host.stream, self.host.rule, run=run)
