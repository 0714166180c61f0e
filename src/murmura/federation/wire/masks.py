"""What both sides of a secure sum compute: masks from seeds, keys from agreements, and what is signed.

Key agreement is X25519, keys and seeds are derived by HKDF with SHA-256, masks are ChaCha20's key stream, and
signatures are Ed25519. Whatever is derived or signed is bound to its sum, so that nothing of one sum serves in another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from murmura.errors import RunError
from murmura.federation.wire.shamir import SEALED_BYTES, SHARE_BYTES

STEPS = ("advertise_keys", "share_keys", "check_consistency", "unmask")
"""What sites are asked besides the method's verb, which stands between the second and the third."""
KEY_BYTES, SIGNATURE_BYTES = 32, 64
OFFER_BYTES = 3 * KEY_BYTES + SIGNATURE_BYTES
"""What a site advertises: a public key to encrypt for it, one to make masks with, a digest of its seed, and its
signature of these."""

_BLOCK = 1 << 16  # bytes of a mask made at a time: they stay in the processor's cache
_ZEROS = bytes(_BLOCK)


@dataclass(frozen=True)
class Roll:
    """Who takes part in one sum, with which keys: what all of them must have been told alike.

    Args:
        sum: what is summed: the run's id, the round, the verb, how many sites were asked, and a number used once.
        names: of the sites whose keys are there; a site's *place* is its place here.
        offers: what each of them has advertised.
    """

    sum: tuple[str | int, ...]
    names: tuple[str, ...]
    offers: tuple[bytes, ...]

    @cached_property
    def digest(self) -> bytes:
        """SHA-256."""
        return statement("roll", self.sum, self.names, [offer.hex() for offer in self.offers])

    def key_to_encrypt(self, place: int) -> bytes:
        """The public key with which others encrypt for a site."""
        return self.offers[place][:KEY_BYTES]

    def key_to_mask(self, place: int) -> bytes:
        """The public key from which others make masks that they share with a site."""
        return self.offers[place][KEY_BYTES : 2 * KEY_BYTES]

    def seed_digest(self, place: int) -> bytes:
        """SHA-256 by which a site's seed can be told when it is joined from shares."""
        return self.offers[place][2 * KEY_BYTES : 3 * KEY_BYTES]

    def signed(self, place: int) -> tuple[bytes, bytes]:
        """What a site signs of what it advertises, and its signature."""
        keys, signature = self.offers[place][:-SIGNATURE_BYTES], self.offers[place][-SIGNATURE_BYTES:]
        return advertised(self.sum, self.names[place], keys), signature

    def encryption_key(self, agreed: bytes, sender: int, receiver: int) -> bytes:
        """The key for what ``sender`` encrypts for ``receiver``, which is one message.

        Args:
            agreed: what the two have agreed on, with the keys to encrypt.
        """
        return self._derived(agreed, "encrypt", sender, receiver)

    def mask_seed(self, own: X25519PrivateKey, place: int, peer: int) -> bytes:
        """The seed of the mask that the sites at two places share, the first of which has the private key ``own``.

        Raises:
            ValueError: the peer's key is no key.
        """
        return self._derived(agree(own, self.key_to_mask(peer)), "mask", min(place, peer), max(place, peer))

    def _derived(self, agreed: bytes, what: str, first: int, second: int) -> bytes:
        return HKDF(SHA256(), KEY_BYTES, self.digest, f"murmura {what} {first} {second}".encode()).derive(agreed)


def agree(own: X25519PrivateKey, peer: bytes) -> bytes:
    """What two sites know that have exchanged public keys, and nobody else.

    Raises:
        ValueError: the peer's key is no key.
    """
    return own.exchange(X25519PublicKey.from_public_bytes(peer))


def statement(*said: Any) -> bytes:
    """SHA-256 of JSON that says what it is: what is signed, and what keys are derived for."""
    return hashlib.sha256(json.dumps(["murmura secure sum", 1, *said]).encode()).digest()


def advertised(sum: Sequence[str | int], site: str, keys: bytes) -> bytes:
    """What a site signs of the keys, and the digest, that it advertises."""
    return statement("keys", list(sum), site, keys.hex())


def consistent(roll: Roll, asked: bytes, members: Sequence[int]) -> bytes:
    """What a site signs before anything is revealed: who takes part with which keys, what was asked of it, and whose
    vectors are in the sum.

    Args:
        asked: digest of the ask that was answered with a masked vector.
        members: places of these sites, ascending.
    """
    return statement("consistent", roll.digest.hex(), asked.hex(), list(members))


def vouched(roll: Roll, asked: bytes) -> bytes:
    """What a site with neighbours signs when its masked vector leaves: who takes part with which keys, and what was
    asked of it, which has the list of sites whose masks may be on the vector.

    Args:
        asked: digest of the ask that it answers.
    """
    return statement("vouched", roll.digest.hex(), asked.hex())


def protocol_bytes(sites: int, neighbours: int | None = None) -> tuple[int, int]:
    """Bytes of tensors that a site sends in a sum of so many besides its vector, and that it is sent.

    Args:
        neighbours: of each; None: all are.
    """
    holders, vouchers = (sites, 0) if neighbours is None else (neighbours + 1, neighbours + 1)
    up = OFFER_BYTES + holders * SEALED_BYTES + SIGNATURE_BYTES + holders * SHARE_BYTES
    down = sites * (OFFER_BYTES + SIGNATURE_BYTES) + holders * SEALED_BYTES + vouchers * SIGNATURE_BYTES
    return up + (SIGNATURE_BYTES if vouchers else 0), down


def packed(rows: Sequence[bytes], width: int) -> torch.Tensor:
    """Rows of bytes as uint8 [rows, width]; zeros for an empty one."""
    return torch.frombuffer(bytearray(b"".join(row or bytes(width) for row in rows)), dtype=torch.uint8).view(-1, width)


def misshapen(rows: Any, count: int, width: int) -> str | None:
    """Why this is not uint8 [count, width], in words; None where it is."""
    if isinstance(rows, torch.Tensor) and rows.dtype == torch.uint8 and tuple(rows.shape) == (count, width):
        return None
    return f"it does not hold {count} times {width} bytes"


def unpacked(rows: torch.Tensor, count: int, width: int) -> list[bytes]:
    """The inverse of ``packed``.

    Raises:
        RunError: it is not uint8 [count, width].
    """
    if why := misshapen(rows, count, width):
        raise RunError(f"a message of a secure sum cannot be read: {why}")
    whole = rows.numpy().tobytes()
    return [whole[start : start + width] for start in range(0, len(whole), width)]


def add_mask(vector: np.ndarray, seed: bytes, sign: int) -> None:
    """Add the mask of a seed to a vector of uint32 or uint64, or take it away, in place; modulo 2³² or 2⁶⁴.

    Args:
        seed: 32 bytes, never used for anything else.
        sign: 1 or −1.
    """
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    step, buffer = _BLOCK // vector.itemsize, bytearray(_BLOCK)
    little = vector.dtype.newbyteorder("<")  # so that both ends of a wire read the same numbers
    for start in range(0, len(vector), step):
        part = vector[start : start + step]
        size = part.nbytes
        stream.update_into(memoryview(_ZEROS)[:size], buffer)
        mask = np.frombuffer(buffer, little, len(part))
        if sign > 0:
            part += mask
        else:
            part -= mask
