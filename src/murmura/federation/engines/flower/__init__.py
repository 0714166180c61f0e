"""Sites on other machines, by Flower (extra ``flower``): it carries asks and replies, and nothing else.

On both sides Flower's processes talk to Murmura's own over a local socket (``door.py``): at a site to the long-lived
process that has the model and the records, at the server to the one that leads the run. What runs inside Flower
(``app.py``) moves bytes. Between the machines stand two gateways (``gateway.py``): the server's forwards the Fleet API
of registered sites alone, a site's lets in no app but this one.
"""

from __future__ import annotations

import os
import socket
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from murmura.errors import RunError

VERSION = "1.41."
"""Of Flower: what its version begins with."""
FLEET = "/v1/fleet/"
"""What paths of Flower's Fleet API begin with, over which its SuperNodes speak with its SuperLink."""

LARGEST = 2**31
"""Bytes of an ask, and of an answer."""


def environment(home: Path, *first: Path) -> dict[str, str]:
    """Environment variables of Flower's processes: nothing is told to its makers, what it keeps is in ``home``, and no
    proxy is asked for what all of them speak with, which is on this machine.

    Args:
        first: folders that programs are looked for in before those of this Python.
    """
    path = os.pathsep.join([*map(str, first), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(home)}
    direct = {"NO_PROXY": "*", "no_proxy": "*"}
    return {**os.environ, **quiet, **direct, "PATH": path, "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25"}


def require() -> None:
    """Check that Flower is installed, in a version whose commands are known.

    Raises:
        RunError: it is not.
    """
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise RunError("Flower is not installed", fix="pip install 'murmura[flower]'") from None
    if not found.startswith(VERSION):
        what = f"Flower {found} is installed, and Murmura knows the commands of {VERSION}x"
        raise RunError(what, fix="pip install 'murmura[flower]'")


def free_port() -> int:
    """A port of the loopback interface that nothing listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
