"""Shamir's secret sharing (Shamir 1979) of secrets of 32 bytes.

A secret is the value at 0 of a random polynomial of degree t − 1 over a prime field; a share is its value at a place,
counted from 1. Any t shares give the secret, and t − 1 say nothing of it. Which shares come from whom is not checked:
they travel in messages that are.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from functools import lru_cache

PRIME = 2**256 + 297
"""The least prime above all secrets."""
SECRET_BYTES, SHARE_BYTES = 32, 33
SEALED_BYTES = 2 * SHARE_BYTES + 16
"""Shares of two secrets, encrypted, with their tag."""


def split(secret: bytes, count: int, threshold: int) -> list[bytes]:
    """Shares of a secret for the places 1 to ``count``, any ``threshold`` of which give it back.

    Raises:
        ValueError: the secret is not of 32 bytes, or the threshold is not among 1 ... ``count``.
    """
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= count:
        raise ValueError(f"a secret of {len(secret)} bytes cannot be shared {threshold} of {count}")
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    shares = []
    for place in range(1, count + 1):
        value = 0
        for coefficient in coefficients:
            value = (value + coefficient) * place % PRIME
        shares.append(((value + int.from_bytes(secret)) % PRIME).to_bytes(SHARE_BYTES))
    return shares


@lru_cache(maxsize=256)
def _basis(places: tuple[int, ...]) -> Mapping[int, int]:
    """What a share at each of these places counts for in the secret: Lagrange's polynomials at 0. The same for all
    secrets that are joined from these places."""
    if any(place < 1 for place in places):
        raise ValueError("places of shares are counted from 1")
    above, found = math.prod(places), {}
    for place in places:
        below = math.prod(other - place for other in places if other != place)
        found[place] = above // place * pow(below, -1, PRIME) % PRIME
    return found


def join(shares: Mapping[int, bytes]) -> bytes:
    """The secret of which these are shares, by their places: at least as many as the threshold.

    Raises:
        ValueError: they are not shares of one secret of 32 bytes, or a place is none.
    """
    basis = _basis(tuple(sorted(shares)))
    value = sum(int.from_bytes(shares[place]) * factor for place, factor in basis.items()) % PRIME
    if value >> 8 * SECRET_BYTES:
        raise ValueError("these are not shares of one secret")
    return value.to_bytes(SECRET_BYTES)
