"""A run whose sites are on machines of their own: how its server is reached, and when it begins."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from murmura.errors import ConfigError, RunError
from murmura.experiment.federation import SERVER, Federation
from murmura.federation.address import joined, split
from murmura.federation.engines.flower.certificates import ends
from murmura.federation.engines.flower.door import Door
from murmura.federation.engines.flower.engine import PATIENCE, FlowerEngine
from murmura.federation.engines.flower.superlink import SuperLink
from murmura.progress import say
from murmura.runs.folder import RunFolder
from murmura.runs.names import FLOWER
from murmura.units import several

_SOON = timedelta(days=30)


@dataclass(frozen=True)
class Deployment:
    """What the server's operator says of a deployment.

    Args:
        federation: whose sites take part.
        listen: host and port to listen at; None: all addresses of this machine, and the port of the federation's.
        quorum: sites that the run begins with at least; the others join when they are there. None: all.
        wait: seconds to wait for them.
        patience: seconds that a site may be out of reach before nobody waits for its answer.
    """

    federation: Federation
    listen: tuple[str, int] | None = None
    quorum: int | None = None
    wait: float = 24 * 3600.0
    patience: float = PATIENCE

    @property
    def listening(self) -> tuple[str, int]:
        """Host and port where it listens."""
        host, port = split(self.federation.address)
        return self.listen or ("::" if ":" in host else "0.0.0.0", port)

    def check(self) -> None:
        """See that it can begin, before anything of a run is made.

        Raises:
            ConfigError: it waits for more sites than there are, or its certificate is none.
            RunError: it cannot listen there, or sites would not trust it.
        """
        known, (host, port) = len(self.federation.members), self.listening
        if self.quorum is not None and self.quorum > known:
            what = f"a quorum of {self.quorum} cannot be reached with {several(known, 'known site')}"
            raise ConfigError(what, where="--quorum", fix="Lower it, or make more sites known.")
        self._check_certificate()
        try:
            kind, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            socket.create_server((host, port), family=kind[0]).close()
        except OSError as error:
            fix = "Stop what listens there already, or choose another port."
            if error.errno != errno.EADDRINUSE:
                fix = "Give an address of this machine (0.0.0.0:PORT for all of them), and a port from 1024 on."
            what = f"the server cannot listen there ({error.strerror or error})"
            raise RunError(what, where=joined(host, port), fix=fix) from None

    def _check_certificate(self) -> None:
        """See that sites will trust the server, and say where that ends soon."""
        path = self.federation.tls[0]
        end, now = ends(path), datetime.now(UTC)
        command = f"`murmura federation certify {self.federation.folder}` (with its further names after it)"
        if end <= now:
            what = f"the server's certificate ended on {end:%Y-%m-%d}, and no site would connect"
            raise RunError(what, where=str(path), fix=f"{command} makes another; sites need nothing new.")
        if end - now < _SOON:
            what = f"{path}: the server's certificate ends on {end:%Y-%m-%d}, and then no site can connect"
            say(f"{what}; before that give {command}, and start `serve` again")

    def connect(self, folder: RunFolder) -> FlowerEngine:
        """Start to listen, and wait for the sites.

        Args:
            folder: of the run, where others see for whom it waits.

        Raises:
            RunError: it cannot listen; or too few sites are there in time.
        """
        keys = {name: member.node for name, member in self.federation.members.items()}
        with ExitStack() as opened:
            door = opened.enter_context(Door())
            listen = self.listening
            home = self.federation.folder / SERVER / FLOWER
            superlink = SuperLink(home, listen, self.federation.tls, keys, door.address)
            opened.callback(superlink.close)
            waited = f"{self.quorum} of {len(keys)} sites" if self.quorum is not None else several(len(keys), "site")
            say(f"listening at {joined(listen[0], superlink.port)}; waiting for {waited}")
            engine = FlowerEngine(superlink.nodes, door, superlink.carry, superlink.close, self.patience)
            opened.callback(engine.close)
            missing = engine.missing(self.wait, self.quorum, lambda sites: folder.write_live({"expected": sites}))
            needed = len(keys) if self.quorum is None else self.quorum
            if len(keys) - len(missing) < needed:
                what = f"{needed} sites are needed, and these are not there: {', '.join(missing)}"
                fix = "Start them (`murmura site start`), look at their logs, or give a smaller --quorum."
                raise RunError(what, where=self.federation.address, fix=fix, passing=True)
            opened.pop_all()
        return engine
