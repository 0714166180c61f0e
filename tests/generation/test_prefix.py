"""Which beginnings are shared, against every pair of prompts."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.generation.prefix import common_prefix, shared_prefixes

HEAD = list(range(100, 120))


def chain(prefix):
    """A prefix and those that it continues, the longest first."""
    while prefix is not None:
        yield prefix
        prefix = prefix.parent


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_a_common_prefix_is_equal_and_no_longer_one_is(a, b):
    n = common_prefix(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]


def test_a_common_header_is_shared_by_those_of_one_slot():
    prompts = [[*HEAD, 1, 2], [*HEAD, 3], [*HEAD, 1, 5], [*HEAD, 7], list(range(30))]
    found = shared_prefixes(prompts, [0, 0, 0, 1, 0])
    assert [prefix and list(prefix.ids) for prefix in found] == [HEAD, HEAD, HEAD, None, None]
    assert found[0] is found[1] is found[2]


def test_a_longer_beginning_continues_a_shorter_one():
    longer = [*HEAD, *range(50, 60)]
    found = shared_prefixes([[*longer, 1], [*longer, 2], [*HEAD, 3]], [0, 0, 0])
    assert [list(prefix.ids) for prefix in found] == [longer, longer, HEAD]
    assert found[0].parent is found[2]


def test_several_continuations_of_one_prompt_leave_its_last_token():
    found = shared_prefixes([HEAD] * 3, [2, 2, 2])
    assert {id(prefix) for prefix in found} == {id(found[0])}
    assert (list(found[0].ids), found[0].slot) == (HEAD[:-1], 2)


def test_a_short_beginning_is_not_worth_it():
    assert shared_prefixes([[1, 2, 3, 4], [1, 2, 3, 5]], [0, 0]) == [None, None]
    assert shared_prefixes([], []) == []


@pytest.mark.parametrize("seed", range(20))
def test_what_is_shared_is_a_beginning(seed):
    rng = random.Random(seed)
    stems = [[rng.randrange(3) for _ in range(rng.randrange(40))] for _ in range(3)]
    prompts = [[*rng.choice(stems)[: rng.randrange(40)], rng.randrange(3), rng.randrange(3)] for _ in range(30)]
    slots = [rng.randrange(2) for _ in prompts]
    saved = 0
    for prompt, slot, prefix in zip(prompts, slots, shared_prefixes(prompts, slots), strict=True):
        parts = list(chain(prefix))
        for part in parts:
            assert list(part.ids) == prompt[: len(part.ids)]
            assert len(part.ids) < len(prompt)
            assert part.slot == slot
        assert all(len(longer.ids) >= len(shorter.ids) + 8 for longer, shorter in pairwise(parts))
        saved += bool(parts)
    assert saved
