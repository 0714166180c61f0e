import random
from collections import Counter

import pytest

from murmura.data.records import Instruction
from murmura.drafting.prompts import alternating, example_prompt, instruction_prompt, read_example, read_instruction

WITH = Instruction("Sum up the visit:", "BP 132/78.\n\nNo pain.", "All well.\n\nNext visit in May.")
WITHOUT = Instruction("Name a  risk\nof statins.", "", "Muscle ache.")


def test_instruction_prompt_byte_for_byte():
    assert instruction_prompt([WITH.instruction, WITHOUT.instruction]) == (
        "Write a series of different tasks.\n\nTask 1: Sum up the visit\nTask 2: Name a risk of statins.\nTask 3:"
    )


def test_eight_instructions_ask_for_the_ninth():
    assert instruction_prompt([f"Do thing {i}." for i in range(8)]).endswith("Task 8: Do thing 7.\nTask 9:")


def test_example_prompt_byte_for_byte():
    assert example_prompt([WITH, WITHOUT], "Explain the scan.", inputs=True) == (
        "Write an example for each task: first its input, and then the response. "
        "Where the task needs no input, write None as the input.\n\n"
        "Task: Sum up the visit:\nInput: BP 132/78.\nNo pain.\nResponse: All well.\nNext visit in May.\n\n"
        "Task: Name a risk of statins.\nInput: None\nResponse: Muscle ache.\n\n"
        "Task: Explain the scan.\nInput:"
    )


def test_demonstrations_with_and_without_input_take_turns():
    records = [Instruction(f"task {i}", "input" if i < 5 else "", "y") for i in range(10)]
    chosen = alternating(records, 4, random.Random(0))
    assert [bool(r.input) for r in chosen] == [True, False, True, False]
    assert len(set(chosen)) == 4
    assert chosen != alternating(records, 4, random.Random(1))


def test_where_one_kind_runs_out_the_other_fills_up():
    records = [Instruction(f"task {i}", "", "y") for i in range(5)] + [Instruction("rare", "input", "y")]
    assert [bool(r.input) for r in alternating(records, 4, random.Random(0))] == [True, False, False, False]
    assert len(alternating(records[:3], 4, random.Random(0))) == 3


@pytest.mark.parametrize("inputs", [1, 4, 10])
def test_a_single_record_is_any_of_them_alike(inputs):
    records = [Instruction(f"task {i}", "input" if i < inputs else "", "y") for i in range(10)]
    shown = Counter(record for seed in range(3000) for record in alternating(records, 1, random.Random(seed)))
    assert all(abs(shown[record] - 300) < 5 * 300**0.5 for record in records)


def test_of_an_odd_number_either_kind_may_be_shown_more():
    records = [Instruction(f"task {i}", "input" if i < 5 else "", "y") for i in range(10)]
    more = Counter(sum(bool(r.input) for r in alternating(records, 3, random.Random(seed))) for seed in range(50))
    assert more.keys() == {1, 2}


@pytest.mark.parametrize(
    ("text", "finished", "expected"),
    [
        (" Explain  the scan.", True, ("Explain the scan.", True)),
        ("\n Explain the scan.\nand more", False, ("Explain the scan.", True)),
        (" Explain the", False, ("Explain the", False)),
        (" My arm hurts. It hurts at night. It hurts", False, ("My arm hurts. It hurts at night.", True)),
        (" \n", True, ("", True)),
        (" Task 9: Explain the scan.", True, ("Explain the scan.", True)),  # the prompt's marker again
        (" Explain Task 9: the scan.", True, ("Explain Task 9: the scan.", True)),
        (" Task force: who is in it?", True, ("Task force: who is in it?", True)),
    ],
)
def test_reading_an_instruction(text, finished, expected):
    assert read_instruction(text, finished) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" a note\nof two lines\nResponse: fine", ("a note\nof two lines", "fine")),
        (" None\nResponse: fine\n", ("", "fine")),
        ("\nResponse: fine\nand well", ("", "fine\nand well")),
        (" N/A.\nResponse:\nfine", ("", "fine")),
        (" none\n Response: fine", ("", "fine")),
        ("\nResponse: fine\nInput: other", ("", "fine")),
        ("\nResponse: fine\nTask 3: other", ("", "fine")),
        (" Input: a note\nResponse: fine", ("a note", "fine")),  # the prompt's marker again
        ("\nInput: None\nResponse: Response: fine", ("", "fine")),
        (" the Input: a note\nResponse: my Response: fine", ("the Input: a note", "my Response: fine")),
        (" Inputs vary\nResponse: Responses too", ("Inputs vary", "Responses too")),
        (" Input: Input: a note\nResponse: fine", ("Input: a note", "fine")),  # once, and no more
    ],
)
def test_reading_an_example(text, expected):
    assert read_example("Explain.", text, finished=True, inputs=True) == Instruction("Explain.", *expected)


@pytest.mark.parametrize("text", ["", "fine", " a note", " a note\nResponse:", " the Response: x"])
def test_an_example_without_its_second_marker_and_a_response_is_none(text):
    assert read_example("Explain.", text, finished=True, inputs=True) is None


def test_an_unfinished_response_keeps_its_complete_sentences():
    def read(text):
        return read_example("Explain.", text, finished=False, inputs=True)

    assert read("\nResponse: One. Two. Thr") == Instruction("Explain.", "", "One. Two.")
    assert read("\nResponse: One and") is None
    # The response was over; what was cut off is the example after it.
    assert read("\nResponse: One and\nInput: tw") == Instruction("Explain.", "", "One and")


def test_records_without_input_ask_for_responses_alone():
    assert example_prompt([WITHOUT], "Explain the scan.", inputs=False) == (
        "Write a response to each task.\n\n"
        "Task: Name a risk of statins.\nResponse: Muscle ache.\n\n"
        "Task: Explain the scan.\nResponse:"
    )


@pytest.mark.parametrize(
    ("text", "finished", "output"),
    [
        (" fine\nand well", True, "fine\nand well"),
        (" fine\nInput: other", True, "fine"),
        (" One. Two. Thr", False, "One. Two."),
        ("\n", True, None),
        (" Response: fine day", True, "fine day"),  # the prompt's marker again
        ("\nResponse: fine day", True, "fine day"),
        (" Responses vary, and my Response: is fine", True, "Responses vary, and my Response: is fine"),
        (" Response:", True, None),
    ],
)
def test_reading_a_response_alone(text, finished, output):
    found = read_example("Explain.", text, finished, inputs=False)
    assert found == (output and Instruction("Explain.", "", output))
