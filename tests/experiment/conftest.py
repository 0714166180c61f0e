from contextlib import contextmanager
from functools import partial

import pytest
from safetensors.torch import load_file

from murmura.experiment.run import run
from murmura.federation.engines.local import LocalEngine
from murmura.methods.averaging import Averaging
from tests.experiment import small
from tests.training.helpers import EPS


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
def skin_keeps_nothing(monkeypatch):
    """Within this block, site "skin" does not leave an adapter of its own when it is asked to."""
    ask = LocalEngine.ask

    def without_skin(engine, asked, sites):
        yield from ask(engine, asked, [site for site in sites if (asked.verb, site) != ("keep", "skin")])

    @contextmanager
    def block():
        with monkeypatch.context() as broken:
            broken.setattr(LocalEngine, "ask", without_skin)
            yield

    return block


@pytest.fixture
def shards(monkeypatch):
    """How many records each site was last trained on, in a run of this process."""
    found, trained = {}, Averaging.trained

    def seen(self, cohort, ask, shards, *rest, **options):
        found.update(zip([site.name for site in cohort.sites], map(len, shards), strict=True))
        return trained(self, cohort, ask, shards, *rest, **options)

    monkeypatch.setattr(Averaging, "trained", seen)
    return found


@pytest.fixture
def both(make, tmp_path, forked_workers, no_page):
    """Run an experiment in this process and in the workers; returns the adapters of each."""
    small.write_both(tmp_path)

    def adapters(engine, method, **sections):
        kept = {"engine": engine, "workers": 2, "folder": str(tmp_path / engine)} if engine != "local" else {}
        kept = {"folder": str(tmp_path / engine), **kept}
        folder = run(make(run=kept, method=method | {"rounds": 2}, **sections)).folder
        return {str(f.relative_to(folder)): load_file(f) for f in folder.rglob("adapter_model.safetensors")}

    def go(method, **sections):
        sections["training"] = {"eps": EPS}
        sections.setdefault("evaluation", {"every": 9, "sample": 1, "uploads": 0, "attacks": False})
        return adapters("local", method, **sections), adapters("processes", method, **sections)

    return go
