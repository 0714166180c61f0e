"""What tests of measuring share."""

import pytest

from tests.federation.world import make_workbench
from tests.training.helpers import random_state


@pytest.fixture
def bench(tokenizer):
    return make_workbench(tokenizer, slots=2)


def adapters(bench, count):
    return [random_state(bench.bank, seed, scale=0.3) for seed in range(count)]
