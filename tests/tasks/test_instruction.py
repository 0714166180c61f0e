"""Instructions as a kind of record."""

from murmura.data.config import DataConfig
from murmura.data.records import Instruction
from murmura.data.templates import template
from murmura.tasks import INSTRUCTION

SHORT, LONG = Instruction("explain", "", "call"), Instruction("explain", "", "call the clinic " * 50)


def data(name):
    return DataConfig(train="a", heldout="b", max_length=128, template=name)


def test_a_response_that_is_too_long_does_not_fit(tokenizer):
    found = INSTRUCTION.reading(None, data("alpaca"), tokenizer, masked=False).fit([LONG, SHORT])
    assert (found.kept, found.shortened, found.dropped) == ([1], [], 1)


def test_only_a_chat_template_is_the_models_own():
    assert INSTRUCTION.preview(data("chat"), SHORT) is None
    assert INSTRUCTION.preview(data("alpaca"), SHORT) == template("alpaca").full(SHORT)


def test_only_the_response_is_trained_on_and_what_does_not_fit_is_not(tokenizer):
    reading = INSTRUCTION.reading(None, data("alpaca"), tokenizer, masked=False)
    long, short = reading.tokenise([LONG, SHORT])
    assert long is None and reading.tokenise([SHORT])[0] is short
    assert short.labels == [-100] * short.start + short.ids[short.start :]
