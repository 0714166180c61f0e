"""Federations whose sites are in this process, behind SuperNodes of their own."""

from dataclasses import dataclass

from murmura.experiment.consent import consent, digest_of
from murmura.experiment.federation import Federation, admit, found, introduce
from murmura.experiment.prepare import prepare
from murmura.experiment.site_side import open_sites
from murmura.federation.engines.worker import Worker
from murmura.runs.names import site_folder
from tests.federation.engines.flowered import Link
from tests.federation.engines.wired import Wired


@dataclass
class Near:
    """A deployment whose sites are opened in this process, with no Flower between."""

    federation: Federation
    quorum: int | None = None

    def check(self):
        """It listens nowhere."""

    def connect(self, folder):
        folders = [self.federation.folder / site_folder(site) for site in self.federation.members]
        self.host = open_sites(folders)
        return Wired(self.host, workers=1)

    def leave(self):
        """End the sites' process."""
        self.host.close()


class Tried(Near):
    """One whose sites are in threads of this process, each behind a SuperNode of its own."""

    def connect(self, folder):
        self.link, self.hosts = Link.of_tests(), {}
        for site in self.federation.members:
            self.hosts[site] = open_sites([self.federation.folder / site_folder(site)])
        self._engine = self.link.engine({site: Worker(None, host) for site, host in self.hosts.items()})
        self.sites, self.ask, self.returned = self._engine.sites, self._engine.ask, self._engine.returned
        return self

    def close(self):
        self.link.leave()
        for host in self.hosts.values():
            host.close()


def founded(experiment, folder, address="127.0.0.1:9443"):
    """A federation whose sites have all been made known, and have consented."""
    folders = found(prepare(experiment), folder, address)
    for name, own in folders.items():
        introduce(own, name, len((own / "records.jsonl").read_text().splitlines()))
    admit(folder, [own / "public.json" for own in folders.values()])
    loaded = Federation.load(folder, {"run.engine": "flower", "run.folder": str(folder / "run")})
    digest = digest_of(loaded.experiment, folder / "@federation")
    for own in folders.values():
        consent(own, digest, "")
    return loaded
