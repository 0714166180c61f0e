"""By what sites know one another: each has a key of its own, and a roster of the others' public keys.

Whoever makes the roster can put keys of their own into it, and then speak for sites to others. So owners compare its
fingerprint. Each site refuses a roster that has another key for itself; where all have the same one, its keys are true.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from murmura import atomic
from murmura.errors import CheckpointError, explaining
from murmura.runs.names import SITE_IDENTITY

Roster = Mapping[str, bytes]
"""Public identity keys (Ed25519, 32 bytes) by the names of the sites."""


def identity(folder: Path) -> Ed25519PrivateKey:
    """The key of the site whose folder this is; made when there is none.

    Raises:
        CheckpointError: it cannot be read or written, or is no such key.
    """
    path = folder / SITE_IDENTITY
    with explaining("the site's identity key cannot be used", path):
        if not path.exists():
            atomic.make_private(folder)
            made = Ed25519PrivateKey.generate()
            pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            atomic.write(path, pem, private=True)
        pem = path.read_bytes()
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        fix = "Restore it from a copy, or start over."
        raise CheckpointError("this is not an Ed25519 private key in PEM", where=str(path), fix=fix)
    return key


def public(key: Ed25519PrivateKey) -> bytes:
    """What others know it by, 32 bytes."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def fingerprint(known: Mapping[str, Any]) -> str:
    """Of what is known of one, as JSON, for people to compare: 128 bits of a SHA-256, in groups of four hexadecimal
    digits."""
    digits = sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    return " ".join(digits[start : start + 4] for start in range(0, 32, 4))


@lru_cache(maxsize=1 << 14)  # simulated sites all check the same ones
def is_signed(key: bytes, what: bytes, signature: bytes) -> bool:
    """Whether a signature is that of an identity, of just this."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, what)
    except InvalidSignature:
        return False
    return True


def write_roster(path: Path, folders: Mapping[str, Path]) -> None:
    """Make a roster of sites whose folders are all here; those that have no key yet are given one.

    Raises:
        CheckpointError: something cannot be written.
    """
    keys = {site: public(identity(folder)).hex() for site, folder in folders.items()}
    with explaining("the roster of sites cannot be written", path):
        atomic.write(path, json.dumps(keys, indent=0).encode(), private=True)


def read_roster(path: Path) -> Roster:
    """A roster: JSON, public keys in hexadecimal digits by the sites' names.

    Raises:
        CheckpointError: it cannot be read, or is no roster.
    """
    try:
        found = {str(name): bytes.fromhex(key) for name, key in json.loads(path.read_text(encoding="utf-8")).items()}
        if any(len(key) != 32 for key in found.values()):
            raise ValueError("a key is not of 32 bytes")
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        fix = 'Get it from the owners of the sites: {"NAME": "PUBLIC KEY IN HEX", ...}.'
        raise CheckpointError(f"the roster of sites cannot be read ({why})", where=str(path), fix=fix) from error
    return found
