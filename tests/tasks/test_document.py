"""Documents as a kind of record."""

from murmura.data.config import DataConfig
from murmura.data.records import Document
from murmura.tasks import DOCUMENT
from murmura.training.step import Step

DATA = DataConfig(train="a", heldout="b", max_length=16)


def test_all_documents_fit_and_those_that_are_cut_are_counted(tokenizer):
    found = DOCUMENT.reading(None, DATA, tokenizer, masked=False).fit(
        [Document("the rash"), Document("the patient calls the clinic " * 10)]
    )
    assert (found.kept, found.shortened, found.dropped) == ([0, 1], [1], 0)
    assert len(found.items[1].ids) == 16


def test_nothing_stands_around_them(tokenizer):
    reading = DOCUMENT.reading(None, DATA, tokenizer, masked=False)
    assert (reading.template, reading.cloze) == (None, None)
    assert reading.example(Document("the rash")) == DOCUMENT.preview(DATA, Document("the rash")) == "the rash"


def test_every_token_but_the_first_is_trained_on(tokenizer):
    reading, record = DOCUMENT.reading(None, DATA, tokenizer, masked=False), Document("the rash")
    [item] = reading.tokenise([record])
    assert item.labels == [-100, *item.ids[1:]] and reading.step(None) is Step
    assert reading.tokenise([record, record])[1] is item
