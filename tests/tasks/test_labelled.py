"""Labelled texts as a kind of record."""

from types import SimpleNamespace

import pytest

from murmura.data.config import DataConfig
from murmura.data.records import Labelled
from murmura.errors import DataError
from murmura.streams import Stream
from murmura.tasks import LABELLED
from murmura.training.cloze import ClozeStep

DATA = DataConfig(train="a", heldout="b", max_length=48)
METHOD = SimpleNamespace(
    patterns=("{text} it was {blank}",),
    verbaliser={"bad": ("bad",), "good": ("good",)},
    reduction="mean",
    several_tokens="average",
    sample_pattern=True,
    validates=True,
    validation_records=4,
    pattern_weights="uniform",
)
RECORDS = [Labelled(f"text {k}", ("bad", "good")[k % 2]) for k in range(10)]


def test_what_fits_is_what_the_words_are_given_for(tokenizer):
    reading = LABELLED.reading(METHOD, DATA, tokenizer, masked=False)
    found = reading.fit([Labelled("rash", "bad"), Labelled("rash", "odd"), Labelled("help")])
    assert (list(found.kept), found.dropped) == ([0, 2], 0)
    shown, hint = reading.unknown(["odd", "a" * 41])
    assert shown == ["'odd'", "a text of 41 characters"] and "label column" in hint


def test_validation_records_are_set_apart_from_the_held_out_ones():
    public = LABELLED.evaluation_set(METHOD, DATA, RECORDS, [], Stream(3), sample=2)
    assert (len(public.validation.records), len(public.heldout), public.validation.weighs) == (4, 6, False)
    assert {*public.validation.records, *public.heldout} == {*RECORDS}


@pytest.mark.parametrize(("records", "message"), [(RECORDS[:4], "cannot be set apart"), ([Labelled("x")], "no label")])
def test_too_few_of_them_or_one_without_a_label_are_told(records, message):
    with pytest.raises(DataError, match=message):
        LABELLED.evaluation_set(METHOD, DATA, records, [], Stream(3))


def test_texts_are_trained_towards_their_labels_at_the_blank(tokenizer):
    reading = LABELLED.reading(METHOD, DATA, tokenizer, masked=False)
    good, unknown = reading.tokenise([Labelled("rash", "good"), Labelled("help")])
    assert (good.target, unknown.target) == ((0.0, 1.0), (0.5, 0.5))
    assert list(good.items) == reading.cloze.tokenise_all(["rash"])[0]
    step = reading.step(None)
    assert (step.func, step.keywords["sample_pattern"]) == (ClozeStep, True)
