import math
import tomllib
from dataclasses import replace

import pytest
import tomli_w

from murmura import report
from murmura.measure.catalogue import CATALOGUE, figure
from murmura.measure.figure import interval
from murmura.measure.statistics import Estimate
from murmura.privacy.reported import rounded
from murmura.report.attacks import few_attacked
from murmura.report.guarantee import scope
from murmura.report.page import render
from murmura.report.table import Cell, columns
from murmura.runs import read_all
from murmura.runs.folder import RunFolder
from murmura.runs.names import RESUMED
from murmura.runs.schema import MeasuredOn, RecordSet, Resumption, SiteReport
from murmura.units import bound
from tests.privacy.folders import leave_ledgers
from tests.privacy.plans import RECORDS, SITES
from tests.report.runs import NOISE, RELEASED, classifier, metrics, rows_of, seeds, write_run


def texts(row):
    return [row.cells[figure.key].value(figure) for figure in columns([row])]


def test_a_single_run_is_shown_as_it_is(tmp_path):
    (row,) = rows_of(write_run(tmp_path / "a"))
    assert (row.label, row.remark, row.state) == ("FedAvg", "seed 0", "")
    assert texts(row) == ["2.000", "0.250", "0.625", "0.750", "–", "4.50 MB", "9.00 MB", "90.0 s", "1.65 GB"]
    assert {row.cells[one.key].spread(one) for one in CATALOGUE if one.column} == {""}
    assert row.before("heldout_loss").mean == 2.25


def test_what_was_not_measured_is_a_dash_never_zero(tmp_path):
    (row,) = rows_of(write_run(tmp_path / "a", rows=[{"round": 0}], finished=False))
    assert texts(row) == ["–"] * 9


def test_zero_is_not_a_dash(tmp_path):
    (row,) = rows_of(write_run(tmp_path / "a", rows=[metrics(0, bytes_up=0, attack_auc=0.0)], finished=False))
    assert texts(row)[2] == "0.000"
    assert texts(row)[5] == "0 B"


def test_seeds_of_one_method_become_mean_and_sample_standard_deviation(tmp_path):
    (row,) = seeds(tmp_path, *([metrics(0), metrics(2, heldout_loss=loss)] for loss in (1.0, 2.0, 4.0)))
    assert (row.seeds, row.remark) == ((0, 1, 2), "mean ± sd of 3 seeds")
    cell = row.cells["heldout_loss"]
    assert cell.n == 3
    assert cell.mean == pytest.approx(7 / 3)
    # squared deviations 16/9, 1/9, 25/9: their sum 42/9, divided by n - 1 = 2
    assert cell.sd == pytest.approx(math.sqrt(7 / 3))
    loss = figure("heldout_loss")
    assert (cell.value(loss), cell.spread(loss)) == ("2.333", "± 1.528")
    assert row.cells["bytes_up"].spread(figure("bytes_up")) == "± 0"


@pytest.mark.parametrize(
    ("drawn", "kind", "rows"),
    [("", "instruction", 2), ("heldout_records = 4\n", "instruction", 1), ("", "labelled", 1)],
)
def test_seeds_that_were_measured_on_other_records_share_a_row_only_where_each_draws_its_own(
    tmp_path, drawn, kind, rows
):
    sets = [RecordSet(4, letter * 64) for letter in "ab"]
    folders = [
        write_run(
            tmp_path / str(seed),
            seed=seed,
            kind=kind,
            more=f'train = "sites"\nheldout = "heldout.jsonl"\n{drawn}',
            measured=MeasuredOn(records, records, RecordSet(0, "none")),
        )
        for seed, records in enumerate(sets)
    ]
    assert len(rows_of(*folders)) == rows


def test_seeds_without_a_figure_do_not_count_as_zero(tmp_path):
    (row,) = seeds(tmp_path, *([metrics(2, upload_auc=leakage)] for leakage in (0.25, None, 0.75)))
    assert row.cells["upload_auc"] == Cell(0.5, pytest.approx(math.sqrt(0.125)), 2)


def guaranteed(epsilon, unit="record", delta=1e-5):
    told = {"unit": unit, "adjacency": "zero-out", "delta": delta, "plan": "Poisson"}
    return metrics(2, epsilon=epsilon, privacy=told | {"epsilon": epsilon, "refused": None if epsilon else "why"})


