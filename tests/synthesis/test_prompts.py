"""What is asked, and what is taken out of what comes back."""

import pytest

from murmura.synthesis.prompts import FAULTS, STOP, Sample, Wording, one_line, read_sample, six_samples
from tests.synthesis.models import word_tokenizer


def test_three_samples_of_six_are_there_each_in_a_line():
    prompt = six_samples(["one\ttext", "another\n\ntext", "x" * 5000])
    head, *rest = prompt.split("\n")
    assert "6 original text samples" in head
    shown = [
        line
        for k, text in enumerate(["one text", "another text", "x" * 1000], start=1)
        for line in (f"Original Text Sample {k}", text)
    ]
    assert rest == ["", *shown, "Original Text Sample 4", ""]
    assert six_samples(["alone"]).endswith("Original Text Sample 2\n")


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("a new text of words\nOriginal Text Sample 5\nmore", "a new text of words"),
        ("  a new\n\ttext of  words ", "a new text of words"),
        ("Original Text Sample 4\na new text of words\nOriginal Text Sample 5\nmore", "a new text of words"),
        ("Original Text Sample 4: a new text of words", "a new text of words"),
        ("a new text of words\nOriginal Te", "a new text of words"),  # cut off by the limit
        ("a new text of words\nO", "a new text of words"),
        ("an Original Text Sample is a text", "an Original Text Sample is a text"),  # within a line it is text
        ("a text about\nOriginality and more", "a text about Originality and more"),
        ("half a pair \ud83d of surrogates", "half a pair ? of surrogates"),
    ],
)
def test_the_sample_ends_where_the_next_one_begins(written, text):
    found = read_sample(written, finished=True)
    assert (found.text, found.fault) == (text, None)


@pytest.mark.parametrize(
    ("written", "finished"),
    [
        ("a new text of words\nOriginal Text Sample 5\nmore", True),  # whatever became of the next one
        ("a new text of words\nOriginal Te", True),
        ("a new text of words", False),
        ("Original Text Sample 4\na new text of words", False),
    ],
)
def test_an_answer_that_was_cut_off_may_hold_a_finished_sample(written, finished):
    assert read_sample(written, finished=False).finished is finished
    assert read_sample(written, finished=True).finished


def test_of_a_sample_that_was_cut_off_whole_sentences_can_be_kept():
    text = "A first sentence of words. Another one! And half of"
    assert read_sample(text, finished=False, whole=True) == Sample(
        "A first sentence of words. Another one!", True, None
    )
    assert read_sample(text, finished=False) == Sample(text, False, None)
    assert read_sample(text, finished=True, whole=True) == Sample(text, True, None)
    for none in ("only half of one sentence", "So it. Half of the next one"):
        assert read_sample(none, finished=False, whole=True).fault == "no_sentence" in FAULTS


def test_a_text_without_spaces_has_words_too():
    """Else no text in such a script is long enough for anything."""
    found = read_sample("今天天气很好。我们去公园，然后", finished=False, whole=True)
    assert found == Sample("今天天气很好。", True, None)
    assert read_sample("很好", finished=True).fault == "too_short"


def test_no_sample_ends_with_half_a_character():
    """A token may be one byte of three, and the limit falls where it will."""
    for text in ("a new text about caf\ufffd", "a new text of many words \ufffd\ufffd"):
        assert read_sample(text, finished=False) == Sample(text.rstrip(" \ufffd"), False, None)
        assert read_sample(text, finished=True).text == text  # which somebody has written so


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        *[("", "empty"), (" \n\t", "empty"), ("Original Text Sample 4\n", "empty"), ("only three words", "too_short")],
        ("three words here\nOriginal Text Sample 5\nand more of them", "too_short"),
    ],
)
def test_what_holds_no_text_says_why(written, fault):
    assert read_sample(written, finished=True).fault == fault
    assert fault in FAULTS


def test_what_stops_a_generator_is_what_ends_a_sample():
    text = "a new text of words"
    assert read_sample(f"{text}{STOP[0]} 5\nmore", finished=True).text == text


def test_what_is_asked_is_a_users_turn_where_there_are_turns(tokenizer):
    text = "a {text}\nwith braces {0}"
    plain = Wording(word_tokenizer()).prompt(text)
    assert plain == "Document: a {text} with braces {0}\nParaphrase of the document:"
    asked = Wording(tokenizer).prompt(text)
    assert asked == f"<|im_start|>user\n{plain}<|im_end|>\n<|im_start|>assistant\n"


def test_white_space_of_any_kind_is_one_space():
    assert one_line(" a\u2028b\u00a0c\r\n\td ") == "a b c d"
