from dataclasses import replace

import pytest

from murmura.data.records import Instruction
from murmura.drafting.filters import Copies, Similar, format_fault, response_fault


@pytest.mark.parametrize(
    ("instruction", "fault"),
    [
        ("", "empty"),
        ("As an AI I cannot write more tasks", "refusal"),
        ("As a nurse, explain the new dose", "refusal"),
        ("Sorry, there are no more tasks", "refusal"),
        ("I'm sorry, but there are none", "refusal"),
        ("I’m sorry, but there are none", "refusal"),
        ("Explain the scan.", "too_short"),
        ("word " * 151, "too_long"),
        ("(a) explain the new dose", "bad_start"),
        ("éclaircir la nouvelle dose ici", "bad_start"),
        ("Explain the new dose.", None),
        ("word " * 150, None),
        ("Assess the new dose again.", None),
        ("Draw a picture of the heart.", None),
        ("Write a program that adds doses.", None),
    ],
)
def test_rules(instruction, fault):
    assert format_fault(instruction, True, alpaca_filters=False) == fault


@pytest.mark.parametrize(
    ("instruction", "fault"),
    [
        ("请解释新的剂量。", None),
        ("请解释", "too_short"),
        ("«Объясните» новую дозу мне", "bad_start"),
        ("Объясните новую дозу мне", None),
        ("Explain the new dose.", None),
        ("", "empty"),
    ],
)
def test_rules_where_a_site_writes_in_another_script(instruction, fault):
    assert format_fault(instruction, True, alpaca_filters=False, in_ascii=False) == fault


def test_an_instruction_that_was_cut_off_is_dropped():
    assert format_fault("Explain the new dose", False, alpaca_filters=False) == "unfinished"


@pytest.mark.parametrize(
    ("instruction", "fault"),
    [
        ("Draw the heart and its valves.", "keyword"),
        ("Describe what these images show.", "keyword"),
        ("Go to the pharmacy and ask.", "keyword"),
        ("Describe the imagery of this poem.", None),
        ("Write a program that adds doses.", "program"),
    ],
)
def test_rules_for_data_like_alpaca(instruction, fault):
    assert format_fault(instruction, True, alpaca_filters=True) == fault


def test_similar_is_rouge_l_above_the_threshold():
    similar = Similar(["a b c d e f g h i j"], 0.7)
    assert "a b c d e f g h x y" in similar  # 0.8
    assert "a b c d e f g x y z" not in similar  # 0.7 is not above 0.7
    similar.add("a b c d e f g x y z")
    assert "a b c d e f g x y w" in similar


def test_a_copy_in_another_script_is_similar():
    assert "请解释  新剂量" in Similar(["请解释 新剂量"], 0.7)
    assert "请您解释这新剂量" in Similar(["请解释 新剂量"], 0.7)
    assert "🙂 🙃" in Similar(["🙂  🙃"], 0.7)
    assert "请解释检查结果" not in Similar(["请解释 新剂量"], 0.7)


def test_a_draft_copies_a_record_in_its_question_or_in_its_response():
    copies = Copies([Instruction("sum up", "the visit of mister smith today", "he is well and comes in may")], 0.7)
    assert Instruction("sum up the visit", "of mister smith today", "something else") in copies
    assert Instruction("another question here", "", "he is well and comes in june") in copies
    assert Instruction("another question here", "", "something else") not in copies


SCAN = Instruction("explain the scan of the left knee", "MRI of May, small tear seen", "")


@pytest.mark.parametrize(
    "response",
    [
        "Explain the scan of the left knee.",
        "the scan of the left knee",
        "Explain the scan of the left knee: MRI of May, small tear seen.",
        "MRI of May, small tear seen",
    ],
)
def test_a_response_that_repeats_its_question_is_an_echo(response):
    assert response_fault(replace(SCAN, output=response), 6, 0.7) == "echo"


def test_a_response_may_use_the_words_of_its_question():
    said = "The scan of the left knee shows a small tear, which heals by itself when you rest."
    assert response_fault(replace(SCAN, output=said), 20, 0.7) is None
    assert response_fault(Instruction("name two fruits you like", "", "apples and pears"), 3, 0.7) is None


def test_a_response_of_two_tokens_is_too_short():
    assert response_fault(replace(SCAN, output="a tear"), 2, 0.7) == "short_response"