@pytest.mark.parametrize(
    ("epsilons", "shown"), [((4.0, 12.0001), "12.001"), ((4.0, None), "–"), ((None, 4.0), "–"), ((4.0,), "4.000")]
)
def test_an_epsilon_of_several_seeds_is_one_that_holds_for_all(tmp_path, epsilons, shown):
    (row,) = seeds(tmp_path, *([guaranteed(epsilon)] for epsilon in epsilons))
    cell, epsilon = row.cells["epsilon"], figure("epsilon")
    assert (cell.value(epsilon), cell.spread(epsilon)) == (shown, "")


def with_ledgers(tmp_path, records):
    """Three seeds of one experiment; what each site has, by seed."""
    seeds(tmp_path, *[[guaranteed(RECORDS.epsilon().value)]] * len(records))
    folders = [tmp_path / f"s{seed}" for seed in range(len(records))]
    for folder, own in zip(folders, records, strict=True):
        leave_ledgers(folder, own, dict.fromkeys(own, RECORDS))
    return rows_of(*folders)


@pytest.mark.parametrize(
    "records", [[{"a": "x", "b": "y"}] * 3, [{"a": "x"}, {"a": "y"}, {"a": "z"}]], ids=["the same", "another partition"]
)
def test_beside_the_epsilon_of_one_seed_stands_that_of_all(tmp_path, records, capsys):
    (row,) = rows = with_ledgers(tmp_path, records)
    all_three = bound(replace(RECORDS, steps=150).epsilon().value)
    cell, epsilon = row.cells["epsilon"], figure("epsilon")
    assert cell.value(epsilon) == bound(RECORDS.epsilon().value) and cell.together == f"all 3 runs: {all_three}"
    assert cell.entry(epsilon).words.endswith(f"(all 3 runs: {all_three})")
    assert "that of all on which the row rests" in scope(rows)[-1]
    report.show(rows)
    assert f"all 3 runs: {all_three}" in capsys.readouterr().out


def test_the_epsilon_of_all_tells_no_more_than_that_of_one_of_how_many_records_a_site_has(tmp_path):
    """The exact one follows from it, where noise was made for a target."""
    with_ledgers(tmp_path, [{"a": "x"}] * 2)
    for seed in range(2):
        config = tmp_path / f"s{seed}" / "config.toml"
        config.write_text(config.read_text().replace("[method]\n", "[method]\nepsilon = 2.0\n", 1))
    (row,) = rows_of(tmp_path / "s0", tmp_path / "s1")
    exact = replace(RECORDS, steps=100).epsilon().value
    assert row.cells["epsilon"].together == f"all 2 runs: {bound(rounded(exact, 2.0))}" and rounded(exact, 2.0) > exact


def test_an_edited_ledger_of_one_seed_leaves_none_for_all(tmp_path):
    with_ledgers(tmp_path, [{"a": "x"}] * 2)
    ledger = tmp_path / "s1" / "private" / "a" / "privacy.journal"
    ledger.write_text(ledger.read_text().replace('"steps": 50', '"steps": 1'))
    (row,) = rows_of(tmp_path / "s0", tmp_path / "s1")
    assert "no ε of all runs together" in row.cells["epsilon"].together
    assert "was edited" in row.cells["epsilon"].together


def test_seeds_whose_sites_are_elsewhere_have_an_epsilon_of_all(tmp_path):
    seeds(tmp_path, *[[guaranteed(SITES.epsilon().value, "site", SITES.delta)]] * 2)
    folders = [leave_ledgers(tmp_path / f"s{seed}", {}, whole=SITES) for seed in range(2)]
    for folder in folders:
        config = folder / "config.toml"
        config.write_text(config.read_text().replace("[run]\n", '[run]\nengine = "flower"\n'))
    (row,) = rows_of(*folders)
    assert row.cells["epsilon"].together == f"all 2 runs: {bound(replace(SITES, steps=22).epsilon().value)}"


def test_without_ledgers_the_epsilon_of_seeds_add_up(tmp_path):
    (row,) = seeds(tmp_path, *[[guaranteed(4.0)]] * 2)
    assert row.cells["epsilon"].together == "all 2 runs: at most 8.000, δ = 2e-05"


def test_what_protects_by_itself_has_no_ledger_and_its_epsilon_adds_up(tmp_path):
    seeds(tmp_path, *[[guaranteed(7.58, "site", 0.0)]] * 2)
    folders = [leave_ledgers(tmp_path / f"s{seed}", {"a": "x"}) for seed in range(2)]
    (row,) = rows_of(*folders)
    assert row.cells["epsilon"].together == "all 2 runs: at most 15.160, δ = 0"


