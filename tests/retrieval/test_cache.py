import numpy as np
import pytest

from murmura.errors import ModelError
from murmura.retrieval.cache import INDEX, VECTORS, Cached
from tests.retrieval.pools import Counting

TEXTS = ["fever", "a rash", "the heart", "a dose"]


@pytest.fixture
def embed(tmp_path):
    return lambda encoder, texts: Cached(encoder, tmp_path).embed(texts)


def test_what_was_computed_once_is_not_computed_again(embed):
    first, second = Counting(), Counting()
    assert np.array_equal(embed(first, TEXTS[:3]), first.vectors(TEXTS[:3]))
    assert np.array_equal(embed(second, [TEXTS[3], *TEXTS[:2]]), second.vectors([TEXTS[3], *TEXTS[:2]]))
    assert second.given == [TEXTS[3]]


def test_the_same_text_is_computed_once(embed):
    encoder = Counting()
    found = embed(encoder, ["a dose", "fever", "a  dose\n", "fever"])
    assert sorted(encoder.given) == ["a dose", "fever"]
    assert np.array_equal(found, encoder.vectors(["a dose", "fever", "a dose", "fever"]))


def test_no_texts_are_no_vectors(embed):
    assert embed(Counting(), []).shape == (0, 3)


def test_a_stopped_process_leaves_what_it_has_done(embed):
    with pytest.raises(KeyboardInterrupt):
        embed(Counting(stops_after=2), TEXTS)
    encoder = Counting()
    assert np.array_equal(embed(encoder, TEXTS), encoder.vectors(TEXTS))
    assert len(encoder.given) == 2


@pytest.mark.parametrize("torn", [INDEX, VECTORS])
def test_a_torn_end_is_done_again_and_what_comes_after_it_is_right(embed, tmp_path, torn):
    encoder = Counting()
    embed(encoder, TEXTS)
    path = tmp_path / encoder.fingerprint / torn
    path.write_bytes(path.read_bytes()[:-3])
    for texts, given in ((TEXTS, 1), ([*TEXTS, "skin"], 1), ([*TEXTS, "skin"], 0)):
        after = Counting()
        assert np.array_equal(embed(after, texts), after.vectors(texts))
        assert len(after.given) == given


@pytest.mark.parametrize("name", [INDEX, VECTORS])
def test_a_damaged_row_is_told_and_computed_again(embed, tmp_path, capsys, name):
    encoder = Counting()
    embed(encoder, TEXTS)
    path = tmp_path / encoder.fingerprint / name
    content = bytearray(path.read_bytes())
    content[-2] ^= 1  # of the last row's vector, or its checksum
    path.write_bytes(content)
    after = Counting()
    assert np.array_equal(embed(after, TEXTS), after.vectors(TEXTS))
    assert len(after.given) == 1
    assert "1 vectors in the cache are damaged" in capsys.readouterr().err
    mended = Counting()
    assert np.array_equal(embed(mended, TEXTS), after.vectors(TEXTS))
    assert mended.given == []


@pytest.mark.parametrize("other", [{"fingerprint": "e" * 64}, {"fingerprint": "e" * 64, "dimension": 2}])
def test_vectors_of_another_encoder_are_not_believed(embed, tmp_path, other):
    """Not even where somebody has copied them to this one's place."""
    one, another = Counting(), Counting(**other)
    embed(one, TEXTS)
    assert np.array_equal(embed(another, TEXTS[:1]), another.vectors(TEXTS[:1]))
    for name in (INDEX, VECTORS):
        (tmp_path / another.fingerprint / name).write_bytes((tmp_path / one.fingerprint / name).read_bytes())
    again = Counting(**other)
    assert np.array_equal(embed(again, TEXTS), again.vectors(TEXTS))
    assert len(again.given) == 4


def test_two_that_write_at_once_do_not_spoil_one_another(embed):
    """The second appends while the first is between two batches."""
    first, second = Counting(), Counting()
    batches = first.batches

    def interrupted(texts):
        for number, batch in enumerate(batches(texts)):
            if number == 1:
                embed(second, ["skin", "a rash"])
            yield batch

    first.batches = interrupted
    embed(first, TEXTS)
    last = Counting()
    assert np.array_equal(embed(last, [*TEXTS, "skin"]), last.vectors([*TEXTS, "skin"]))
    assert last.given == []


def test_a_cache_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="set MURMURA_CACHE"):
        Cached(Counting(), tmp_path / "file").embed(TEXTS)


def test_without_a_folder_it_is_in_our_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MURMURA_CACHE", str(tmp_path / "ours"))
    Cached(Counting()).embed(TEXTS)
    assert (tmp_path / "ours" / "vectors" / ("f" * 64) / VECTORS).stat().st_size == 4 * 3 * 4
