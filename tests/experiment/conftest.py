from functools import partial

import pytest

from murmura.methods.averaging import Averaging
from tests.experiment import small


@pytest.fixture
def make(tmp_path, llama_folder):
    """Small experiments on data in ``tmp_path``; see ``small.experiment``."""
    small.write_data(tmp_path)
    return partial(small.experiment, tmp_path, llama_folder)


@pytest.fixture
def quick(make, no_page):
    """Small experiments whose runs draw no page, which takes longer than all the rest."""
    return make


@pytest.fixture
def shards(monkeypatch):
    """How many records each site was last trained on, in a run of this process."""
    found, trained = {}, Averaging.trained

    def seen(self, cohort, ask, shards, *rest, **options):
        found.update(zip([site.name for site in cohort.sites], map(len, shards), strict=True))
        return trained(self, cohort, ask, shards, *rest, **options)

    monkeypatch.setattr(Averaging, "trained", seen)
    return found
