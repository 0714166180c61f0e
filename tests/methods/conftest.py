import pytest

from tests.methods.harness import runtime


@pytest.fixture
def bench(llama, tokenizer):
    return runtime(llama, tokenizer)
