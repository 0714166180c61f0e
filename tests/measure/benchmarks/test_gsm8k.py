"""Which number a solution comes to."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.data.layout import BadValueError
from murmura.data.records import Instruction
from murmura.measure.benchmarks import GSM8K
from murmura.measure.benchmarks.config import GSM8KConfig
from murmura.measure.benchmarks.gsm8k import final_number

COLUMNS = {"instruction": "question", "input": "input", "output": "answer"}


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ("She has 5 + 3 = 8 apples.\n#### 8", "8"),
        ("#### 1,200", "1200"),
        ("#### $1,200.00", "1200"),
        ("#### -5", "-5"),
        ("#### −5", "-5"),  # the minus sign of typographers
        ("#### -$5", "-5"),
        ("#### 2.50 dollars", "2.5"),
        ("#### .5", "0.5"),
        ("####8.", "8"),
        ("#### 8\nQuestion: What are 2 + 2?\n#### 4", "8"),  # a model that goes on asking itself
        ("#### Step 1: Eggs\n16 - 7 = 9\n#### Step 2\n9 * 2\n#### 18", "18"),  # headings
        ("#### Step 1\n3 + 4.\nThe answer is 7. It took 1 step.", "7"),
        ("#### Step 1\n3 + 4 = 7", "7"),
        ("##### Sum: 18\n##### **18**\n3 steps", "18"),
        ("#### : **\\$18** a day, in 2 days 36", "18"),
        ("#### so #### 8, of 9", "8"),
        ("####\n8 of 9", "9"),
        ("#### about\nThe answer is 7.", "7"),  # no number behind the mark
        ("The answer is 42.", "42"),
        ("So the final answer is: **42**.", "42"),
        ("The Answer is $3,000 in 5 years.", "3000"),
        ("The answer is 42. The answer is 43.", "42"),
        ("The answer is\nclear: 6", "6"),
        ("He sells 3 for $18 and keeps 2, which makes 16.", "16"),
        ("10-4=6", "6"),
        ("7-5", "5"),  # a subtraction, and no negative number
        ("7 - 5", "5"),
        ("She has 20 eggs - 2 eggs", "2"),
        ("5-3=2", "2"),
        ("In total:\n- 18", "18"),  # an item of a list
        ("In total:\n- $18", "18"),
        ("In total:\n- -18", "-18"),
        ("It is -5", "-5"),
        ("It is $-5", "-5"),
        ("It is (-5)", "-5"),
        ("3 - -5", "-5"),
        ("3.0", "3"),
        ("1, 2, 3", "3"),
        ("1,2", "2"),
        ("12,345,678", "12345678"),
        ("1,2345", "2345"),
        ("3.14.", "3.14"),
        ("half of them", None),
        ("", None),
        ("####", None),
    ],
)
def test_the_number_that_a_solution_comes_to(answer, number):
    assert final_number(answer) == (None if number is None else Decimal(number))


@given(st.decimals(-(10**9), 10**9, allow_nan=False, places=2), st.booleans(), st.sampled_from(["", "$", "€"]))
def test_a_number_is_read_back_however_it_is_written(number, thousands, currency):
    digits = f"{abs(number):,}" if thousands else f"{abs(number)}"
    written = f"{'-' if number < 0 else ''}{currency}{digits}"
    for form in ("first 3 then\n#### {}", "The answer is {}.", "it makes {}", "12 times 3 is {} in all."):
        assert final_number(form.format(written)) == number


@given(st.text())
def test_any_text_has_a_number_or_none(text):
    found = final_number(text)
    assert found is None or found.is_finite()


def judged(answer, output="They are 42.\n#### 42"):
    [verdict] = GSM8K(GSM8KConfig(file="x")).judge([Instruction("how many", "", output)], [answer])
    return verdict.right, verdict.outcome


def test_numbers_are_compared_and_not_texts():
    assert judged("#### 42.0") == (True, "right")
    assert judged("the answer is $42") == (True, "right")
    assert judged("#### 420") == (False, "wrong")
    assert judged("I do not know") == (False, "no answer found")
    assert judged("#### 1200", "#### 1,200") == (True, "right")


def test_a_question_is_asked_in_two_forms():
    benchmark, question = GSM8K(GSM8KConfig(file="x")), Instruction("How many?", "Of 3.", "#### 3")
    assert benchmark.plain(question) == "Question: How many? Of 3.\nAnswer:"
    assert benchmark.instruction(question) == Instruction("How many?", "Of 3.")  # without the solution


@pytest.mark.parametrize("output", ["42", "The answer is 42", "#### none", "#### Step 1\n42"])
def test_a_solution_without_its_number_is_bad(output):
    with pytest.raises(BadValueError, match="'answer' has no line with '####' and a number") as caught:
        GSM8K(GSM8KConfig(file="x")).checked(Instruction("how many", "", output), COLUMNS)
    assert "#### 42" in caught.value.fix
