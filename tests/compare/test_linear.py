"""The linear model that arms about labelled texts are seen beside."""

from collections import Counter
from math import log

import numpy as np
import pytest
import tomli_w
from sklearn.linear_model import LogisticRegression

from murmura.compare.arms import load
from murmura.compare.comparison import Comparison
from murmura.compare.linear import accuracies, accuracy
from murmura.compare.view import answers, tables
from murmura.data.records import Labelled
from murmura.report.in_short import BETTER
from tests.experiment.small import VERBALISER, texts, write_lines


def _tfidf(known, asked):
    """Rows of unit length of tf (ln((1 + n) / (1 + df)) + 1) (scikit-learn's smoothed idf), by hand."""
    words = sorted({word for text in known for word in text.split()})
    df = Counter(word for text in known for word in set(text.split()))
    idf = np.array([log((1 + len(known)) / (1 + df[word])) + 1 for word in words])
    rows = np.array([[text.split().count(word) for word in words] for text in asked]) * idf
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def test_it_is_logistic_regression_on_weighted_words():
    known, asked = texts(30, 1), texts(40, 2)
    said = [record.text.lower() for record in known]
    model = LogisticRegression(max_iter=1000).fit(_tfidf(said, said), [record.label for record in known])
    found = model.predict(_tfidf(said, [record.text.lower() for record in asked]))
    assert accuracy(known, asked) == np.mean(found == [record.label for record in asked])


@pytest.mark.parametrize("text", ["good", "!"], ids=["one label", "no word"])
def test_where_nothing_can_be_learnt_all_get_the_most_frequent_label(text):
    labels = "aaa" if text == "good" else "aba"
    known = [Labelled(text, label) for label in labels]
    assert accuracy(known, [Labelled(text, label) for label in "aabb"]) == 0.5


@pytest.fixture
def comparison(tmp_path, llama_folder):
    rows = [{"text": r.text, "label": r.label} for r in texts(60, 1)]
    method = {"name": "lpfl", "rounds": 2, "several_tokens": "average", "labelled_records": 4}
    table = {
        "model": {"name": str(llama_folder)},
        "lora": {"rank": 2},
        "data": {
            "train": str(write_lines(tmp_path / "notes.jsonl", rows)),
            "heldout_records": 20,
            "max_length": 48,
            "sites": {"by": "partition", "count": 2},
        },
        "method": method
        | {
            "verbaliser": {label: list(words) for label, words in VERBALISER.items()},
            "patterns": ["{text} it was {blank}"],
        },
        "compare": {"seeds": 2, "arms": [{"name": "alone", "method": {"annotate": False}}, {"name": "LP-FL"}]},
    }
    file = tmp_path / "my.toml"
    file.write_text(tomli_w.dumps(table))
    config, arms = load([file])
    return Comparison(config, arms, tmp_path / "out")


def test_a_comparison_of_labelled_texts_has_it_beside_its_arms(comparison, begun):
    outcome = comparison.carry_out(1, comparison.check())
    jobs = comparison.runs({arm.name: arm.rates[0] for arm in comparison.arms})
    assert outcome.linear == accuracies([job for job in jobs if job.arm.name == "alone"])
    worth, _ = tables(outcome)
    assert [row[0].text for row in worth.entries] == ["alone", "LP-FL", "a linear model"]
    mean = sum(outcome.linear.values()) / 2
    assert worth.entries[-1][1].text == f"{mean:.3f}" and worth.entries[-1][3].text == "–"
    assert f"comes to an accuracy of {mean:.3f}" in answers(outcome).answers[BETTER][-1]


def test_it_learns_from_the_labels_that_sites_have_and_no_others(comparison, monkeypatch):
    asked = []
    monkeypatch.setattr("murmura.compare.linear.accuracy", lambda known, _: asked.append(len(known)) or 0.5)
    accuracies(comparison.runs({arm.name: arm.rates[0] for arm in comparison.arms})[:1])
    assert asked == [8]  # four at each of two sites
