"""Questions with options from files of many shapes."""

from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from murmura.data.choices import Common, load_choices
from murmura.data.records import Choice, Instruction
from murmura.errors import DataError

EXAMPLE = Path(__file__).parents[2] / "examples" / "clinic" / "questions.jsonl"
SENTIMENT = Common("What is the sentiment of this sentence?", ("negative", "neutral", "positive"))


def asked(**values):
    return {"instruction": "Is water wet?", "options": ["no", "yes"], "answer": 1} | values


def test_the_example_holds_every_form_of_an_answer():
    found = load_choices(EXAMPLE).records
    assert len(found) == 8
    assert found[0].options[found[0].answer].startswith("Take the plaster off")
    assert found[1].options[found[1].answer] == "The ambulance"
    assert [one.options[one.answer] for one in found[2:4]] == ["yes", "no"]


def test_a_question_with_each_option_as_its_response():
    found = Choice("Is it wet?", "water", ("no", "yes"), 1).answered()
    assert found == [Instruction("Is it wet?", "water", "no"), Instruction("Is it wet?", "water", "yes")]


@pytest.mark.parametrize("answer", [1, 1.0, "1", "yes", " yes ", True, "TRUE"])
def test_an_answer_is_a_place_or_the_option_itself(jsonl, answer):
    [found] = load_choices(jsonl(asked(answer=answer))).records
    assert found == Choice("Is water wet?", "", ("no", "yes"), 1)


@pytest.mark.parametrize("options", [["True", "False"], ["TRUE", "Not true"], [" true ", "no"]])
@pytest.mark.parametrize("answer", [True, "true", "TRUE"])
def test_an_option_that_is_called_true_is_what_true_means(jsonl, options, answer):
    assert load_choices(jsonl(asked(options=options, answer=answer))).records[0].answer == 0
    common = Common("Is water wet?", options)
    assert load_choices(jsonl({"answer": answer}), common=common).records[0].answer == 0


@pytest.mark.parametrize("answer", [False, "false", "FALSE"])
def test_an_option_that_is_called_false_is_what_false_means(jsonl, answer):
    assert load_choices(jsonl(asked(options=["True", "False"], answer=answer))).records[0].answer == 1
    assert load_choices(jsonl(asked(options=["no", "yes"], answer=answer))).records[0].answer == 0


def test_a_text_that_is_an_option_is_never_read_as_a_place(jsonl):
    numbers = {"instruction": "1 + 1?", "options": [1, 2, 3]}
    rows = [numbers | {"answer": "2"}, numbers | {"answer": 2}]
    assert [one.answer for one in load_choices(jsonl(*rows)).records] == [1, 2]


def test_an_option_that_is_text_stays_as_it_is_written(jsonl):
    decimals = {"options": ["2.0", "2.5", "3.0"]}
    rows = [asked(**decimals, answer=answer) for answer in (0, "2.0", "3")]
    rows += [asked(options=["2", "2.0", "2.00"], answer="2.0"), asked(options=[2.0, 2.5], answer="2.0")]
    found = load_choices(jsonl(*rows)).records
    assert [one.options for one in found[:4]] == [("2.0", "2.5", "3.0")] * 3 + [("2", "2.0", "2.00")]
    assert [one.answer for one in found] == [0, 0, 2, 1, 0]


def test_a_text_is_an_option_before_it_is_a_place_however_a_tool_wrote_the_number(jsonl):
    rows = [asked(options=["1.0", "2.0", "3.0"], answer="2"), asked(options=["1", "2", "3"], answer="2.0")]
    assert [one.answer for one in load_choices(jsonl(*rows)).records] == [1, 1]


def test_options_and_places_of_a_table_with_gaps(tmp_path):
    """Tools write a column of whole numbers with a gap as 1.0, 2.0 and so on."""
    path = tmp_path / "asked.csv"
    path.write_text("instruction,a,b,answer\nDose?,1.0,1.5,1.0\nDose?,one,two,1.0\nDose?,one,two,\n")
    found = load_choices(path, common=Common(option_columns=("a", "b")), skip_bad=True).records
    assert [one.options for one in found] == [("1.0", "1.5"), ("one", "two")]
    assert [one.answer for one in found] == [0, 1]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"options": None}, "record without options"),
        ({"options": []}, "record without options"),
        ({"options": ["yes"], "answer": 0}, "only one option"),
        ({"options": ["yes", "yes"]}, "two options are alike"),
        ({"options": ["yes", " "], "answer": 0}, "an option is empty"),
        ({"options": "yes, no"}, "'options' is not a list"),
        ({"options": "[" * 5000 + "]" * 5000}, "'options' is not a list"),
        ({"options": [["yes"], "no"]}, "'options' is of type list, not text"),
        ({"options": [True, False]}, "'options' is of type bool"),
        ({"answer": None}, "record without 'answer'"),
        ({"answer": 2}, "'answer' is none of the 2 options"),
        ({"answer": "1" * 5000}, "'answer' is none of the 2 options"),
        ({"answer": -1}, "'answer' is none of the 2 options"),
        ({"answer": 0.5}, "'answer' is none of the 2 options"),
        ({"answer": float("inf")}, "'answer' is none of the 2 options"),
        ({"answer": "2.000", "options": ["2", "2.0", "4"]}, "'answer' is none of the 3 options"),
        ({"answer": "2.0"}, "'answer' is none of the 2 options"),
        ({"answer": "maybe"}, "'answer' is none of the 2 options"),
        ({"answer": ["yes"]}, "'answer' is none of the 2 options"),
        ({"answer": True, "options": ["a", "b", "c"]}, "'answer' is none of the 3 options"),
        ({"answer": False, "options": ["True", "Not true"]}, "'answer' is none of the 2 options"),
        ({"answer": "true", "options": ["True", "TRUE"]}, "'answer' is none of the 2 options"),
        ({"instruction": ""}, "'instruction' is empty"),
        ({"input": 3}, "'input' is of type int"),
    ],
)
def test_a_bad_question_is_named_with_its_line_or_left_out(jsonl, values, why):
    path = jsonl(asked(), asked(**values), asked())
    with pytest.raises(DataError) as refused:
        load_choices(path)
    assert why in str(refused.value) and "site.jsonl:2" in str(refused.value)
    assert "maybe" not in str(refused.value)  # no text of a record
    loaded = load_choices(path, skip_bad=True)
    assert len(loaded.records) == 2 and len(loaded.bad) == 1


