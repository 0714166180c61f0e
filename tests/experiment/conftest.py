from functools import partial

import pytest

from tests.experiment import small


@pytest.fixture
def make(tmp_path, llama_folder):
    """Small experiments on data in ``tmp_path``; see ``small.experiment``."""
    small.write_data(tmp_path)
    return partial(small.experiment, tmp_path, llama_folder)
