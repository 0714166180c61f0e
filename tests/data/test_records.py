import dataclasses

import pytest

from murmura.data.records import KINDS, Document, Instruction, Labelled


def test_the_question_joins_instruction_and_input_by_one_space():
    assert Instruction("Explain", "a fever", "It is ...").question == "Explain a fever"
    assert Instruction("Explain a fever", output="It is ...").question == "Explain a fever"


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (Instruction("Explain", "a fever", "SECRET"), "Explain a fever"),
        (Labelled("a dull film", "SECRET"), "a dull film"),
        (Document("a note"), "a note"),
    ],
)
def test_the_text_to_embed_holds_neither_answer_nor_label(record, text):
    assert record.subject == text


def test_records_are_values():
    assert Instruction("a", "b", "c") == Instruction("a", "b", "c")
    assert len({Instruction("a", "b", "c"), Instruction("a", "b", "c")}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        Document("a").text = "b"


def test_every_required_field_is_a_field():
    for kind in KINDS.values():
        assert set(kind.required) <= {field.name for field in dataclasses.fields(kind)}


def test_a_labelled_text_is_the_same_record_whatever_its_label():
    assert Labelled("a", "good").identity == Labelled("a").identity != Labelled("b", "good").identity
    assert Instruction("a", "", "b").identity != Instruction("a", "", "c").identity
    assert Labelled("e\u0301 \r\n").identity == Labelled("\u00e9").identity


def test_only_a_labelled_text_may_be_incomplete():
    assert [Labelled("a").is_complete, Labelled("a", "good").is_complete] == [False, True]
    assert Instruction("a", "", "b").is_complete and Document("a").is_complete
    assert [kind.has_labels for kind in KINDS.values()] == [False, True, False, False]
