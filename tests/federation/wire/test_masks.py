"""Masks come off, depend on every bit of their seed, and belong to one sum."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from murmura.federation.wire.masks import Roll, add_mask, advertised, agree, consistent


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_a_mask_is_the_key_stream_of_chacha20_and_comes_off(dtype):
    count = 20_001  # several blocks, and a part of one
    vector = np.zeros(count, dtype)
    add_mask(vector, b"s" * 32, 1)
    stream = Cipher(algorithms.ChaCha20(b"s" * 32, bytes(16)), mode=None).encryptor().update(bytes(vector.nbytes))
    assert vector.tobytes() == stream
    add_mask(vector, b"s" * 32, -1)
    assert not vector.any()


def test_masks_of_seeds_that_differ_in_one_bit_have_nothing_in_common():
    """A seed that was folded to fewer bits would give equal masks."""
    seeds = [bytes([1 << bit if place == byte else 0 for place in range(32)]) for byte in range(32) for bit in range(8)]
    masks = set()
    for seed in seeds:
        vector = np.zeros(8, np.uint32)
        add_mask(vector, seed, 1)
        masks.add(vector.tobytes())
    assert len(masks) == 256


def keys(count):
    pairs = [(X25519PrivateKey.generate(), X25519PrivateKey.generate()) for _ in range(count)]
    offers = tuple(a.public_key().public_bytes_raw() + b.public_key().public_bytes_raw() + bytes(96) for a, b in pairs)
    return pairs, offers


def test_two_sites_derive_the_same_and_no_other_sum_does():
    pairs, offers = keys(3)
    roll = Roll(("run", 1, "vote", 3, "n"), ("a", "b", "c"), offers)
    assert roll.mask_seed(pairs[0][1], 0, 2) == roll.mask_seed(pairs[2][1], 2, 0)
    agreed = agree(pairs[0][0], roll.key_to_encrypt(1))
    assert agreed == agree(pairs[1][0], roll.key_to_encrypt(0))
    assert roll.encryption_key(agreed, 0, 1) != roll.encryption_key(agreed, 1, 0)
    seeds = {roll.mask_seed(pairs[0][1], 0, 1), roll.mask_seed(pairs[0][1], 0, 2)}
    for other in (("run", 2, "vote", 3, "n"), ("run", 1, "vote", 3, "m"), ("other", 1, "vote", 3, "n")):
        seeds.add(Roll(other, roll.names, offers).mask_seed(pairs[0][1], 0, 1))
    assert len(seeds) == 5


def test_what_is_signed_says_what_it_is_about():
    _, offers = keys(2)
    roll = Roll(("run", 1, "vote", 2, "n"), ("a", "b"), offers)
    other = Roll(("run", 1, "vote", 2, "n"), ("a", "b"), offers[::-1])
    signed = [
        consistent(roll, b"x", [0, 1]),
        consistent(roll, b"x", [0]),
        consistent(roll, b"y", [0, 1]),
        consistent(other, b"x", [0, 1]),
        advertised(roll.sum, "a", b"x"),
        advertised(roll.sum, "b", b"x"),
        advertised(("run", 2, "vote", 2, "n"), "a", b"x"),
    ]
    assert len(set(signed)) == len(signed)


def test_a_key_that_agrees_on_nothing_is_refused():
    with pytest.raises(ValueError):
        agree(X25519PrivateKey.generate(), bytes(32))
