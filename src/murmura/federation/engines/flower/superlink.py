"""Flower's server, on this machine's loopback interface, and the gateway that sites reach it by."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from murmura import atomic
from murmura.errors import MurmuraError, RunError
from murmura.federation.engines.flower import environment, free_port
from murmura.federation.engines.flower.bundle import answered, project
from murmura.federation.engines.flower.certificates import new_local
from murmura.federation.engines.flower.child import Child
from murmura.federation.engines.flower.gateway import Gateway
from murmura.progress import say

_START = 60.0  # seconds that it may take to listen
_WATCH = 0.5
_NAME = "here"
_IN_USE = "already in use"  # what Flower says of a key that it knows
_CONFIG = """\
[superlink]
default = "{name}"

[superlink.{name}]
address = "127.0.0.1:{port}"
root-certificates = "{certificate}"
"""


class SuperLink:
    """A SuperLink that is started again when it ends, with what it knew.

    Args:
        folder: where it keeps what it keeps; only its owner may look into it.
        listen: host and port where sites reach it.
        tls: certificate and key that it shows them.
        keys: the sites' public keys by their names, in OpenSSH's form.
        door: address of the socket at which what it carries is handed over.

    Attributes:
        nodes: Flower's number of each site.
        port: where sites reach it.

    Raises:
        RunError: it cannot be started.
    """

    def __init__(
        self, folder: Path, listen: tuple[str, int], tls: tuple[Path, Path], keys: Mapping[str, str], door: Path
    ) -> None:
        self._folder, self._door, self._ending = folder, door, False
        atomic.make_private(folder)
        self._local = folder / "local.crt", folder / "local.key"
        new_local(*self._local)
        self._port = free_port()
        config = _CONFIG.format(name=_NAME, port=self._port, certificate=self._local[0])
        (folder / "config.toml").write_text(config, encoding="utf-8")
        self._child = self._start()
        try:
            self.nodes = self._registered(keys)
            known = {_as_header(key) for key in keys.values()}
            upstream = f"https://127.0.0.1:{self._port}"
            self._gateway = Gateway(listen, tls, upstream, self._local[0], keys=known, holds=True)
        except BaseException:
            self._child.end()
            raise
        self.port = self._gateway.port
        self._thread = threading.Thread(target=self._watch, daemon=True, name="superlink")
        self._thread.start()

    def carry(self) -> None:
        """Start what carries frames between the door and the sites.

        Raises:
            RunError: Flower does not.
        """
        told = self._folder / "run.toml"
        told.write_text(f"murmura = {json.dumps(json.dumps({'door': str(self._door)}))}\n", encoding="utf-8")
        app = project(self._folder / "app")
        answered(["flwr", "run", str(app), _NAME, "--run-config", str(told)], self._folder, "run-id")

    def close(self) -> None:
        """End it, and the gateway."""
        if not self._ending:
            self._ending = True
            self._thread.join()
            self._gateway.close()
            self._child.end()

    def _start(self) -> Child:
        child = Child("Flower's SuperLink", self._program(), environment(self._folder), self._folder / "superlink.log")
        end = time.monotonic() + _START
        while not self._is_listening():
            if not (alive := child.is_alive) or time.monotonic() > end:
                child.end()
                what = f"Flower's SuperLink does not start: {child.said}"
                raise RunError(what, where=str(self._folder), passing=alive)  # a machine may have been too busy
            time.sleep(0.1)
        return child

    def _program(self) -> Sequence[str]:
        certificate, key = map(str, self._local)
        return [
            "flower-superlink",
            *("--host", "127.0.0.1", "--port", str(self._port), "--enable-supernode-auth"),
            *("--ssl-certfile", certificate, "--ssl-keyfile", key, "--ssl-ca-certfile", certificate),
            *("--database", str(self._folder / "state.db"), "--disable-runtime-dependency-installation"),
        ]

    def _is_listening(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1):
                pass
            verifying = ssl.create_default_context(cafile=str(self._local[0]))
            url = f"https://127.0.0.1:{self._port}/health"
            return httpx.get(url, verify=verifying, timeout=5, trust_env=False).is_success  # by no proxy
        except (OSError, httpx.HTTPError):
            return False

    def _registered(self, keys: Mapping[str, str]) -> dict[str, int]:
        """Make the sites' keys known to it, as far as it does not know them from before; those of sites that have left
        stay known, since it would never take them again. The gateway lets none of them in."""
        path = self._folder / "nodes.json"
        try:
            read = json.loads(path.read_text()) if path.exists() else {}
            known = {key: int(node) for key, node in read.items()}
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            fix = f"Remove {self._folder}; sites need nothing new."
            raise RunError("which sites' keys Flower knows is damaged", where=str(path), fix=fix) from None
        failed: RunError | None = None
        with ThreadPoolExecutor(4) as several:
            begun = {several.submit(self._register, key): site for site, key in keys.items() if key not in known}
            for done in as_completed(begun):
                site = begun[done]
                try:
                    known[keys[site]] = done.result()
                except RunError as error:
                    failed, error.where = error, f"site {site}"
                else:  # what Flower knows has to be known here, however this ends, and nothing that it may forget
                    self._sync()
                    atomic.write(path, json.dumps(known).encode(), private=True)
        if failed is not None:
            raise failed
        return {site: known[key] for site, key in keys.items()}

    def _sync(self) -> None:
        """Have on the disk what Flower has written, which it does not wait for."""
        for file in self._folder.glob("state.db*"):
            with suppress(FileNotFoundError):  # Flower has joined it to the other one meanwhile
                atomic.sync(file)

    def _register(self, key: str) -> int:
        path = self._folder / f"{sha256(key.encode()).hexdigest()[:16]}.pub"
        path.write_text(key + "\n", encoding="ascii")
        try:
            return int(answered(["flwr", "supernode", "register", str(path), _NAME], self._folder, "node-id"))
        except RunError as error:
            if _IN_USE in error.what:
                told = "It has it from a start that was broken off"
                error.passing, error.fix = False, f"{told}: remove {self._folder}; sites need nothing new."
            raise
        finally:
            path.unlink()

    def _watch(self) -> None:
        while not self._ending:
            if not self._child.is_alive:
                say("Flower's SuperLink has ended, and is started again")
                self._child.end()
                try:
                    self._child = self._start()
                except (MurmuraError, OSError) as error:  # else it would not be started again
                    say(str(error))
            self._child.shorten()
            time.sleep(_WATCH)


def _as_header(key: str) -> str:
    """A public key as requests of a SuperNode have it."""
    public = load_ssh_public_key(key.encode())
    return b64encode(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)).decode()
