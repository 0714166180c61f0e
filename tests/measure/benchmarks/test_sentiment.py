"""Labels in a model's own words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.data.layout import BadValueError
from murmura.data.records import Instruction, Labelled
from murmura.measure.benchmarks import FPB, TFNS
from murmura.measure.benchmarks.config import SentimentConfig
from murmura.measure.benchmarks.sentiment import LABELS, label_of

COLUMNS = {"text": "text", "label": "label"}


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("positive", "positive"),
        ("Positive.", "positive"),
        ("The sentiment is NEGATIVE", "negative"),
        ("neutral", "neutral"),
        ("negative or positive", "positive"),  # the published rule looks for positive first
        ("neutral, not negative", "negative"),
        ("good", None),
        ("", None),
    ],
)
def test_the_label_that_an_answer_names(answer, label):
    assert label_of(answer) == label


@given(st.text(), st.sampled_from(LABELS), st.text())
def test_a_label_that_is_named_is_found_unless_an_earlier_one_of_the_rule_is(before, label, after):
    found = label_of(before + label + after)
    assert found == label or found in ("positive", "negative")


def judged(answers, **options):
    texts = [Labelled("profit rose", label) for label in ("positive", "neutral", "neutral")]
    verdicts = FPB(SentimentConfig(file="x", **options)).judge(texts, answers)
    return [verdict.right for verdict in verdicts], [verdict.outcome for verdict in verdicts]


def test_what_names_no_label_is_wrong_or_neutral_and_counted_either_way():
    answers = ["positive", "negative", "profit"]
    outcomes = ["right", "wrong", "no answer found"]
    assert judged(answers) == ([True, False, False], outcomes)
    assert judged(answers, unparsed="neutral") == ([True, False, True], outcomes)
    assert judged(["profit"] * 3, unparsed="neutral")[0] == [False, True, True]


def test_a_question_is_that_of_the_published_benchmark():
    asked = "What is the sentiment of this {}? Please choose an answer from {{negative/neutral/positive}}."
    text = Labelled("Profit rose.", "positive")
    assert FPB(SentimentConfig(file="x")).plain(text) == (
        f"Instruction: {asked.format('news')}\nInput: Profit rose.\nAnswer: "
    )
    assert TFNS(SentimentConfig(file="x")).instruction(text) == Instruction(asked.format("tweet"), "Profit rose.")


def test_labels_are_words_or_their_places_in_the_given_order():
    words, places = SentimentConfig(file="x"), SentimentConfig(file="x", labels=["negative", "positive", "neutral"])
    assert FPB(words).checked(Labelled("text", "Neutral"), COLUMNS).label == "neutral"
    assert TFNS(places).checked(Labelled("text", "1"), COLUMNS).label == "positive"
    assert TFNS(places).checked(Labelled("text", "negative"), COLUMNS).label == "negative"
    for config, label in ((words, "1"), (places, "3"), (places, "²"), (places, "1" * 5000), (words, "good")):
        with pytest.raises(BadValueError, match="'label' is none of negative, neutral, positive") as caught:
            TFNS(config).checked(Labelled("text", label), COLUMNS)
        assert "evaluation.benchmarks.tfns.labels = " in caught.value.fix
    with pytest.raises(BadValueError, match="'label' is empty"):
        FPB(words).checked(Labelled("text", ""), COLUMNS)
