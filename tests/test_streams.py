"""Named randomness."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from murmura.streams import Stream

paths = st.lists(st.text(max_size=5) | st.integers(-5, 5), max_size=4)


def at(seed, path):
    stream = Stream(seed)
    for name in path:
        stream /= name
    return stream


@given(st.integers(0, 3), paths, st.integers(0, 3), paths)
def test_another_place_is_another_stream(seed, path, other_seed, other_path):
    same = (seed, path) == (other_seed, other_path)
    assert (at(seed, path).integer() == at(other_seed, other_path).integer()) == same


def test_the_same_on_every_machine():
    stream = Stream(0) / "round" / 3 / "site-a"
    assert stream.integer() == 2196590087172936104
    assert 0 <= stream.integer() < 2**63


def test_generators_start_at_the_same_place_each_time():
    stream = Stream(1) / "shuffle"
    assert stream.python().random() == stream.python().random()
    assert stream.numpy().random() == stream.numpy().random()
    assert stream.uniform(3).tolist() == stream.numpy().random(3).tolist()
    draws = [torch.rand(3, generator=stream.torch()) for _ in range(2)]
    assert torch.equal(*draws)
    assert not torch.equal(draws[0], torch.rand(3, generator=(Stream(2) / "shuffle").torch()))


def test_no_global_generator_is_touched():
    torch.manual_seed(0)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    stream = Stream(1) / "x"
    stream.torch(), stream.numpy(), stream.python()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]


def test_numbers_are_numbers_wherever_they_come_from():
    assert (Stream(0) / np.int64(3)).integer() == (Stream(0) / 3).integer()
    assert (Stream(0) / "3").integer() != (Stream(0) / 3).integer()
    with pytest.raises(TypeError):
        Stream(0) / 0.5
