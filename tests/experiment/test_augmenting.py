"""Runs with ``[augment]``, from their file to their folder."""

from __future__ import annotations

import json
import shutil
import tomllib
from io import StringIO

import pytest
from rich.console import Console
from safetensors.torch import load_file

import murmura.federation.site.cohort
from murmura.errors import ConfigError, DataError
from murmura.experiment.dry_run import dry_run
from murmura.experiment.dry_run_view import show
from murmura.experiment.run import run
from murmura.methods.averaging import Averaging
from murmura.retrieval.pool import VECTORS, Pool
from murmura.runs import read
from tests.augment.public import embedded_pool, public, save_encoder
from tests.experiment.small import SIZES, experiment, write_data

ROWS = 30
QUICK = {"attacks": False, "sample": 1, "every": 9}


@pytest.fixture(scope="module")
def encoder(tokenizer, tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"), tokenizer)


@pytest.fixture(scope="module")
def pool(encoder, tmp_path_factory):
    """Public records of two domains; the second one is also a record of the site heart."""
    own = public(1, first=2)
    return embedded_pool(tmp_path_factory.mktemp("pool"), encoder, [*public(1), *own, *public(ROWS - 2, first=102)])


@pytest.fixture
def make(tmp_path, llama_folder, pool, monkeypatch):
    """Makes experiments in which each site is given four records."""
    monkeypatch.setenv("MURMURA_CACHE", str(tmp_path / "cache"))
    write_data(tmp_path)

    def made(method=None, augment=None, **sections):
        chosen = {"pool": str(pool.folder), "records": 4, **(augment or {})}
        strategy = chosen.setdefault("strategy", "feddca")
        # Vectors of a random encoder are all alike, and α would leave none.
        chosen |= {} if strategy == "random" else {"clusters": 2} | ({} if strategy == "direct" else {"alpha": 0})
        return experiment(tmp_path, llama_folder, method, augment=chosen, **sections)

    return made


@pytest.mark.parametrize("strategy", ["feddca", "coverage", "direct", "random"])
def test_a_run_tells_what_was_given_to_whom_and_why(make, strategy):
    result = run(make(augment={"strategy": strategy, "domain": "heart"}, evaluation=QUICK))
    record = read(result.folder)
    [choice] = record.augment
    asked = {(row.verb, row.field): row.messages for row in record.disclosure}
    assert choice.round == 1 and {site: one.rows for site, one in choice.sites.items()} == dict.fromkeys(SIZES, 4)
    assert len(choice.examples) == 8 and len(choice.points) > 15
    assert all(row["coverage"] == choice.coverage > 0 for row in result.rows[1:]) and "coverage" not in result.rows[0]
    written = tomllib.loads((result.folder / "config.toml").read_text())["augment"]
    if strategy == "random":
        assert not choice.private and choice.histogram is None and ("centres", "centres") not in asked
        assert "encoder" not in written
    else:
        assert choice.private and asked["centres", "centres"] == asked["centres", "sizes"] == 2
        assert {one.centres for one in choice.sites.values()} == {2} and choice.mean_similarity > 0
        assert written["encoder"] == Pool.open(written["pool"]).encoder.name
    sent = sum(one.bytes for one in choice.sites.values())
    assert result.rows[1]["bytes_down"] > result.rows[2]["bytes_down"] + sent


def test_sites_train_on_what_they_are_given_and_count_for_it(make, monkeypatch):
    shards, examples = {}, {}

    def seen(self, cohort, ask, shards_, *rest, **options):
        shards.update(zip([site.name for site in cohort.sites], map(len, shards_), strict=True))
        return trained(self, cohort, ask, shards_, *rest, **options)

    def counted(self, *args, **options):
        replies = answered(self, *args, **options)
        examples.update((reply.site, reply["examples"]) for reply in replies)
        return replies

    trained, answered = Averaging.trained, Averaging.answered
    monkeypatch.setattr(Averaging, "trained", seen)
    monkeypatch.setattr(Averaging, "answered", counted)
    result = run(make({"rounds": 1}, {"strategy": "random", "records": ROWS}, evaluation=QUICK))
    # One of the pool's records is heart's own, which it leaves out; nobody else is told.
    assert shards == {"heart": 6 + ROWS - 1, "skin": 3 + ROWS}
    assert examples == {"heart": 6 + ROWS, "skin": 3 + ROWS}
    notes = (result.folder / "private" / "heart" / "notes.txt").read_text()
    assert f"of {ROWS} public records that the server has sent, 1 ask" in notes and "left out" in notes
    assert not (result.folder / "private" / "skin" / "notes.txt").exists()
    assert read(result.folder).augment[0].sites["heart"].rows == ROWS


@pytest.mark.parametrize(
    "method",
    [
        {"algorithm": "scaffold"}, {"algorithm": "fedprox"}, {"algorithm": "fedavgm"}, {"algorithm": "local"},
        {"name": "dplora", "algorithm": "cmfl"}, {"name": "dplora", "algorithm": "tfedavg"},
        {"name": "dpfedavg", "noise_multiplier": 0.0},
    ],
    ids=str,
)  # fmt: skip
def test_public_records_change_what_other_methods_train_too(make, method):
    base = make().run.path.parent
    runs = {
        records: run(
            make(method | {"rounds": 1}, {"strategy": "random", "records": records}, evaluation=QUICK,
                 run={"folder": str(base / str(records))})
        ).folder
        for records in (1, 9)
    }  # fmt: skip
    one, other = ({path.relative_to(folder): load_file(path) for path in folder.rglob("adapter_model.safetensors")}
                  for folder in runs.values())  # fmt: skip
    assert one.keys() == other.keys() and one
    assert all(any(not one[path][name].equal(other[path][name]) for name in one[path]) for path in one)


def test_a_dry_run_foresees_steps_and_bytes_and_tells_what_would_be_sent(make, monkeypatch):
    steps = []

    def counting(*args, **options):
        results = train(*args, **options)
        steps.append(sum(result.steps for result in results))
        return results

    train = murmura.federation.site.cohort.train
    monkeypatch.setattr(murmura.federation.site.cohort, "train", counting)
    planned = make(augment={"records": 5, "every": 1, "strategy": "coverage"}, evaluation=QUICK)
    found = dry_run(planned)
    result = run(planned)
    assert [one.steps for one in found.rounds] == steps
    assert [site.steps for site in found.sites] == [(6 + 5 + 1) // 2, (3 + 5) // 2]
    public = found.augmentation
    assert (public.title, public.rows, public.records, public.times) == ("coverage", ROWS, 5, 2)
    told = json.loads((result.folder / "disclosure.json").read_text())
    assert public.bytes_up == sum(row["bytes"] for row in told if row["verb"] == "centres")
    sent = [one.bytes for choice in read(result.folder).augment for one in choice.sites.values()]
    assert public.bytes_down == pytest.approx(sum(sent), rel=0.1)
    assert {(row.verb, row.field) for row in found.disclosure} >= {("centres", "centres"), ("centres", "sizes")}
    assert any("no ε covers it" in note for note in found.notes)
    out = Console(file=StringIO(), width=200)
    show(found, out)
    assert "at most 5 a site of 30 in the pool, chosen 2 times (coverage)" in out.file.getvalue()
    assert "augment.encoder" in out.file.getvalue()


# ---- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "augment", "said"),
    [
        ({"algorithm": "centralised"}, {}, "augment: all records are in one place"),
        ({"name": "fewfedweight"}, {}, "augment: FewFedWeight writes and weighs answers"),
        ({"name": "fewfedpit", "beta": 1.0}, {}, r"augment: with method\.beta = 1 there is no branch"),
        (
            {"name": "dplora"},
            {},
            r"augment\.strategy: .*promises an ε .*not cover.* centres of clusters.*'random'",
        ),
        ({"name": "dpfedavg"}, {"strategy": "direct"}, r"augment\.strategy: .*promises an ε"),
        ({}, {"domain": "hart"}, r"augment\.domain: .*'hart'.*Did you mean 'heart'"),
        ({}, {"site_encoder": "SAME"}, r"augment\.site_encoder: .* is the pool's own encoder"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(make, encoder, method, augment, said):
    augment = {key: str(encoder) if value == "SAME" else value for key, value in augment.items()}
    refused = make(method, augment)
    for tried in (dry_run, run):
        with pytest.raises(ConfigError, match=said):
            tried(refused)
    assert not refused.run.path.exists()


def test_only_sites_with_instructions_are_augmented(make):
    with pytest.raises(ConfigError, match=r"train on public instructions, and data\.kind is 'document'; remove"):
        make(data={"kind": "document"})


def test_a_pool_that_is_missing_damaged_or_anothers_is_told_before_the_run_begins(make, pool, tmp_path, tokenizer):
    folder = shutil.copytree(pool.folder, tmp_path / "copy")
    data = (folder / VECTORS).read_bytes()
    (folder / VECTORS).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    other = save_encoder(tmp_path / "other", tokenizer, seed=1)
    for augment, said in (
        ({"pool": str(tmp_path / "nowhere")}, "nowhere: there is no pool here"),
        ({"pool": str(folder)}, "copy/vectors.npy: the pool is damaged"),
        ({"encoder": str(other)}, "the pool's vectors are of the encoder .* and .*other' is another one"),
    ):
        refused = make(augment=augment)
        with pytest.raises(DataError, match=said):
            run(refused)
        assert not refused.run.path.exists()