def test_csv_has_a_json_list_or_a_column_for_each_option(tmp_path):
    path = tmp_path / "asked.csv"
    path.write_text('instruction,options,answer\nWet?,"[""no"", ""yes""]",yes\n')
    [found] = load_choices(path).records
    assert found == Choice("Wet?", "", ("no", "yes"), 1)
    path.write_text("goal,sol1,sol2,sol3,label\nDry a shirt,in the sun,under water,,0\nBoil water,a,b,c,2\n")
    common = Common(option_columns=("sol1", "sol2", "sol3"))
    found = load_choices(path, fields={"instruction": "goal", "answer": "label"}, common=common).records
    assert [one.options for one in found] == [("in the sun", "under water"), ("a", "b", "c")]
    assert [one.answer for one in found] == [0, 2]
    with pytest.raises(DataError, match="no column 'sol4'"):
        load_choices(
            path, fields={"instruction": "goal", "answer": "label"}, common=Common(option_columns=("sol1", "sol4"))
        )


def test_a_gap_between_options_is_not_closed_silently(tmp_path):
    path = tmp_path / "asked.csv"
    path.write_text("instruction,a,b,c,answer\nWhich?,one,,three,1\n")
    with pytest.raises(DataError, match="an option is empty"):
        load_choices(path, common=Common(option_columns=("a", "b", "c")))


def test_labels_common_to_all_records_are_options(jsonl):
    """Sentences about companies with classes by number, and by name."""
    rows = [{"sentence": "Profit rose .", "label": 2}, {"sentence": "Sales fell .", "label": "negative"}]
    fields = {"input": "sentence", "answer": "label"}
    found = load_choices(jsonl(*rows), fields=fields, common=SENTIMENT).records
    assert found[0] == Choice(SENTIMENT.instruction, "Profit rose .", SENTIMENT.options, 2)
    assert found[1].answer == 0


def test_parquet_has_lists(tmp_path):
    table = pyarrow.table({"passage": ["Rain."], "question": ["Wet?"], "answer": [True], "options": [["no", "yes"]]})
    parquet.write_table(table, tmp_path / "asked.parquet")
    [found] = load_choices(tmp_path / "asked.parquet", fields={"instruction": "question", "input": "passage"}).records
    assert found == Choice("Wet?", "Rain.", ("no", "yes"), 1)


def test_a_column_that_is_missing_is_named_with_the_key_that_names_another(jsonl):
    with pytest.raises(DataError, match=r"no column 'answer'.*evaluation\.choices\.fields = \{answer = 'COLUMN'\}"):
        load_choices(jsonl({"instruction": "Wet?", "options": ["a", "b"], "gold": 1}), skip_bad=True)


def test_what_all_records_share_is_in_no_column_too(jsonl):
    path = jsonl(asked())
    with pytest.raises(DataError, match="'options' is both in a column and given for all records"):
        load_choices(path, fields={"options": "options"}, common=Common(options=("a", "b")))


def test_what_is_asked_may_stand_in_the_column_of_the_input(jsonl):
    file = jsonl({"input": "Is water wet?", "options": ["no", "yes"], "answer": 1})
    [found] = load_choices(file, fields={"instruction": "input"}).records
    assert (found.instruction, found.input) == ("Is water wet?", "")


def test_an_input_is_blank_or_spelt_as_in_the_other_questions(jsonl):
    row = {"instruction": "Is water wet?", "options": ["no", "yes"], "answer": 1}
    assert [one.input for one in load_choices(jsonl(row | {"input": " "}, row)).records] == ["", ""]
    with pytest.raises(DataError, match="record without 'input', but with 'Input'"):
        load_choices(jsonl(row | {"input": "a"}, row | {"Input": "b"}))
