"""Where a server is reached: a host and a port."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import ip_address

from murmura.errors import ConfigError

PORT = 9443
"""Where the server is reached, unless something else is said."""
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)", re.ASCII)
_LONGEST = 253  # characters of a name (RFC 1035)


def split(address: str, port: int = PORT) -> tuple[str, int]:
    """Host and port of an address, HOST or HOST:PORT; an IPv6 address is in brackets. Without a port it has that one.

    Raises:
        ConfigError: it is none.
    """
    parts = re.fullmatch(r"(?:\[(.*:.*)\]|([^:]*))(?::(\d{1,5}))?", address)
    port = int(parts[3] or port) if parts else 0
    if parts is None or not 0 < port < 2**16:
        fix = "Give HOST or HOST:PORT, with a port from 1 to 65535; IPv6 in brackets, as [::1]:PORT."
        raise ConfigError("this is not an address", where=address, fix=fix)
    return machine(parts[1] or parts[2]), port


def joined(host: str, port: int) -> str:
    """The inverse of ``split``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def machine(name: str) -> str:
    """The same, if a machine can be called so.

    Raises:
        ConfigError: it cannot.
    """
    try:
        return str(ip_address(name))
    except ValueError:
        labels = name.removesuffix(".").split(".")
    # What ends in digits is no name but an address, and was none.
    if len(name) > _LONGEST or labels[-1].isdigit() or not all(map(_LABEL.fullmatch, labels)):
        fix = "Give a name, or an address such as 192.0.2.1."
        with suppress(UnicodeError):
            plain = name.encode("idna").decode()
            fix = f"Give it as {plain}." if plain != name else fix
        raise ConfigError("no machine can be called so", where=name, fix=fix)
    return name