def test_whom_an_epsilon_is_about_stands_below_the_table(tmp_path, capsys):
    rows = rows_of(write_run(tmp_path / "a", rows=[guaranteed(4.0)]), write_run(tmp_path / "b", method="FedProx"))
    sentence = "ε bounds what one record changes (zero-out), but for δ = 1e-05."
    assert scope(rows[:1]) == [sentence]
    report.show(rows)
    assert sentence in capsys.readouterr().out
    assert report.markdown(rows[:1]).endswith(f"\n\n{sentence}\n")
    assert scope(rows[1:]) == []
    assert scope(rows_of(write_run(tmp_path / "c", rows=[guaranteed(None)]))) == []


def test_no_epsilon_of_a_table_is_for_all_of_its_rows(tmp_path):
    private, plain = write_run(tmp_path / "a", rows=[guaranteed(4.0)]), write_run(tmp_path / "b", method="FedProx")
    rows = rows_of(private, plain)
    assert "Each ε is of its own row alone" in scope(rows)[-1]
    assert not any("own row" in sentence for sentence in [*scope(rows[:1]), *scope(rows[1:])])


@pytest.mark.parametrize(
    ("options", "sent", "told"),
    [
        ({}, {}, True),
        ({"slots": 1}, {}, False),
        ({"slots": 1, "changed": {"run.slots": (8, 1)}}, {}, True),  # its earlier rounds count too
        ({"slots": 1, "changed": {"run.slots": (1, 1)}}, {}, False),
        ({"engine": "flower"}, {}, False),
        ({"engine": "ray"}, {}, True),
        ({"unit": "record"}, {}, False),
        ({"trainable": "all"}, {}, False),
        ({}, {"kind": "votes"}, False),  # nothing was trained
        ({}, {"protection": NOISE}, False),
        ({}, {"protection": {"type": "of a later version"}}, True),  # what is not known may be
        ({}, None, True),
    ],
)
def test_sites_of_a_simulation_that_shared_passes_are_told_beside_an_epsilon_of_whole_sites(
    tmp_path, options, sent, told
):
    row = guaranteed(2.0)
    row["privacy"]["unit"] = options.pop("unit", "site")
    release = RELEASED | {"protection": NOISE | {"unit": "site"}, "messages": 4, "bytes": 4} | (sent or {})
    folder = write_run(tmp_path / "a", rows=[row], disclosure=[release])
    if sent is None:
        (folder / "disclosure.json").unlink()
    RunFolder(folder).write(RESUMED, [Resumption(1, options.pop("changed", {}), ())])
    config = tomllib.loads((folder / "config.toml").read_text())
    config["model"]["trainable"] = options.pop("trainable", "adapter")
    config["run"] |= options
    (folder / "config.toml").write_text(tomli_w.dumps(config))
    assert any("may have shared passes" in sentence for sentence in scope(rows_of(folder))) == told


def test_methods_keep_their_own_rows_in_the_order_given(tmp_path):
    a0 = write_run(tmp_path / "a0", method="FedProx", seed=0)
    b0 = write_run(tmp_path / "b0", method="FedAvg", seed=0)
    a1 = write_run(tmp_path / "a1", method="FedProx", seed=1)
    assert [(row.label, row.seeds) for row in rows_of(a0, b0, a1)] == [("FedProx", (0, 1)), ("FedAvg", (0,))]


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 0},
        {"seed": None},
        {"seed": 1, "model": "large"},
        {"seed": 1, "rows": [metrics(1)]},
        {"seed": 1, "finished": False},
        {"seed": 1, "sites": [SiteReport("only", 1, 1, 0, 0)]},
    ],
)
def test_runs_that_differ_in_more_than_the_seed_are_not_averaged(tmp_path, other):
    rows = rows_of(write_run(tmp_path / "a"), write_run(tmp_path / "b", **other))
    assert [len(row.runs) for row in rows] == [1, 1]
    assert len({row.label for row in rows}) == 2


def test_runs_of_two_arms_that_end_at_the_same_options_are_two_rows(tmp_path):
    """As where an arm takes the rate of another, and finds the same."""
    labels = {write_run(tmp_path / f"{arm}{seed}", seed=seed): arm for arm in ("wide", "control") for seed in (0, 1)}
    rows = report.table(read_all(list(labels)), labels)
    assert [(row.label, [run.seed for run in row.runs]) for row in rows] == [("wide", [0, 1]), ("control", [0, 1])]
    page = render(read_all(list(labels)), labels=labels)
    assert all(f'<span>{arm} <span class="sub">mean ± sd of 2 seeds' in page for arm in ("wide", "control"))


