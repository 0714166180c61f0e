import pytest

from murmura.training.bank import Bank
from murmura.training.config import LoraSpec


@pytest.fixture
def bank(llama):
    return Bank(llama, LoraSpec(rank=4, alpha=8))
