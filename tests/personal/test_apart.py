"""Which records of a site are set apart."""

from collections import Counter
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.data.records import Document, Labelled
from murmura.personal.apart import set_apart
from murmura.streams import Stream
from murmura.tasks import TASKS

RECORDS = st.lists(st.sampled_from("abcdefghij").map(Document), max_size=30)


@given(RECORDS, st.floats(0, 0.99), st.randoms())
def test_records_are_parted_whatever_their_order_and_no_text_is_on_both_sides(records, share, random):
    kept, apart = set_apart(records, share, Stream(1), "a")
    assert Counter(kept) + Counter(apart) == Counter(records)
    assert not set(kept) & set(apart)
    assert kept == [record for record in records if record in set(kept)]
    shuffled = random.sample(records, len(records))
    assert set(set_apart(shuffled, share, Stream(1), "a")[1]) == set(apart)
    texts = set(records)
    if share and len(texts) > 1:
        assert len(set(apart)) == min(len(texts) - 1, max(1, round(share * len(texts))))
    else:
        assert apart == []


def test_who_is_set_apart_depends_on_seed_and_site():
    records = [Document(str(number)) for number in range(40)]
    found = {tuple(set_apart(records, 0.5, Stream(seed), site)[1]) for seed in (0, 1) for site in "ab"}
    assert len(found) == 4


@pytest.mark.parametrize("kind", TASKS)
def test_a_kind_that_has_canaries_knows_them(kind):
    task = TASKS[kind]
    canary = task.canary("123456", "654321")
    assert canary is None or task.is_canary(canary)
    if canary is not None:
        others = [replace(canary, **{name: f"{value} too" for name, value in asdict(canary).items()})]
        assert not any(map(task.is_canary, others))


def test_canaries_and_records_without_a_label_stay():
    records = [Labelled(f"text {number}", "x" if number % 2 else None) for number in range(20)]
    secret = records[1]
    for seed in range(20):
        kept, apart = set_apart(records, 0.9, Stream(seed), "a", lambda record: record is secret)
        assert secret in kept and all(record.label for record in apart)
        assert len(apart) == 8  # 0.9 of nine, less the one that is always kept


def test_a_text_that_also_stands_there_without_a_label_is_not_measured_on():
    """It would be trained on as soon as it is annotated."""
    records = [Labelled(f"text {number}", "x") for number in range(10)]
    records += [Labelled(f"text {number}") for number in range(5)]
    for seed in range(20):
        kept, apart = set_apart(records, 0.5, Stream(seed), "a")
        assert len(apart) == 2 and not {one.text for one in kept} & {one.text for one in apart}