def test_runs_of_one_arm_share_a_row_however_they_were_carried_out(tmp_path):
    """As where seeds were added later, with a tracker or other slots."""
    more = ["", "", '[tracking]\nproject = "clinic"\n']
    labels = {write_run(tmp_path / f"s{seed}", seed=seed, more=own): "wide" for seed, own in enumerate(more)}
    [row] = report.table(read_all(list(labels)), labels)
    assert (row.label, [run.seed for run in row.runs]) == ("wide", [0, 1, 2])
    assert [len(row.runs) for row in report.table(read_all(list(labels)))] == [2, 1]


def test_equal_names_in_different_folders_are_told_apart(tmp_path):
    rows = rows_of(write_run(tmp_path / "x" / "run"), write_run(tmp_path / "y" / "run"))
    assert [row.label for row in rows] == [f"FedAvg ({tmp_path / name / 'run'})" for name in "xy"]


def test_an_unfinished_run_says_how_far_it_came(tmp_path):
    (row,) = rows_of(write_run(tmp_path / "a", rows=[metrics(0), metrics(1)], finished=False))
    assert (row.finished, row.state) == (False, "unfinished: round 1 of 2")


def test_a_series_skips_rounds_without_the_figure(tmp_path):
    missed = metrics(1, attack_auc=None)
    (row,) = seeds(tmp_path, *([metrics(0), missed, metrics(2, attack_auc=leak)] for leak in (0.5, 1.0)))
    points = row.series("attack_auc")
    assert [(point.round, point.cell.mean) for point in points] == [(0, 0.5), (2, 0.75)]
    assert points[1].cell.sd == pytest.approx(math.sqrt(0.125))


def test_how_a_run_was_worked_off_does_not_name_its_row(tmp_path):
    folders = []
    for sites, rank in ((2, 8), (5, 8), (5, 4)):
        folder = write_run(tmp_path / f"{sites}-{rank}")
        text = (folder / "config.toml").read_text()
        more = f"[lora]\nrank = {rank}\n[data.sites]\ncount = {sites}\n"
        (folder / "config.toml").write_text(text.replace("[run]\n", f"[run]\nslots = {sites}\n") + more)
        folders.append(folder)
    labels = [row.label for row in rows_of(*folders)]
    assert labels[0] == "FedAvg (data.sites.count = 2, lora.rank = 8)"
    assert len(set(labels)) == 3


def test_runs_of_different_options_have_rows_of_their_own_which_tell_the_options(tmp_path):
    folders = []
    for rank in (2, 8):
        for seed in (0, 1):
            folder = tmp_path / f"r{rank}-{seed}"
            write_run(folder, method="DP-LoRA", seed=seed)
            with (folder / "config.toml").open("a") as file:
                file.write(f"[lora]\nrank = {rank}\n")
            folders.append(folder)
    rows = rows_of(*folders)
    assert [row.label for row in rows] == ["DP-LoRA (lora.rank = 2)", "DP-LoRA (lora.rank = 8)"]
    assert [row.seeds for row in rows] == [(0, 1), (0, 1)]


def test_columns_are_those_of_the_kind_of_record(tmp_path):
    labelled = classifier(tmp_path / "b")
    keys = [column.key for column in columns(rows_of(labelled))]
    assert "accuracy" in keys and "heldout_rouge" not in keys
    both = [column.key for column in columns(rows_of(write_run(tmp_path / "a"), labelled))]
    assert {"accuracy", "attack_auc", "calibration_error", "heldout_rouge"} <= set(both)


def test_an_accuracy_has_its_number_of_texts_and_an_interval(tmp_path):
    """45 of 50: Wilson's interval by hand, (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n) with z = 1.96."""
    (row,) = rows_of(write_run(tmp_path / "a", rows=[metrics(1, accuracy=0.9, accuracy_n=50)]))
    assert row.cells["accuracy"].interval() == ["0.786–0.957", "n = 50"]
    (row,) = rows_of(write_run(tmp_path / "b", rows=[metrics(1, accuracy=0.9)]))
    assert row.cells["accuracy"].interval() == []  # of a run that did not tell


