"""Secrets come back from enough shares, whichever these are, and from no fewer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.federation.wire.shamir import PRIME, SHARE_BYTES, join, split


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.data())
def test_any_shares_that_are_enough_give_the_secret(secret, data):
    count = data.draw(st.integers(1, 12))
    threshold = data.draw(st.integers(1, count))
    shares = dict(enumerate(split(secret, count, threshold), start=1))
    places = data.draw(st.permutations(range(1, count + 1)))[: data.draw(st.integers(threshold, count))]
    assert join({place: shares[place] for place in places}) == secret
    assert all(len(share) == SHARE_BYTES for share in shares.values())


def test_the_greatest_and_the_least_secret_are_shared_too():
    for secret in (bytes(32), bytes([255]) * 32):
        shares = dict(enumerate(split(secret, 3, 2), start=1))
        assert join({place: shares[place] for place in (1, 3)}) == secret


def test_fewer_shares_go_with_every_secret_alike():
    """Of threshold 2, any one share leaves every secret possible: for each there is a line through both."""
    share = int.from_bytes(split(bytes(32), 3, 2)[0])
    other = int.from_bytes(bytes([7]) * 32)
    slope = (share - other) % PRIME  # the line with that secret at 0 which goes through the share at 1
    second = (other + 2 * slope) % PRIME
    assert join({1: share.to_bytes(33), 2: second.to_bytes(33)}) == bytes([7]) * 32


def test_shares_differ_each_time():
    assert split(bytes(32), 3, 2) != split(bytes(32), 3, 2)


def test_what_cannot_be_shared_or_joined_is_refused():
    with pytest.raises(ValueError, match="31 bytes"):
        split(bytes(31), 3, 2)
    with pytest.raises(ValueError, match="4 of 3"):
        split(bytes(32), 3, 4)
    with pytest.raises(ValueError, match="counted from 1"):
        join({0: bytes(33), 1: bytes(33)})
    with pytest.raises(ValueError, match="one secret"):
        join({1: (PRIME - 1).to_bytes(33), 2: (PRIME - 1).to_bytes(33)})
