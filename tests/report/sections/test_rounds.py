"""Pictures of figures round by round."""

import re

import pytest

from murmura import report
from murmura.report.sections.results import results
from murmura.report.sections.rounds import rounds
from tests.report.blocks import pictures, said, small
from tests.report.runs import classifier, metrics, rows_of, write_run


def drawn(section):
    return {picture.title: picture for picture in pictures(section)}


def words(svg):
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg)


def test_one_measured_round_is_enough_for_pictures(tmp_path):
    rows = rows_of(write_run(tmp_path / "a", rows=[metrics(2)]))
    assert len(pictures(rounds(rows))) == 3


@pytest.mark.parametrize("numbers", [(2,), (0, 1), (0, 1, 2)])
def test_ticks_of_rounds_are_whole_numbers(tmp_path, numbers):
    found = rounds(rows_of(write_run(tmp_path / "a", rows=[metrics(number) for number in numbers])))
    for picture in pictures(found):
        axis = picture.svg.partition(">round (0 is before training)<")[0]
        ticks = [word for word in words(axis) if re.fullmatch(r"[\d.]+", word)]
        assert ticks == list(map(str, numbers))


def test_a_figure_that_did_not_move_has_no_picture(tmp_path):
    """Nothing as it is written, whatever the digits behind: an axis of nearly equal numbers says nothing."""
    told = [metrics(n, heldout_loss=10.82 + n * 1e-6, attack_auc=0.5, upload_auc=None) for n in (0, 1, 2)]
    rows = rows_of(write_run(tmp_path / "a", rows=told))
    assert list(drawn(rounds(rows))) == ["Held-out ROUGE-L"]
    assert "nothing moved: Held-out loss, Leakage." in said(rounds(rows))


def test_ticks_are_written_in_full(tmp_path):
    """No offset and no power of ten beside the axis, which would lie over a tick; and none finer than the tables."""
    told = [metrics(n, heldout_loss=10.82 + 0.0012 * n, heldout_rouge=0.3) for n in (0, 1, 2)]
    found = words(drawn(rounds(rows_of(write_run(tmp_path / "a", rows=told))))["Held-out loss"].svg)
    ticks = [word for word in found if re.fullmatch(r"[−\d.]+", word) and "." in word]
    assert len(ticks) >= 3 and all(10.81 < float(tick) < 10.83 for tick in ticks)
    assert not [word for word in found if re.search(r"\de|\+", word)]


def test_a_picture_needs_the_figure_that_it_is_of(tmp_path):
    """Single uploads are drawn beside the model's leakage, and not without it."""
    told = [metrics(n, attack_auc=None, upload_auc=0.5 + 0.1 * n) for n in (0, 1, 2)]
    assert "Leakage" not in drawn(rounds(rows_of(write_run(tmp_path / "a", rows=told))))


def test_leakage_is_drawn_with_its_interval_as_a_band_and_a_line_at_guessing(tmp_path):
    def picture(name, **ends):
        told = [metrics(n, upload_auc=None, **ends) for n in (0, 1, 2)]
        return drawn(rounds(rows_of(write_run(tmp_path / name, rows=told))))["Leakage"]

    whole, bare = picture("a"), picture("b", attack_auc_low=None, attack_auc_high=None)
    assert "95 % intervals" in whole.caption and "intervals" not in bare.caption
    assert whole.svg.count("<path") == bare.svg.count("<path") + 1
    assert "0.5 is guessing" in whole.caption and "AUC of the strongest attack" in words(whole.svg)


def test_accuracies_carry_their_number_of_texts_and_an_interval_wherever_they_are_told(tmp_path):
    rows = rows_of(classifier(tmp_path / "a", accuracy_n=20, pseudo_accuracy=0.5, pseudo_accuracy_n=8))
    assert {"0.299–0.701", "n = 20"} <= set(small(results(rows)))
    assert drawn(rounds(rows))["Calibration"].caption.endswith("n = 20.")
    assert "| 0.500 (0.299–0.701, n = 20) |" in report.markdown(rows)
