"""Which row of a report is better: only what seeds show."""

from math import nan

from scipy.stats import ttest_rel

from murmura.compare.better import which_is_better
from tests.report.runs import classifier, metrics, rows_of, write_run


def rows(folder, arms, **options):
    """Rows whose runs, a seed each, end with such losses and, behind them, such leakage."""
    found = []
    for name, ends in arms.items():
        for seed, (loss, auc) in enumerate(ends):
            figures = {"heldout_loss": loss, "attack_auc": auc}
            told = [metrics(0), metrics(2, **figures)]
            found.append(write_run(folder / f"{name}-{seed}", name, seed, told, **options.get(name, {})))
    return rows_of(*found)


GOOD = [(2.10, 0.71), (2.12, 0.69), (2.09, 0.70)]
WORSE = [(2.14, 0.60), (2.15, 0.61), (2.13, 0.58)]
LIKE = [(2.11, 0.70), (2.08, 0.71), (2.12, 0.70)]


def test_what_seeds_tell_apart_is_called_better_by_how_much(tmp_path):
    first, leaking = which_is_better(rows(tmp_path, {"A": WORSE, "B": GOOD}))
    assert ttest_rel([x for x, _ in WORSE], [x for x, _ in GOOD]).pvalue < 0.05
    assert first == "B (held-out loss 2.103) is better than A by 0.037 (0.022 to 0.051)."
    assert leaking.startswith("B leaks more (AUC) than A by 0.103")


def test_leakage_is_compared_by_one_attack(tmp_path):
    """Two arms that leak alike by each attack, of which one was the strongest here and another there."""
    found = []
    for name, strongest in (("A", "error zone"), ("B", "loss difference")):
        for seed in range(3):
            off = seed / 1000
            each = {"error zone": [0.7 + off, 0.6, 0.8], "loss difference": [0.6 + off, 0.5, 0.7]}
            attack = {"attack": strongest, "members": 80, "others": 60, "each": each}
            figures = {"heldout_loss": 2.1 + (0.1 + off if name == "A" else off), "attack_auc": each[strongest][0]}
            last = metrics(2, **figures, attacks={"attack": attack})
            found.append(write_run(tmp_path / f"{name}-{seed}", name, seed, [metrics(0), last]))
    assert not any("leaks" in one for one in which_is_better(rows_of(*found)))


def test_what_seeds_do_not_tell_apart_is_not(tmp_path):
    [only] = which_is_better(rows(tmp_path, {"A": GOOD, "B": LIKE}))
    assert only.endswith("p is corrected for all pairs of rows (Holm), intervals are not.")
    assert "cannot be told apart" in only and "is better" not in only


def test_better_than_one_and_like_another(tmp_path):
    far = [(loss + 0.5 + seed / 100, auc) for seed, (loss, auc) in enumerate(GOOD)]
    better, alike = which_is_better(rows(tmp_path, {"A": GOOD, "B": LIKE, "C": far}))[:2]
    assert "A (held-out loss 2.103) is better than C" in better and "B" not in better
    assert alike.startswith("It cannot be told apart from B")


def test_a_single_seed_shows_nothing(tmp_path):
    [only] = which_is_better(rows(tmp_path, {"A": GOOD[:1], "B": WORSE[:1]}))
    assert only.startswith("Not known: A has the best held-out loss (2.100), before B 2.140, which may be chance")
    assert "is better" not in only and "murmura compare" in only


def test_more_is_better_of_an_accuracy(tmp_path):
    runs = [classifier(tmp_path / f"{n}", accuracy=share) for n, share in enumerate((0.5, 0.75))]
    [only] = which_is_better(rows_of(*runs))
    assert "best accuracy (0.750), before" in only and "0.500" in only


def test_what_was_not_measured_alike_is_not_compared(tmp_path):
    unlike = {"A": {"more": "max_length = 128\n"}, "B": {"more": "max_length = 256\n"}}
    [only] = which_is_better(rows(tmp_path, {"A": GOOD, "B": WORSE}, **unlike))
    assert only.startswith("That cannot be told: held-out loss was not measured alike (tokens of a record at most")
    assert which_is_better(rows_of(write_run(tmp_path / "i"), classifier(tmp_path / "l"))) == ()
    assert which_is_better(rows(tmp_path / "one", {"A": GOOD})) == ()


def test_unfinished_runs_are_left_out_and_named(tmp_path):
    found = which_is_better(rows(tmp_path, {"A": GOOD, "B": WORSE, "C": GOOD[:1]}, C={"finished": False}))
    assert found[-1] == "Left out, as unfinished or without a finite held-out loss of every seed: fedit."
    assert "C" not in found[0]


def test_the_best_was_picked_and_so_every_two_rows_count_as_compared(tmp_path):
    """Of three rows three pairs may be the one that is shown: Holm's smallest p is three times as large, not twice."""
    second, third = [(2.12, 0.7), (2.146, 0.7), (2.1235, 0.7)], [(2.3, 0.7), (2.2, 0.7), (2.1, 0.7)]
    p = [ttest_rel([x for x, _ in other], [x for x, _ in GOOD]).pvalue for other in (second, third)]
    assert 2 * min(p) < 0.05 < 3 * min(p)
    [only, *_] = which_is_better(rows(tmp_path, {"A": GOOD, "B": second, "C": third}))
    assert "cannot be told apart from B" in only and f"p = {3 * min(p):.3f}" in only


def test_a_mean_over_other_seeds_turns_no_difference_round(tmp_path):
    """A has the best mean by its further seeds; with those that both have, B is shown to be better."""
    further = [(3.0, 0.7), (3.1, 0.7), (2.9, 0.7), (1.0, 0.7), (1.0, 0.7), (1.0, 0.7)]
    found = which_is_better(rows(tmp_path, {"A": further, "B": [(2.5, 0.7), (2.61, 0.7), (2.4, 0.7)]}))
    assert any(one.startswith("B is better than A") for one in found)
    assert not any("is better than B" in one for one in found)


def test_a_row_of_which_a_seed_diverged_is_not_called_better(tmp_path):
    found = which_is_better(rows(tmp_path, {"A": [*GOOD[:2], (nan, 0.7)], "B": WORSE, "C": WORSE}))
    assert "Left out" in found[-1] and found[-1].endswith(": A.")
    assert not any("A" in one for one in found[:-1])


def test_what_is_left_out_keeps_no_others_from_being_compared(tmp_path):
    other = {"C": {"finished": False, "more": "max_length = 256\n"}}
    assert which_is_better(rows(tmp_path, {"A": WORSE, "B": GOOD, "C": GOOD[:1]}, **other))[0].startswith("B (held")


def test_below_guessing_nobody_leaks_more(tmp_path):
    low, lower = (
        [(loss, auc) for (loss, _), auc in zip(GOOD, by, strict=True)] for by in ((0.48, 0.49, 0.47), (0.4, 0.42, 0.4))
    )
    assert not any("leaks" in one for one in which_is_better(rows(tmp_path, {"A": low, "B": lower})))


def test_to_be_found_less_than_guessing_finds_is_no_merit(tmp_path):
    best, other = (
        [(loss, auc) for (loss, _), auc in zip(GOOD, by, strict=True)]
        for by in ((0.3, 0.28, 0.33), (0.505, 0.49, 0.52))
    )
    assert not any("leaks" in one for one in which_is_better(rows(tmp_path / "a", {"A": best, "B": other})))
    leaking = [(loss, auc + 0.2) for loss, auc in other]
    told = which_is_better(rows(tmp_path / "b", {"A": best, "B": leaking}))
    assert any(one.startswith("A leaks less (AUC) than B by 0.205") for one in told)
