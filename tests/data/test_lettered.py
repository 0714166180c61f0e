"""Options under letters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.data.lettered import lettered, subject_of
from murmura.data.records import Choice

WATER = Choice("Is water wet?", "", ("no", "yes"), 1)
BONES = Choice("How many bones has a hand?", "Of a grown man.", ("19", "27", "5"), 1)


def test_a_question_with_its_options_behind_its_examples():
    found = lettered(BONES, "anatomy", [WATER])
    assert found.instruction == (
        "The following are multiple choice questions (with answers) about anatomy.\n\n"
        "Is water wet?\nA. no\nB. yes\nAnswer: B\n\n"
        "How many bones has a hand?\nOf a grown man.\nA. 19\nB. 27\nC. 5\nAnswer:"
    )
    assert (found.input, found.options, found.answer) == ("", ("A", "B", "C"), 1)


@given(st.integers(2, 26), st.data())
def test_the_right_letter_stands_before_the_right_option(count, data):
    options = tuple(f"option {k}" for k in range(count))
    question = Choice("which", "", options, data.draw(st.integers(0, count - 1)))
    found = lettered(question, "letters")
    right = f"\n{found.options[found.answer]}. {options[question.answer]}\n"
    assert len(found.options) == count and found.instruction.count(right) == 1


@pytest.mark.parametrize(
    ("source", "subject"),
    [
        ("cais/mmlu:clinical_knowledge", "clinical knowledge"),
        ("/data/mmlu/college_biology.csv", "college biology"),
        ("owner/medical-genetics", "medical genetics"),
    ],
)
def test_subjects_are_named_by_their_files(source, subject):
    assert subject_of(source) == subject
