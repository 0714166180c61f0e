"""A site's own process on its own machine: it has the model and the records, and waits for what its run asks."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack, closing
from os.path import realpath
from pathlib import Path

from murmura.errors import ConfigError
from murmura.experiment.federation import server_of
from murmura.experiment.site_file import SiteFile
from murmura.experiment.site_side import open_sites
from murmura.federation.engines.flower.door import Door
from murmura.federation.engines.flower.site import answer
from murmura.federation.engines.flower.supernode import SuperNode
from murmura.federation.engines.worker import Worker
from murmura.progress import say
from murmura.runs.names import AUTHORITY, FLOWER, NODE_KEY
from murmura.units import several


def play(folder: Path, again: bool) -> None:
    """Answer what the federation's server asks of a site, until the process is ended.

    Args:
        again: see ``open_sites``.

    Raises:
        ConfigError: the site's file or the experiment is wrong, the owner does not allow the run, or nothing says where
            the server is.
        ModelError, DataError, CheckpointError, PrivacyError, SecureSumError: as ``open_sites``.
        RunError: Flower cannot be started.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(realpath(folder))  # Flower's commands work in folders of their own
    file = SiteFile.load(folder)
    if file.simulated:
        fix = "Leave the option out; `murmura federation new` makes folders without it."
        raise ConfigError("a simulation plays this site (simulated = true)", where=f"site {file.name}", fix=fix)
    address = server_of(Path(file.federation))
    if not (folder / NODE_KEY).exists():
        fix = f"`murmura site init {folder}` makes it; then have the federation's server know it."
        raise ConfigError("the site has no key yet", where=str(folder / NODE_KEY), fix=fix)
    with ExitStack() as opened:
        host = opened.enter_context(closing(open_sites([folder], again=again)))
        [site] = host.sites.values()
        if site.rejection is not None:
            fix = "Look at `murmura site show`, and at [allow] in site.toml."
            raise ConfigError(f"the site would answer nothing: {site.rejection}", where=f"site {site.name}", fix=fix)
        door = opened.enter_context(Door())
        authority = (Path(file.federation) / AUTHORITY).resolve()
        node = SuperNode(folder / FLOWER, address, authority, folder / NODE_KEY, door.address)
        opened.enter_context(closing(node))
        say(f"site {site.name}: {several(site.size, 'record')}; waiting for {address} to ask")
        answer(door, Worker(None, host))
