import hashlib

import pytest

from murmura.data.texts import text_hash


def test_a_hash_is_the_sha256_of_the_folded_text():
    assert text_hash("a fever") == hashlib.sha256(b"a fever").digest()


@pytest.mark.parametrize(
    ("one", "other"), [("a  fever\n", "a fever"), ("\ta\u00a0fever", "a fever"), ("e\u0301", "\u00e9")]
)
def test_whitespace_and_ways_of_writing_an_accent_make_no_difference(one, other):
    assert text_hash(one) == text_hash(other)


@pytest.mark.parametrize(("one", "other"), [("Fever", "fever"), ("a fever", "afever"), ("ﬁ", "fi")])
def test_other_texts_have_other_hashes(one, other):
    assert text_hash(one) != text_hash(other)