def test_what_guessing_comes_to_stands_beside_a_figure(tmp_path, capsys):
    told = {"accuracy": 0.64, "accuracy_n": 50, "accuracy_guess": 0.62, "heldout_loss_guess": 0.463}
    row, *_ = rows = rows_of(write_run(tmp_path / "a", rows=[metrics(1, **told)], kind="labelled"))
    assert row.cells["accuracy"].entry(figure("accuracy")).words == "0.640 (0.501–0.759, n = 50, guessing 0.620)"
    assert "guessing 0.463" in report.markdown(rows)
    report.show(rows)
    assert "guessing 0.620" in capsys.readouterr().out
    assert row.cells["attack_auc"].guessing(figure("attack_auc")) == ""


def test_an_accuracy_of_several_seeds_is_of_the_texts_of_the_smallest(tmp_path):
    (row,) = seeds(tmp_path, *([metrics(2, accuracy=share, accuracy_n=n)] for share, n in ((0.8, 60), (0.9, 50))))
    assert row.cells["accuracy"].interval() == [f"{Estimate.of([0.8, 0.9]).low:.3f}–1.000", "n = 50"]


def test_an_interval_of_several_seeds_is_the_wider_of_two_at_each_end(tmp_path):
    """Over seeds, which may differ more than texts within one can make them, and over texts."""
    alike = [([metrics(2, accuracy=0.8, accuracy_n=50, attack_auc=0.6, attack_auc_low=0.5, attack_auc_high=0.7)])] * 3
    (row,) = seeds(tmp_path / "alike", *alike)
    low, high = interval(0.8, 50)
    assert row.cells["accuracy"].ends == pytest.approx((low, high))
    assert row.cells["attack_auc"].ends == pytest.approx((0.5, 0.7))
    aucs = (0.48, 0.62, 0.64)
    apart = [[metrics(2, attack_auc=auc, attack_auc_low=auc - 0.05, attack_auc_high=auc + 0.05)] for auc in aucs]
    (row,) = seeds(tmp_path / "apart", *apart)
    over = Estimate.of(aucs, 0, 1)
    assert row.cells["attack_auc"].ends == pytest.approx((over.low, over.high)) and over.low < 0.43


def test_an_attack_is_shown_with_its_interval_its_name_and_its_records(tmp_path):
    (row,) = rows_of(write_run(tmp_path / "a"))
    cell = row.cells["attack_auc"]
    assert (cell.mean, cell.ends) == (0.625, (0.5625, 0.6875))
    assert (cell.interval(), cell.remarks) == (["0.562–0.688"], ("error zone", "n = 81 + 36"))
    few = {"attacks": {"attack": {"attack": "window votes", "members": 81, "others": 9}}}
    (row,) = rows_of(write_run(tmp_path / "b", rows=[metrics(2, **few)]))
    cell = row.cells["attack_auc"]
    assert (cell.interval(), cell.remarks) == (["0.562–0.688"], ("window votes", "n = 81 + 9: says little"))


@pytest.mark.parametrize(("few", "records"), [(True, "36 others: says little"), (False, "36 others")])
def test_of_a_private_run_no_number_of_members_is_shown_but_that_they_were_few(tmp_path, few, records):
    attack = {"attack": "window votes", "members": None, "others": 36, "few": few}
    (row,) = rows_of(write_run(tmp_path / "a", rows=[metrics(2, attacks={"attack": attack})]))
    assert row.cells["attack_auc"].remarks == ("window votes", records)
    assert few_attacked(row.runs, "attack") == few


def test_an_interval_that_begins_below_nought_is_told_in_words():
    assert Cell(0.1, None, 1, ends=(-0.05, 0.25)).interval() == ["−0.050 to 0.250"]  # and not with two dashes


def test_of_several_seeds_the_ends_of_intervals_are_means_and_all_attacks_are_named(tmp_path):
    told = {"attack": "window votes", "members": 81, "others": 36}
    (row,) = seeds(tmp_path, [metrics(2)], [metrics(2, attack_auc_low=0.6, attacks={"attack": told})])
    cell = row.cells["attack_auc"]
    assert cell.ends == pytest.approx((0.58125, 0.6875))
    assert cell.remarks == ("error zone", "n = 81 + 36", "window votes")


def test_members_found_at_one_percent_have_a_column_where_they_were_measured(tmp_path):
    rows = rows_of(write_run(tmp_path / "a", rows=[metrics(2, attack_tpr=0.25, attack_tpr_n=80)]))
    [figure] = [one for one in columns(rows) if one.key == "attack_tpr"]
    assert rows[0].cells["attack_tpr"].entry(figure).words == "0.250 (0.168–0.355, n = 80)"
    assert "attack_tpr" not in [one.key for one in columns(rows_of(write_run(tmp_path / "b")))]
