"""What the other side has made up does nothing to whoever reads it."""

from hypothesis import given
from hypothesis import strategies as st

from murmura.harmless import harmless, printable


@given(st.text(st.characters()))  # halves of pairs of surrogates, too
def test_any_text_becomes_one_line_that_can_be_written_and_shown(text):
    assert harmless(text).isprintable() and harmless(harmless(text)) == harmless(text)
    harmless(text).encode()


def test_what_can_be_read_stays_as_it_is():
    assert harmless("Zürich: ε ≤ 8, 'a\\b'") == "Zürich: ε ≤ 8, 'a\\b'"
    assert harmless("a\nRound 3\x1b[2J\u202e") == "a\\nRound 3\\x1b[2J\\u202e"


def test_of_a_line_that_is_no_message_nothing_is_left_out():
    assert printable("x" * 10**4 + "\x1b") == "x" * 10**4 + "\\x1b"


def test_of_a_long_text_beginning_and_end_stay():
    shown = harmless("begins" + "x" * 10**6 + "ends")
    assert len(shown) < 3000 and shown.startswith("begins") and shown.endswith("ends")
