from murmura.data.records import Instruction
from murmura.drafting.tasks import as_task, from_task, shared_instruction

ONE = Instruction("Answer the patient.", "My head aches.", "Rest.")
TWO = Instruction("Answer the patient.", "My leg aches.", "Walk.")


def test_an_instruction_that_all_records_have_is_no_task():
    assert shared_instruction([ONE, TWO]) == "Answer the patient."
    assert shared_instruction([ONE, Instruction("Other.", "My leg aches.", "Walk.")]) is None
    assert shared_instruction([ONE, Instruction(ONE.instruction, "", "Walk.")]) is None
    assert shared_instruction([ONE, ONE]) is None
    assert shared_instruction([ONE]) is None


def test_the_input_is_then_the_task_and_a_draft_gets_the_instruction_back():
    task = as_task(ONE, ONE.instruction)
    assert task == Instruction("My head aches.", "", "Rest.")
    assert from_task(task, ONE.instruction) == ONE
    written = Instruction("My arm aches.", "since Monday", "Rest.")
    assert from_task(written, ONE.instruction) == Instruction(ONE.instruction, "My arm aches. since Monday", "Rest.")


def test_otherwise_nothing_changes():
    assert as_task(ONE, None) == ONE == from_task(ONE, None)
    assert as_task(ONE, "Another instruction.") == ONE
