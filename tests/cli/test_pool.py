import json

import pytest
from typer.testing import CliRunner

from murmura.cli import INTERRUPTED, MISTAKE, app
from murmura.retrieval.encoder import Encoder
from tests.augment.public import save_encoder
from tests.experiment.small import record, write_lines


@pytest.fixture(scope="module")
def encoder(tokenizer, tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"), tokenizer)


@pytest.fixture
def pool(tmp_path, monkeypatch):
    monkeypatch.setenv("MURMURA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, ["pool", *map(str, words)])


@pytest.fixture
def build(pool, tmp_path, encoder):
    code = write_lines(tmp_path / "code.jsonl", [record("code", n) for n in (0, 1, 1)])
    math = write_lines(tmp_path / "b.jsonl", [record("math", n) for n in range(3)])
    own = write_lines(tmp_path / "own.jsonl", [record("math", 2)])
    words = ("build", code, f"math={math}", "--without", own, "--out", tmp_path / "pool", "--encoder", encoder)
    return lambda *more: pool(*words, *more)


def test_a_pool_is_built_and_told(build, pool, tmp_path):
    done = build()
    assert done.exit_code == 0, done.output
    assert "4 records, vectors of 32 numbers" in done.stdout
    assert [line.split() for line in done.stdout.splitlines()[2:4]] == [
        ["code", str(tmp_path / "code.jsonl"), "2", "1", "0", "0"],
        ["math", str(tmp_path / "b.jsonl"), "2", "0", "1", "0"],
    ]
    assert pool("info", tmp_path / "pool").stdout == done.stdout
    found = json.loads(pool("info", tmp_path / "pool", "--json").stdout)
    assert found["domains"] == ["code", "math"] and found["dimension"] == 32


def test_info_says_that_private_records_are_missing(build, pool, tmp_path):
    assert "private records" not in build().stdout
    again = build("--overwrite", "--without-private", tmp_path / "code.jsonl")
    assert again.exit_code == 0, again.output
    assert "private records were left out of this pool" in pool("info", tmp_path / "pool").stdout


def test_mistakes_are_told_as_such(build, pool, tmp_path, encoder):
    assert build().exit_code == 0
    again = build()
    assert (again.exit_code, "--overwrite" in again.stderr) == (MISTAKE, True)
    assert build("--overwrite").exit_code == 0
    bad = build("--overwrite", "--field", "output")
    assert (bad.exit_code, "is not FIELD=COLUMN" in bad.stderr) == (MISTAKE, True)
    nowhere = pool("info", tmp_path / "nowhere")
    assert (nowhere.exit_code, "murmura pool build" in nowhere.stderr) == (MISTAKE, True)


def test_info_refuses_a_damaged_pool(build, pool, tmp_path):
    build()
    place = tmp_path / "pool" / "vectors.npy"
    place.write_bytes(place.read_bytes()[:-1] + b"\x00")
    done = pool("info", tmp_path / "pool")
    assert (done.exit_code, "vectors.npy: the pool is damaged" in done.stderr) == (MISTAKE, True)


def test_who_stops_a_build_is_told_how_to_go_on(build, monkeypatch):
    def stop(*inputs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Encoder, "batches", stop)
    done = build()
    assert done.exit_code == INTERRUPTED
    assert "Vectors so far are in the cache; go on with: murmura pool build" in done.stderr


def test_an_index_is_made_and_its_recall_told(build, pool, tmp_path):
    build()
    done = pool("index", tmp_path / "pool", "--recall", "0.9")
    assert done.exit_code == 0, done.output
    assert "reads 1 of 1 lists and finds 100.0% of the 1 nearest rows" in done.stdout
    assert pool("info", tmp_path / "pool").exit_code == 0
