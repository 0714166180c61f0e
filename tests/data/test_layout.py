import pytest

from murmura.data.layout import BadValueError, ColumnLayout
from murmura.data.records import Document, Instruction, Labelled, Preference, Question
from murmura.errors import DataError


def test_fields_stand_in_columns_of_their_name_unless_renamed():
    layout = ColumnLayout.of(Instruction, {"instruction": "question"}, None)
    assert layout.columns == {"instruction": "question", "input": "input", "output": "output"}
    record, site = layout.read({"question": "Why?", "input": "It rains", "output": "Clouds", "other": 3})
    assert (record, site) == (Instruction("Why?", "It rains", "Clouds"), None)


def test_a_column_that_another_field_was_given_is_not_read_twice():
    layout = ColumnLayout.of(Instruction, {"instruction": "input"}, None)
    values = {"instruction": "Answer.", "input": "Why?", "output": "Clouds"}
    assert layout.read(values)[0] == Instruction("Why?", "", "Clouds")
    layout.check_header(list(values), "x.csv")
    swapped = ColumnLayout.of(Instruction, {"instruction": "input", "input": "instruction"}, None)
    assert swapped.read(values)[0] == Instruction("Why?", "Answer.", "Clouds")


@pytest.mark.parametrize("fields", [{"output": "instruction"}, {"input": "output"}, {"input": "a", "output": "a"}])
def test_two_fields_are_not_read_from_one_column(fields):
    with pytest.raises(DataError, match=r"would both be read from column.*Give each a column of its own"):
        ColumnLayout.of(Instruction, fields, None)


def test_a_field_that_records_may_do_without_is_left_out():
    layout = ColumnLayout.of(Instruction, {"input": ""}, None)
    values = {"instruction": "Why?", "input": "It rains", "output": "Clouds"}
    assert layout.read(values)[0] == Instruction("Why?", "", "Clouds")
    assert layout.wanted(values) == ["instruction", "output"]
    layout.check_header(list(values), "x.csv")
    message = r"'output' is given no column.*fields = \{output = 'COLUMN'\}"
    with pytest.raises(DataError, match=message):
        ColumnLayout.of(Instruction, {"output": ""}, None)


def test_an_unknown_field_is_met_with_the_nearest_valid_one():
    with pytest.raises(DataError, match=r"'instuction' is not a field of Instruction.*Did you mean 'instruction'"):
        ColumnLayout.of(Instruction, {"instuction": "question"}, None)
    with pytest.raises(DataError, match=r"Valid: label, text\."):
        ColumnLayout.of(Labelled, {"zzz": "question"}, None)


def test_a_table_must_have_what_records_need_and_what_the_user_named():
    ColumnLayout.of(Instruction, None, None).check_header(["instruction", "output"], "x.csv")
    with pytest.raises(DataError, match=r"x\.csv: no column 'output'.*Did you mean 'outputs'"):
        ColumnLayout.of(Instruction, None, None).check_header(["instruction", "outputs"], "x.csv")
    with pytest.raises(DataError, match=r"no column 'contxt'.*Did you mean 'context'"):
        ColumnLayout.of(Instruction, {"input": "contxt"}, None).check_header(
            ["instruction", "output", "context"], "x.csv"
        )
    with pytest.raises(DataError, match="no column 'instruction', and no 'output'"):
        ColumnLayout.of(Instruction, None, None).check_header(["question", "answer"], "x.csv")
    with pytest.raises(DataError, match="no column 'clinic'"):
        ColumnLayout.of(Document, None, "clinic").check_header(["text"], "x.csv")


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        (["text", "label"], "labelled"),
        (["text", "n"], "document"),
        (["prompt", "chosen", "rejected", "text"], "preference"),
        (["instruction", "answer"], None),
    ],
)
def test_columns_of_another_kind_are_known(columns, kind):
    layout = ColumnLayout.of(Instruction, None, None)
    with pytest.raises(DataError, match="no column") as table:
        layout.check_header(columns, "x.csv")
    with pytest.raises(BadValueError) as record:
        layout.read(dict.fromkeys(columns, "a"))
    for told in (str(table.value), record.value.fix):
        assert ("The columns are those of the kind" in told) == (kind is not None)
        assert kind is None or f"of the kind '{kind}'. If another" in told


