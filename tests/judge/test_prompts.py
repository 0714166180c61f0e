import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.judge.prompts import ASPECTS, Ratings, parse, prompt

RATING = st.fixed_dictionaries({aspect: st.integers(1, 5) for aspect in ASPECTS})
WHOLE = "helpfulness: 2 4\nrelevance: 1 5\ncorrectness: 3 4\ncoherence: 4 4"


@given(RATING, RATING, st.permutations(ASPECTS), st.sampled_from(["{}: {} {}", "**{}**: {}/5, {}/5", "- {}: {} | {}"]))
def test_what_was_asked_for_is_read(first, second, order, form):
    told = "\n".join(form.format(aspect.title(), first[aspect], second[aspect]) for aspect in order)
    assert parse(f"Here you are:\n{told}\n") == Ratings(first, second)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Answer 2 is better.",
        WHOLE.replace("coherence: 4 4", ""),
        WHOLE.replace("coherence: 4 4", "coherence: 4"),
        WHOLE.replace("coherence: 4 4", "coherence: 4 6"),
        WHOLE.replace("coherence: 4 4", "coherence: 4 44"),
        WHOLE + "\ncoherence: 1 4",
        WHOLE.replace("\n", " "),
    ],
)
def test_nothing_is_guessed(answer):
    assert parse(answer) is None


def test_the_same_line_twice_says_nothing_new():
    assert parse(f"{WHOLE}\ncoherence: 4 4") == parse(WHOLE)


def test_the_prompts_own_example_is_a_verdict_and_its_parts_are_where_they_belong():
    asked = prompt("Is it flu?", "Yes.", "")
    assert parse(asked) is not None
    assert asked.index("Is it flu?") < asked.index("Yes.") < asked.index("(nothing)")
