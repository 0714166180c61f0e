"""One catalogue of figures: each once, and everything that shows figures reads it."""

import pytest

from murmura import report
from murmura.measure import catalogue
from murmura.measure.catalogue import CATALOGUE, figure, measured


def test_each_figure_stands_in_it_once():
    assert len({one.key for one in CATALOGUE}) == len(CATALOGUE)
    assert len({one.title for one in CATALOGUE}) == len(CATALOGUE)


def test_whatever_has_a_column_is_explained():
    assert all(one.meaning for one in CATALOGUE if one.column)


def test_whatever_has_a_column_is_explained_in_a_line_for_each_kind_of_record():
    kinds = (["instruction"], ["labelled"], ["document"], ["preference"], ["instruction", "labelled"])
    for one in CATALOGUE:
        for line in (one.in_a_line(kind) for kind in kinds if one.column):
            assert 40 < len(line) <= 175 and "(" not in line and line.endswith(one.direction), line
    assert figure("heldout_loss").in_a_line(["instruction"]) == (
        "How badly the model predicts good answers to questions that no site trained on. Lower is better."
    )
    assert "0.5 is guessing" in figure("attack_auc").in_a_line(["instruction"])
    assert figure("heldout_loss").in_a_line(["labelled"]).startswith("How improbable the model finds the right labels")


def test_a_figure_is_drawn_alone_or_beside_one_that_is():
    alone = {one.key for one in CATALOGUE if one.drawn and not one.drawn.beside}
    beside = [one.drawn.beside for one in CATALOGUE if one.drawn and one.drawn.beside]
    assert set(beside) <= alone and len(set(beside)) == len(beside)  # one at most, since two lines can be told apart
    assert all(figure(key).drawn.shows for key in beside)
    assert all(one.drawn.axis for one in CATALOGUE if one.key in alone)


def test_a_figure_that_nobody_has_described_keeps_its_key():
    assert (figure("new").title, figure("new").words({"new": 12.0})) == ("new", "12")


def test_what_a_round_measured_stands_in_the_order_of_the_catalogue():
    found = measured({"mine": 1.0, "accuracy_n": 50, "accuracy": 0.9, "heldout_loss": 1.0})
    assert [one.key for one in found] == ["heldout_loss", "accuracy", "mine"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"accuracy": 0.9, "accuracy_n": 50}, "0.900 (0.786–0.957, n = 50)"),
        ({"accuracy": 1.0, "accuracy_n": 4}, "1.000 (0.510–1.000, n = 4)"),
        ({"accuracy": 0.9}, "0.900"),
        ({}, "–"),
    ],
)
def test_a_share_is_written_with_its_interval(values, words):
    assert figure("accuracy").words(values) == words
    assert report.figure("accuracy") is figure("accuracy") and report.CATALOGUE is CATALOGUE  # the Python API


def test_which_way_is_better_is_told_with_the_meaning():
    loss = figure("heldout_loss")
    assert loss.meant(["instruction"]).endswith("nothing of the question. Lower is better.")
    assert loss.meant(["instruction", "labelled"]).count("Lower is better.") == 2


def test_an_interval_of_an_attack_says_what_it_leaves_out():
    assert "nothing of what another seed" in figure("attack_auc").meaning
    assert "how much one upload differs from another" in figure("upload_auc").meaning


def test_all_keys_that_murmura_notes_are_in_it():
    """What methods note by name is described here too."""
    for key in ("annotated", "left_unlabelled", "pseudo_accuracy", "validation_accuracy", "train_loss"):
        assert key in catalogue._BY_KEY