def test_only_the_columns_in_use_are_wanted():
    layout = ColumnLayout.of(Document, {"text": "body"}, "user")
    assert layout.wanted(["id", "user", "body", "text"]) == ["user", "body"]


@pytest.mark.parametrize("kind", [Instruction, Question])
@pytest.mark.parametrize("empty", [{}, *({"input": value} for value in (None, "", " ", "\n\t\u00a0", float("nan")))])
def test_an_input_may_be_absent_null_or_blank(kind, empty):
    record, _ = ColumnLayout.of(kind, None, None).read({"instruction": "a", "output": "b", **empty})
    assert record.input == ""
    record, _ = ColumnLayout.of(kind, None, None).read({"instruction": "a", "output": "b", "input": " x\n"})
    assert record.input == " x\n"


@pytest.mark.parametrize("name", ["Input", " input", "INPUT"])
def test_a_record_with_almost_a_field_it_may_do_without_does_not_lose_it(name):
    row, layout = {"instruction": "a", "output": "b"}, ColumnLayout.of(Instruction, None, None)
    with pytest.raises(BadValueError, match=f"^record without 'input', but with '{name}'$") as error:
        layout.read(row | {name: "c"})
    assert error.value.fix == "Call it 'input', or rename it if it holds something else"
    assert layout.read(row | {name: "c", "input": "d"})[0].input == "d"
    assert layout.read(row | {name: " "})[0].input == layout.read(row | {name: "c", "input": ""})[0].input == ""
    assert ColumnLayout.of(Instruction, {"input": ""}, None).read(row | {name: "c"})[0].input == ""
    assert ColumnLayout.of(Instruction, None, name).read(row | {name: "c"}) == (Instruction("a", "", "b"), "c")
    with pytest.raises(BadValueError, match="record without 'context', but with 'Context'"):
        ColumnLayout.of(Instruction, {"input": "context"}, None).read(row | {"Context": "c"})


def test_a_text_with_almost_a_label_is_not_taken_for_one_without():
    layout = ColumnLayout.of(Labelled, None, None)
    with pytest.raises(BadValueError, match="record without 'label', but with 'Label'"):
        layout.read({"text": "a", "Label": "good"})
    assert layout.read({"text": "a", "table": "good"})[0] == Labelled("a", "")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"instruction": "a"}, r"record without 'output' \(it has 'instruction'\)"),
        ({"instruction": "a", "output": None}, "record without 'output'"),
        ({}, "record without 'instruction'$"),
        ({"instruction": "a", "output": " \n"}, "'output' is empty"),
        ({"instruction": "", "output": "b"}, "'instruction' is empty"),
        ({"instruction": "a", "output": ["b"]}, "'output' is of type list, not text"),
        ({"instruction": "a", "output": 4}, "'output' is of type int, not text"),
        ({"instruction": "a", "output": "b", "input": {}}, "'input' is of type dict, not text"),
        ({"instruction": "a\ud800", "output": "b"}, "'instruction' is not valid UTF-8"),
    ],
)
def test_a_value_that_cannot_be_used_says_why(values, why):
    with pytest.raises(BadValueError, match=why):
        ColumnLayout.of(Instruction, None, None).read(values)


