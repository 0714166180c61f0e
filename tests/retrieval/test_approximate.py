import json
import sys

import numpy as np
import pytest

from murmura.errors import ConfigError, DataError
from murmura.retrieval.approximate import Index
from murmura.retrieval.pool import Pool
from murmura.retrieval.search import nearest
from tests.retrieval.pools import make_pool, unit


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    made = make_pool(tmp_path_factory.mktemp("pools") / "pool", unit(2000, 8))
    Index.make(made, recall=0.9)
    return made


def test_the_recall_that_is_told_is_reached_on_average_and_measured(pool):
    about = Index.open(pool).about
    assert 0.9 <= about.recall <= 1.0 and about.least <= about.recall
    assert 1 <= about.probes < about.lists
    assert f"finds {about.recall:.1%} of the 200 nearest rows" in about.in_words


def test_as_many_lists_are_read_as_the_recall_needs(tmp_path):
    probes = []
    for recall in (0.0, 1.0):
        index = Index.make(make_pool(tmp_path / str(recall), unit(700, 8)), recall=recall)
        probes.append(index.about.probes)
        assert index.about.recall >= recall
    assert probes[0] == 1 < probes[1]


def test_what_is_found_has_the_scores_of_exact_search(pool):
    queries = unit(5, 8, seed=1)
    for found, exact in zip(
        Index.open(pool).nearest(queries, pool.vectors, 100), nearest(queries, pool.vectors, 100), strict=True
    ):
        right = dict(zip(exact.rows.tolist(), exact.scores.tolist(), strict=True))
        shared = [row for row in found.rows.tolist() if row in right]
        assert len(shared) >= 60 and len(set(found.rows.tolist())) == 100
        for row, score in zip(found.rows.tolist(), found.scores.tolist(), strict=True):
            assert right.get(row, score) == score
        assert np.all(np.diff(found.scores) <= 0)


def test_rows_that_are_too_close_or_excluded_make_room_for_others(pool):
    query, without = unit(1, 8, seed=1), np.arange(0, 2000, 2)
    below = float(nearest(query, pool.vectors, 300)[0].scores[-1])
    [found] = Index.open(pool).nearest(query, pool.vectors, 50, below=below, without=[without])
    assert len(found.rows) == 50 and (found.scores < below).all() and (found.rows % 2 == 1).all()


def test_a_small_pool_is_one_list(tmp_path):
    pool = make_pool(tmp_path / "pool")
    index = Index.make(pool)
    assert (index.about.lists, index.about.recall) == (1, 1.0)
    [found], [exact] = (search(unit(1, 8), pool.vectors, 9) for search in (index.nearest, nearest))
    assert found.rows.tolist() == exact.rows.tolist() and found.scores.tolist() == exact.scores.tolist()


def test_a_pool_without_an_index_is_told_how_to_make_one(tmp_path):
    with pytest.raises(DataError, match=r"no index.*murmura pool index"):
        Index.open(make_pool(tmp_path / "pool"))


def test_an_index_that_is_damaged_or_of_another_pool_is_refused(tmp_path):
    pool = make_pool(tmp_path / "pool")
    Index.make(pool)
    place = pool.folder / "approximate.faiss"
    content = place.read_bytes()
    place.write_bytes(content[:-1])
    with pytest.raises(DataError, match="damaged, or of other vectors"):
        Index.open(pool)
    place.write_bytes(content)
    Index.open(pool)
    make_pool(pool.folder, unit(6, 8, seed=2))
    with pytest.raises(DataError, match="damaged, or of other vectors"):
        Index.open(Pool.open(pool.folder))
    (pool.folder / "approximate.json").write_text(json.dumps({"lists": 1}))
    with pytest.raises(DataError, match="cannot be read"):
        Index.open(pool)


def test_without_faiss_it_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ConfigError, match=r"pip install 'murmura\[faiss\]'"):
        Index.open(make_pool(tmp_path / "pool"))
