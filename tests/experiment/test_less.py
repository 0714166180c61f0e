"""Runs whose public records are chosen by LESS."""

import pytest
from safetensors.torch import load_file

from murmura.errors import ConfigError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.timing import timing
from murmura.experiment.run import run
from murmura.runs import read
from tests.augment.public import DOMAINS, public
from tests.experiment.small import SIZES, experiment, write_data
from tests.retrieval.pools import make_pool, unit
from tests.training.helpers import EPS, assert_close

ROWS, DIMENSION, EPOCHS = 12, 64, 2
QUICK = {"attacks": False, "sample": 1, "every": 9}


@pytest.fixture
def make(tmp_path, llama_folder):
    """Makes experiments in which each site is given four records; their vectors do not matter."""
    pool = make_pool(tmp_path / "pool", unit(ROWS, 8), DOMAINS, records=public(ROWS))
    write_data(tmp_path)

    def made(method=None, augment=None, **sections):
        chosen = {
            "pool": str(pool.folder),
            "strategy": "less",
            "records": 4,
            "less_warm_up": 0.5,
            "less_epochs": EPOCHS,
            "less_batch": 2,
            "less_lr": 1e-3,
            "less_dimension": DIMENSION,
        } | (augment or {})
        return experiment(tmp_path, llama_folder, method, augment=chosen, evaluation=QUICK, **sections)

    return made


def test_a_run_tells_what_was_given_and_what_left_for_it(make):
    result = run(make({"rounds": 3}, {"every": 2, "less_sample": 8}))
    record = read(result.folder)
    assert [choice.round for choice in record.augment] == [1, 3]
    first, again = record.augment
    for choice in record.augment:
        assert choice.strategy == "LESS among 8 records of the pool" and choice.scored_by == "influence"
        assert "gradients of every single record" in choice.private
        assert {site: one.rows for site, one in choice.sites.items()} == dict.fromkeys(SIZES, 4)
        assert all(-1 < one.similarity.least <= one.similarity.most <= 1.001 for one in choice.sites.values())
        assert all("by influence" in one.why for one in choice.examples)
    assert [one.similarity for one in first.sites.values()] != [one.similarity for one in again.sites.values()]
    [told] = [row for row in record.disclosure if row.verb == "features"]
    assert told.messages == 4 and told.protection is None and "turned back" in told.note
    assert told.bytes == 2 * EPOCHS * DIMENSION * 4 * sum(SIZES.values())


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_workers_choose_the_same(make, tmp_path, forked_workers):
    training = {"eps": EPS}  # sites train together here and apart there, which rounds otherwise
    local = read(run(make({"rounds": 1}, training=training)).folder)
    apart = {"folder": str(tmp_path / "apart"), "engine": "processes", "workers": 2}
    workers = read(run(make({"rounds": 1}, training=training, run=apart)).folder)
    assert workers.augment == local.augment
    ours, theirs = (load_file(one.folder / "adapter" / "adapter_model.safetensors") for one in (workers, local))
    assert_close(ours, theirs)


def test_a_dry_run_says_what_would_be_sent_and_what_that_betrays(make):
    found = dry_run(make())
    assert ("features", "features") in {(row.verb, row.field) for row in found.disclosure}
    [note] = [note for note in found.notes if "projected gradients of every single record" in note]
    assert "turned back" in note and "each record of the pool the server would take a forward" in note
    assert "a forward and a backward pass in each of 2 epochs" in note
    assert timing(found).of("choosing") > 0
    assert found.public.up == EPOCHS * DIMENSION * 4 * sum(SIZES.values())
    assert found.public.down > EPOCHS * 2 * found.rounds[0].bytes_down / 2


@pytest.mark.parametrize(
    ("method", "sections", "said"),
    [
        ({"name": "dplora"}, {}, r"augment\.strategy: .*promises an ε .*gradients of every single record"),
        ({"name": "dpfedavg"}, {}, r"augment\.strategy: .*promises an ε"),
        ({}, {"model": {"trainable": "all"}}, r"augment\.strategy: LESS compares gradients of adapters"),
    ],
)
def test_where_an_epsilon_is_promised_or_no_adapter_trains_it_is_refused(make, method, sections, said):
    for attempt in (run, dry_run):
        with pytest.raises(ConfigError, match=said):
            attempt(make(method, **sections))