def test_text_is_kept_to_the_byte():
    text = "  two  spaces\n\ttab\u2028é\x00 "
    record, _ = ColumnLayout.of(Document, None, None).read({"text": text})
    assert record.text == text


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ("neg", "neg"),
        (1, "1"),
        (1.0, "1"),
        (0.5, "0.5"),
        ("1", "1"),
        ("1.0", "1"),
        (" -2.00 ", "-2"),
        ("-0.0", "0"),
        ("0.5", "0.5"),
        ("v1.0", "v1.0"),
        ("1.", "1."),
        ("1.0.0", "1.0.0"),
    ],
)
def test_labels_and_sites_are_text_whatever_the_file_held(value, label):
    record, site = ColumnLayout.of(Labelled, None, "user").read({"text": "a", "label": value, "user": value})
    assert record.label == label
    assert site == label


@pytest.mark.parametrize(
    ("value", "other"), [("Jose\u0301", "Jos\u00e9"), ("Anna\u00a0Berg", "Anna Berg"), ("Anna \t Berg", "Anna Berg")]
)
def test_a_name_is_one_however_it_is_encoded(value, other):
    layout = ColumnLayout.of(Labelled, None, "site", user_column="who")
    row = {"text": "a", "label": value, "site": value, "who": value}
    record, site = layout.read(row)
    assert record.label == site == layout.user(row) == other


def test_a_label_or_site_that_is_true_or_false_is_to_be_written_out():
    layout = ColumnLayout.of(Labelled, None, "user")
    for values in ({"label": False, "user": "u"}, {"label": "l", "user": True}):
        with pytest.raises(BadValueError, match=r"is of type bool, not text or a number") as error:
            layout.read({"text": "a", **values})
        assert error.value.fix.startswith("Write it as text")


@pytest.mark.parametrize("name", ["Label", " label", "labels", "LABEL"])
def test_a_column_of_almost_the_name_is_not_left_unread(name):
    with pytest.raises(DataError, match=rf"x\.csv: no column 'label', but one called '{name}'.*label = '{name}'"):
        ColumnLayout.of(Labelled, None, None).check_header(["text", name], "x.csv")
    ColumnLayout.of(Labelled, {"label": name}, None).check_header(["text", name], "x.csv")
    ColumnLayout.of(Labelled, None, name).check_header(["text", name], "x.csv")
    ColumnLayout.of(Labelled, None, None).check_header(["text", "label", name], "x.csv")
    ColumnLayout.of(Document, None, None).check_header(["text", name], "x.csv")


def test_a_table_may_have_no_labels():
    ColumnLayout.of(Labelled, None, None).check_header(["text", "table", "department"], "x.csv")


@pytest.mark.parametrize("value", [None, float("nan"), "", " "])
def test_a_text_may_have_no_label_yet(value):
    assert ColumnLayout.of(Labelled, None, None).read({"text": "a", "label": value})[0] == Labelled("a", "")


@pytest.mark.parametrize("value", [None, float("nan"), "", [1]])
def test_a_site_cannot_be_nothing_and_a_label_is_text(value):
    layout = ColumnLayout.of(Labelled, None, "user")
    with pytest.raises(BadValueError, match="'label'"):
        layout.read({"text": "a", "label": [1], "user": "u"})
    with pytest.raises(BadValueError, match="'user'"):
        layout.read({"text": "a", "label": "l", "user": value})


def test_the_reason_quotes_nothing_of_the_record():
    with pytest.raises(BadValueError) as error:
        ColumnLayout.of(Instruction, None, None).read({"instruction": "Mrs Oduya's result", "note": "positive"})
    assert "Oduya" not in str(error.value)
    assert "positive" not in str(error.value)


def test_two_answers_that_are_the_same_say_nothing_of_what_is_preferred():
    layout = ColumnLayout.of(Preference, {"chosen": "better"}, None)
    row = {"prompt": "Why?", "better": "So.", "rejected": "No."}
    assert layout.read(row) == (Preference("Why?", "So.", "No."), None)
    with pytest.raises(BadValueError, match="'better' and 'rejected' are the same, so neither is preferred"):
        layout.read(row | {"rejected": "So."})
