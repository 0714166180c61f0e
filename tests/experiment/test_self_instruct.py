"""Runs whose sites train on what a model has written after their own records."""

import json
from collections import Counter

import pytest

from murmura.augment import writing
from murmura.data.records import Instruction
from murmura.drafting.draft import Drafts
from murmura.errors import ConfigError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.runs import read
from murmura.runs.names import AUGMENT
from tests.experiment.small import SIZES, experiment, write_data

pytestmark = pytest.mark.usefixtures("no_page")

QUICK = {"attacks": False, "sample": 1, "every": 9}


@pytest.fixture
def make(tmp_path, llama_folder):
    write_data(tmp_path)

    def made(method=None, augment=None, **sections):
        chosen = {"strategy": "self-instruct", "records": 3, **(augment or {})}
        return experiment(tmp_path, llama_folder, method, augment=chosen, evaluation=QUICK, **sections)

    return made


@pytest.fixture
def drafted(monkeypatch):
    """Let writing succeed for all but one of the records; yields how often each site was written for."""
    asked = Counter()

    def draft(runtime, orders, config):
        asked.update(str(order.stream.path[-1]) for order in orders)
        records = [Instruction(f"write note {n}", "", f"rest and drink {n}") for n in range(config.drafts - 1)]
        return [Drafts(records, Counter({"drafts.similar": 2})) for _ in orders]

    monkeypatch.setattr(writing, "draft", draft)
    return asked


def test_sites_train_on_what_was_written_and_nothing_of_it_leaves(make, drafted, shards):
    result = run(make({"rounds": 3}, {"every": 2}))
    record = read(result.folder)
    assert shards == {site: size + 2 for site, size in SIZES.items()}
    assert drafted == dict.fromkeys(SIZES, 2)  # in rounds 1 and 3
    assert record.augment == () and not (result.folder / AUGMENT).exists()
    assert {row.verb for row in record.disclosure if row.messages} == {"train", "join"}
    assert [len(row.told) for row in record.rounds] == [0, 1, 0, 1] and not record.unplanned
    [told] = record.rounds[1].told
    assert "2 sites have had records written" in told and "none of them is public" in told
    notes = (result.folder / "private" / "heart" / "notes.txt").read_text()
    assert "Round 1: 2 of 3 records were written" in notes and "Round 3:" in notes
    public = json.dumps([json.loads(path.read_text()) for path in result.folder.glob("*.json")])
    assert "write note" not in public


@pytest.mark.slow
def test_workers_write_the_same(make, tmp_path, forked_workers):
    """A tiny model writes nothing of use; why not is the same for each attempt."""
    few = {"write_tokens": 40, "write_attempts": 2}
    local = run(make({"rounds": 1}, few)).folder
    apart = {"folder": str(tmp_path / "apart"), "engine": "processes", "workers": 2}
    workers = run(make({"rounds": 1}, few, run=apart)).folder
    for site in SIZES:
        ours, theirs = ((folder / "private" / site / "notes.txt").read_text() for folder in (workers, local))
        assert "times" in theirs and ours.partition("Round")[2] == theirs.partition("Round")[2]


@pytest.mark.parametrize("name", ["dplora", "dpfedavg", "dpftrl"])
def test_it_is_refused_where_an_epsilon_is_promised(make, name):
    refused = make({"name": name})
    for attempt in (run, dry_run):
        with pytest.raises(ConfigError, match=r"augment\.strategy: .*promises an ε .*the records themselves"):
            attempt(refused)
    assert not refused.run.path.exists()


def test_a_dry_run_says_how_much_would_be_written_and_that_it_is_private(make):
    found = dry_run(make({"rounds": 3}, {"every": 2, "write_tokens": 100, "write_attempts": 2})).public
    assert (found.records, found.tokens) == (3, 3 * 2 * (64 + 100)) and found.up == 0 and found.down > 0
    notes = dry_run(make()).notes
    assert any("Self-Instruct" in note and "not public" in note for note in notes)
    assert not any("To choose public records" in note for note in notes)
