"""Wilson's interval, against the formula written out."""

import math

import pytest

from murmura.measure.catalogue import figure
from murmura.measure.figure import between, interval

Z = 1.959963984540054


def wilson(hits, n):
    share, root = hits / n, math.sqrt(hits / n * (1 - hits / n) / n + Z**2 / (4 * n**2))
    return [(share + Z**2 / (2 * n) + sign * Z * root) / (1 + Z**2 / n) for sign in (-1, 1)]


@pytest.mark.parametrize(("hits", "n"), [(45, 50), (1, 3), (250, 1000), (17, 20)])
def test_a_share_has_wilsons_interval(hits, n):
    assert interval(hits / n, n) == pytest.approx(wilson(hits, n), abs=1e-9)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_it_stays_between_0_and_1(share):
    low, high = interval(share, 5)
    assert 0 <= low <= share <= high <= 1 and high - low > 0.3


def test_a_mean_that_is_no_whole_number_of_texts_is_between_its_neighbours():
    assert interval(0.85, 50) == pytest.approx([wilson(42, 50)[0], wilson(43, 50)[1]], abs=1e-9)


def test_it_is_written_with_the_number_of_texts():
    assert between(0.5, 1234) == "0.472–0.528, n = 1,234"


def test_a_figure_means_what_it_means_for_each_kind_of_record():
    loss = figure("heldout_loss")
    assert loss.meant(["instruction"]).startswith("How badly the model predicts good answers")
    assert loss.meant(["document"]).startswith("How badly the model predicts texts")
    both = loss.meant(["instruction", "labelled"])
    assert "good answers" in both and "Of a classifier: How improbable" in both
    assert loss.meant(["document", "labelled"]).startswith("Of documents: ")
