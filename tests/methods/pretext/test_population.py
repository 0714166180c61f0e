"""Public texts as candidates, and as seeds."""

import json
from collections import Counter

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


def test_a_bad_public_text_is_to_be_taken_out_since_no_option_leaves_it_out(config, tmp_path):
    with (tmp_path / "public.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(DataError, match=r"jsonl:32: .*Take them out of the file\."):
        public_texts(config, [])


def test_candidates_are_drawn_without_replacement_as_long_as_there_are_others():
    for again in (False, True):
        found = drawn(TEXTS, 20, Stream(0), list, again=again)
        assert len(set(found)) == 20 and found == drawn(TEXTS, 20, Stream(0), list, again=again)
        assert sorted(found) != sorted(drawn(TEXTS, 20, Stream(1), list, again=again))
    assert sorted(drawn(TEXTS, 1000, Stream(0), list, again=False)) == sorted(TEXTS)
    times = Counter(drawn(TEXTS, 100, Stream(0), list, again=True))
    assert times.keys() == set(TEXTS) and sorted(times.values()) == [3] * 20 + [4] * 10


def test_a_text_of_which_nothing_is_left_makes_room_for_another():
    def fit(some):
        return [text if int(text.split()[-1]) % 3 else "" for text in some]

    left = [text for text in fit(TEXTS) if text]
    assert sorted(drawn(TEXTS, 20, Stream(0), fit, again=False)) == sorted(left)
    assert len(set(drawn(TEXTS, 15, Stream(0), fit, again=True)) - {""}) == 15
    assert drawn(TEXTS, 5, Stream(0), lambda some: [""] * len(some), again=True) == []


def test_what_the_run_is_measured_with_is_no_candidate(config, capsys):
    assert public_texts(config, ["another text"]) == TEXTS
    assert public_texts(config, ["  one two\tthree 3", *TEXTS[5:]]) == [*TEXTS[:3], TEXTS[4]]
    assert "26 public texts are ones that the run is measured with" in capsys.readouterr().err
    with pytest.raises(DataError, match="every public text is one that the run is measured with"):
        public_texts(config, TEXTS)


def test_a_public_text_without_spaces_is_as_long_as_its_letters(config, tmp_path):
    with (tmp_path / "public.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in ("今天天气很好", "很好"))
    assert public_texts(config, []) == [*TEXTS, "今天天气很好"]


def test_texts_are_found_among_public_ones_whatever_their_white_space(config):
    assert found_among_public(config, ["one  two three 7 ", "one two three 8", "one two three 99", "short"]) == 2
