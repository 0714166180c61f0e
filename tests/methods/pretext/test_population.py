"""Public texts as candidates, and as seeds."""

from __future__ import annotations

import json

import pytest

from murmura.errors import DataError
from murmura.methods.pretext.config import PretextConfig
from murmura.methods.pretext.population import drawn, found_among_public, public_texts
from murmura.streams import Stream

TEXTS = [f"one two three {number}" for number in range(30)]


@pytest.fixture
def config(tmp_path):
    (tmp_path / "public.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ["short", *TEXTS]))
    return PretextConfig(public=str(tmp_path / "public.jsonl"), public_words=3)


def test_candidates_are_drawn_with_replacement_and_seeds_without():
    candidates = drawn(TEXTS, 30, Stream(0), replace=True)
    assert len(candidates) == 30 and 12 < len(set(candidates)) < 26  # 1 − 1/e of them
    assert sorted(drawn(TEXTS, 1000, Stream(0), replace=False)) == sorted(TEXTS)
    assert len(set(drawn(TEXTS, 20, Stream(0), replace=False))) == 20


def test_what_the_run_is_measured_with_is_no_candidate(config, capsys):
    assert public_texts(config, ["another text"]) == TEXTS
    assert public_texts(config, ["  one two\tthree 3", *TEXTS[5:]]) == [*TEXTS[:3], TEXTS[4]]
    assert "26 public texts are held-out ones too" in capsys.readouterr().err
    with pytest.raises(DataError, match="every public text is one that the run is measured with"):
        public_texts(config, TEXTS)


def test_texts_are_found_among_public_ones_whatever_their_white_space(config):
    assert found_among_public(config, ["one  two three 7 ", "one two three 8", "one two three 99", "short"]) == 2
