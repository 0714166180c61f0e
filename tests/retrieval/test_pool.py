import json
from types import SimpleNamespace

import numpy as np
import pytest

from murmura.data.texts import text_hash
from murmura.errors import DataError
from murmura.retrieval.pool import Pool
from tests.retrieval.pools import make_pool, record, unit

ARRAYS = ("vectors.npy", "hashes.npy", "domain.npy", "starts.npy")


def test_a_pool_gives_back_what_was_put_in(tmp_path):
    pool = make_pool(tmp_path / "pool", unit(5, 3))
    assert len(pool) == 5 and pool.dimension == 3 and pool.domains == ("code", "math")
    assert pool.encoder.name == "tiny"
    assert np.array_equal(pool.vectors, unit(5, 3)) and pool.vectors.dtype == np.float32
    assert pool.domain.tolist() == [0, 1, 0, 1, 0]
    assert pool.records([3, 0, 3]) == [record("math", 3), record("code", 0), record("math", 3)]
    assert pool.hashes[3].tobytes() == text_hash("explain math number 3 letter 3")
    assert pool.rows_of("math").tolist() == [1, 3]
    pool.verify()


def test_vectors_are_mapped_and_not_read(tmp_path):
    pool = make_pool(tmp_path / "pool")
    assert isinstance(pool.vectors, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        pool.vectors[0] = 0


@pytest.mark.parametrize("row", [-1, 6])
def test_there_are_no_other_rows(tmp_path, row):
    with pytest.raises(IndexError, match="pool of 6 records"):
        make_pool(tmp_path / "pool").records([row])


def test_an_unknown_domain_is_told_with_the_nearest(tmp_path):
    with pytest.raises(DataError, match=r"no domain 'maths'.*Did you mean 'math'"):
        make_pool(tmp_path / "pool").rows_of("maths")


@pytest.mark.parametrize("name", [*ARRAYS, "records.jsonl"])
@pytest.mark.parametrize("how", ["shorter", "missing"])
def test_a_truncated_file_is_refused(tmp_path, name, how):
    place = make_pool(tmp_path / "pool").folder / name
    if how == "shorter":
        place.write_bytes(place.read_bytes()[:-1])
    else:
        place.unlink()
    with pytest.raises(DataError, match=rf"{name}: the pool is damaged.*Build it again"):
        Pool.open(tmp_path / "pool")


@pytest.mark.parametrize("name", [*ARRAYS, "records.jsonl"])
def test_another_byte_is_found(tmp_path, name):
    pool = make_pool(tmp_path / "pool")
    place = pool.folder / name
    place.write_bytes(place.read_bytes()[:-3] + b"\x07" + place.read_bytes()[-2:])
    with pytest.raises(DataError, match=rf"{name}: the pool is damaged: it is not as it was written"):
        pool.verify()


def test_a_record_that_is_another_one_is_not_handed_out(tmp_path):
    pool = make_pool(tmp_path / "pool")
    place = pool.folder / "records.jsonl"
    place.write_bytes(place.read_bytes().replace(b"math number 3", b"math number 4"))
    assert pool.records([2]) == [record("code", 2)]
    with pytest.raises(DataError, match="record 3 is not the one"):
        pool.records([2, 3])
    place.write_bytes(b"\xff" * place.stat().st_size)
    with pytest.raises(DataError, match="record 2 is not the one"):
        pool.records([2])


def test_an_array_of_another_shape_is_refused(tmp_path):
    make_pool(tmp_path / "pool", unit(6, 8))
    np.save(tmp_path / "pool" / "vectors.npy", unit(12, 4))  # of the same size
    with pytest.raises(DataError, match=r"float32 \[12, 4\] instead of float32 \[6, 8\]"):
        Pool.open(tmp_path / "pool")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "records": "many"}'])
def test_a_manifest_that_says_nothing_is_refused(tmp_path, text):
    (make_pool(tmp_path / "pool").folder / "pool.json").write_text(text)
    with pytest.raises(DataError, match=r"pool.json: the pool is damaged.*Build it again"):
        Pool.open(tmp_path / "pool")


def test_a_pool_of_a_later_version_is_told_as_such(tmp_path):
    place = make_pool(tmp_path / "pool").folder / "pool.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"version": 2, "new": 1}))
    with pytest.raises(DataError, match="version 2; this Murmura reads version 1"):
        Pool.open(tmp_path / "pool")


def test_a_folder_without_a_pool_is_told_how_to_make_one(tmp_path):
    with pytest.raises(DataError, match=r"there is no pool here.*murmura pool build"):
        Pool.open(tmp_path / "nowhere")


def test_another_encoder_is_refused_by_its_fingerprint(tmp_path):
    pool = make_pool(tmp_path / "pool", fingerprint="a" * 64)
    pool.refuse_other(SimpleNamespace(name="other", fingerprint="a" * 64, dimension=8))
    with pytest.raises(DataError, match=r"encoder 'tiny' \(aaaaaaaaaaaa, 8 numbers each\).*'small'.*bbbb, 4 numbers"):
        pool.refuse_other(SimpleNamespace(name="small", fingerprint="b" * 64, dimension=4))
