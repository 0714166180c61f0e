"""What several runs have spent together is neither the largest ε nor their sum."""

import math
import shutil
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import dp_accounting as dp
import pytest
from dp_accounting import pld, rdp

from murmura.errors import CheckpointError, PrivacyError
from murmura.privacy import accounting
from murmura.privacy.clipping import ExampleClipping
from murmura.privacy.composition import PrivateSelection, ReleasedSteps, at_most, composed
from murmura.privacy.journal import Journal
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.odometer import anywhere, every, together, totals
from murmura.privacy.run_ledgers import RunLedgers, found, note, noted, read
from murmura.privacy.samplers import FixedSizeSampling, FullParticipation, PoissonSampling
from murmura.runs.folder import RunFolder
from murmura.runs.names import CHOSEN_BY, CONFIG, ID
from murmura.runs.names import RECORDS as RECORDS_FILE
from murmura.runs.names import SITES as SITES_FILE
from murmura.runs.schema import SiteReport
from tests.privacy.folders import ledger_of, run_folder
from tests.privacy.plans import RECORDS, SITES, followed

pytestmark = pytest.mark.slow

ZERO_OUT = RECORDS.adjacency
OTHER = replace(RECORDS, sampler=PoissonSampling(0.1), noise=GaussianNoise(3.0), steps=20)


def pld_of(*steps, delta=1e-5):
    """ε of Poisson-sampled steps, (rate, z, count) each: composed by hand."""
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    for rate, z, count in steps:
        accountant.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(z)), count)
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize(("epsilon", "three"), [(8.0, 11.31), (2.0, 2.83)])
def test_three_seeds_are_worth_more_than_one_and_less_than_their_sum(epsilon, three):
    plan = replace(RECORDS, sampler=PoissonSampling(0.025)).calibrated(epsilon)
    found = composed([ReleasedSteps(plan, 50)] * 3, 1e-5, ZERO_OUT)
    assert found.value == pytest.approx(three, abs=0.01)
    assert found.value == pytest.approx(pld_of((0.025, plan.noise.std, 150)), rel=1e-3)
    assert epsilon < found.value < 3 * epsilon


def test_plans_that_differ_compose_step_by_step():
    found = composed(
        [ReleasedSteps(RECORDS, 50), ReleasedSteps(OTHER, 20), ReleasedSteps(RECORDS, 10, (3, 4))], 1e-5, ZERO_OUT
    )
    assert found.value == pytest.approx(pld_of((0.04, 2.0, 62), (0.1, 3.0, 20)), rel=1e-3)
    assert max(RECORDS.epsilon().value, OTHER.epsilon().value) < found.value


def test_unsampled_gaussians_compose_exactly():
    plain = replace(RECORDS, sampler=FullParticipation(), noise=GaussianNoise(20.0))
    found = composed([ReleasedSteps(plain, 50), ReleasedSteps(plain, 30)], 1e-5, ZERO_OUT)
    assert (
        found.value == pytest.approx(dp.get_epsilon_gaussian(20 / math.sqrt(80), 1e-5)) and found.accountant == "exact"
    )


def test_a_record_of_a_run_that_protects_whole_sites_is_a_site_replaced():
    """Blanking one record may turn its site's update around: twice the distance, and that under either adjacency."""
    for adjacency in (ZERO_OUT, "replace-one"):
        one = composed([ReleasedSteps(SITES, 11, by_record=True)], 1e-5, adjacency)
        assert one.value == pytest.approx(dp.get_epsilon_gaussian(11.3 / 2 / math.sqrt(11), 1e-5))
    sampled = replace(SITES, sampler=PoissonSampling(0.5))
    assert ReleasedSteps(sampled, 11, by_record=True).event(ZERO_OUT) == ReleasedSteps(SITES, 11, by_record=True).event(
        ZERO_OUT
    )
    assert composed([ReleasedSteps(SITES, 11)], 1e-5, ZERO_OUT).value < one.value


@pytest.mark.parametrize("adjacency", [ZERO_OUT, "replace-one"])
def test_both_kinds_of_run_together(adjacency):
    """Held against a composition by Rényi divergences, which no PLD bound may exceed by much."""
    found = composed([ReleasedSteps(RECORDS, 50), ReleasedSteps(SITES, 11, by_record=True)], 1e-5, adjacency)
    parts = [
        composed([one], 1e-5, adjacency).value
        for one in (ReleasedSteps(RECORDS, 50), ReleasedSteps(SITES, 11, by_record=True))
    ]
    assert max(parts) < found.value < sum(parts)
    if adjacency == ZERO_OUT:
        accountant = rdp.RdpAccountant()
        accountant.compose(dp.PoissonSampledDpEvent(0.04, dp.GaussianDpEvent(2.0)), 50)
        accountant.compose(dp.GaussianDpEvent(11.3 / 2), 11)
        assert 0.85 < found.value / accountant.get_epsilon(1e-5) < 1.0


def test_a_result_chosen_among_many_runs_costs_more():
    one = composed([ReleasedSteps(RECORDS, 50)], 1e-5, ZERO_OUT)
    chosen = composed([ReleasedSteps(RECORDS, 50)], 1e-5, ZERO_OUT, PrivateSelection(10))
    accountant = rdp.RdpAccountant(orders=[1 + tenth / 10 for tenth in range(1, 1000)])
    step = dp.PoissonSampledDpEvent(0.04, dp.GaussianDpEvent(2.0))
    accountant.compose(dp.dp_event.RepeatAndSelectDpEvent(dp.SelfComposedDpEvent(step, 50), 10, 1))
    assert chosen.value == pytest.approx(accountant.get_epsilon(1e-5), rel=0.01)
    assert one.value < chosen.value < 10 * one.value
    assert chosen.value < composed([ReleasedSteps(RECORDS, 50)], 1e-5, ZERO_OUT, PrivateSelection(100)).value


@pytest.mark.parametrize("plan", [RECORDS, replace(RECORDS, sampler=FixedSizeSampling(4, 100))])
def test_choosing_is_never_free_whatever_is_known_of_sampling(plan):
    """Under replace-one, Rényi accounting has no bound for Poisson samples: inside a selection neither."""
    for adjacency in (ZERO_OUT, "replace-one"):
        alone = accounting.epsilon(ReleasedSteps(plan, 50).event(adjacency), 1e-5, adjacency, "rdp").value
        assert composed([ReleasedSteps(plan, 50)], 1e-5, adjacency, PrivateSelection(1.5)).value > alone


@pytest.mark.parametrize("values", [(0.5, 1.0), (10, -1.0)])
def test_a_selection_that_cannot_be(values):
    with pytest.raises(PrivacyError, match="chosen among"):
        PrivateSelection(*values)


def test_the_largest_of_all_combinations():
    weak, strong = ReleasedSteps(RECORDS, 50), ReleasedSteps(replace(RECORDS, noise=GaussianNoise(4.0)), 50)
    assert at_most([[weak, strong], [strong, weak, weak]], 1e-5, ZERO_OUT) == composed([weak, weak], 1e-5, ZERO_OUT)
    assert at_most([[strong], [weak]], 1e-5, ZERO_OUT) == composed([weak, strong], 1e-5, ZERO_OUT)


def test_too_many_combinations_are_added_up():
    many = [ReleasedSteps(replace(RECORDS, steps=steps, sampler=FullParticipation()), steps) for steps in range(1, 8)]
    found = at_most([many] * 3, 1e-5, ZERO_OUT)
    assert found.value == pytest.approx(3 * composed(many[-1:], 1e-5 / 3, ZERO_OUT).value) and found.note
    assert found.value > composed(many[-1:] * 3, 1e-5, ZERO_OUT).value


@pytest.mark.parametrize("combinations", [200, 1])
def test_runs_that_were_chosen_cost_more_wherever_a_record_was(combinations):
    weak, strong = ReleasedSteps(RECORDS, 50), ReleasedSteps(replace(RECORDS, noise=GaussianNoise(4.0)), 50)
    selection = PrivateSelection(10)
    found = at_most([[weak, strong]] * 2, 1e-5, ZERO_OUT, chosen=selection, combinations=combinations)
    least = composed([weak, weak], 1e-5, ZERO_OUT, selection)
    assert found == least if combinations > 1 else found.value > least.value
    assert least.value > composed([weak, weak], 1e-5, ZERO_OUT).value


# ---- run folders -----------------------------------------------------------------------------------------------------


def test_runs_over_the_same_records_are_found_by_digest_and_not_by_name(tmp_path):
    first = run_folder(tmp_path / "1", {"a": "x", "b/c": "y"}, {"a": RECORDS, "b/c": OTHER})
    second = run_folder(tmp_path / "2", {"b": "x", "c": "z"}, {"b": OTHER, "c": RECORDS})
    runs = [read(first), read(second)]
    found = {one.members: one for one in totals(runs)}
    both = found[(str(first), "a"), (str(second), "b")]
    assert both.runs == 2 and both.epsilon == composed(
        [ReleasedSteps(RECORDS, 50), ReleasedSteps(OTHER, 20)], 1e-5, ZERO_OUT
    )
    assert found[((str(first), "b/c"),)].epsilon.value == OTHER.epsilon().value
    assert len(found) == 3 and all(one.unit == "record" for one in found.values())
    # What is y in the first run may be partly z in the second.
    assert anywhere(runs, "record").value >= both.epsilon.value
    assert together(runs, "record") == anywhere(runs, "record") and anywhere(runs, "site") is None


def test_sites_that_have_spent_alike_share_a_line(tmp_path):
    runs = [read(run_folder(tmp_path / n, {"a": "x", "b": "y"}, dict.fromkeys("ab", RECORDS))) for n in "12"]
    (one,) = totals(runs)
    assert len(one.members) == 4 and one.runs == 2
    assert together(runs, "record") == one.epsilon == composed([ReleasedSteps(RECORDS, 50)] * 2, 1e-5, ZERO_OUT)


def test_two_sites_with_the_same_records_in_one_run_have_spent_them_twice(tmp_path):
    (one,) = totals([read(run_folder(tmp_path / "1", {"a": "x", "b": "x"}, dict.fromkeys("ab", RECORDS)))])
    assert one.epsilon == composed([ReleasedSteps(RECORDS, 50)] * 2, 1e-5, ZERO_OUT)


@pytest.mark.parametrize("unit", ["record", "site"])
def test_the_same_records_at_two_sites_move_one_sum_twice_as_far(tmp_path, unit):
    fed = read(run_folder(tmp_path / "1", {"a": "x", "b": "x", "c": "y"}, whole=SITES))
    lora = read(run_folder(tmp_path / "2", {"a": "x", "b": "x"}, dict.fromkeys("ab", RECORDS)))
    runs = [fed, lora] if unit == "record" else [fed]
    noise = replace(SITES, adjacency="replace-one").noise_multiplier / 2
    [twice] = [one for one in totals(runs) if one.unit == unit and (fed.name, "b") in one.members]
    own = [RECORDS.event(50)] * 2 if unit == "record" else []
    by_hand = dp.ComposedDpEvent([*own, dp.SelfComposedDpEvent(dp.GaussianDpEvent(noise), SITES.steps)])
    assert twice.epsilon.value == pytest.approx(accounting.epsilon(by_hand, 3e-6, ZERO_OUT).value, rel=1e-6)


def test_a_site_that_took_part_and_whose_folder_is_gone_leaves_no_bound(tmp_path):
    weak = replace(RECORDS, noise=GaussianNoise(0.7))
    folder = run_folder(tmp_path / "1", {"a": "x", "b/c": "y"}, {"a": RECORDS, "b/c": weak})
    used = {"a": 3, "b/c": 3, "left out": 0}
    RunFolder(folder).write_private(RECORDS_FILE, [{"sites": [{"site": one, "used": n} for one, n in used.items()]}])
    assert together([read(folder)], "record") == weak.epsilon()
    shutil.rmtree(RunFolder(folder).private_of("b/c"))
    left = read(folder)
    assert any("what site b/c kept of this run is gone" in one.refused for one in totals([left]))
    assert anywhere([left], "record") is None
    with pytest.raises(PrivacyError, match="site b/c"):
        together([left], "record")


def test_of_a_simulation_that_protects_whole_sites_no_site_is_forgotten(tmp_path):
    """Two with the same records are protected by less than one."""
    path = run_folder(tmp_path / "1", {"a": "x", "b": "x"}, whole=SITES)
    used = [{"site": site, "used": 3} for site in "ab"]
    RunFolder(path).write_private(RECORDS_FILE, [{"sites": used}])
    (one,) = totals([read(path)])
    assert one.epsilon.value > SITES.epsilon().value
    shutil.rmtree(RunFolder(path).private_of("b"))
    left = totals([read(path)])
    assert {one.unit for one in left} == {"site"} and anywhere([read(path)], "site") is None
    assert any("what site b kept of this run is gone" in one.refused for one in left)
    shutil.rmtree(RunFolder(path).private)
    with pytest.raises(CheckpointError, match="nothing is left of what this run spent"):
        read(path)


def test_whole_sites_and_records_are_told_apart(tmp_path):
    sites = [read(run_folder(tmp_path / n, {"a": "x"}, whole=SITES)) for n in "12"]
    (one,) = totals(sites)
    assert one.unit == "site" and one.epsilon.value == pytest.approx(replace(SITES, steps=22).epsilon().value)
    assert one.epsilon.delta == 3e-6
    mixed = [sites[0], read(run_folder(tmp_path / "3", {"a": "x"}, {"a": RECORDS}))]
    by_unit = {one.unit: one for one in totals(mixed)}
    assert by_unit["record"].epsilon == composed(
        [ReleasedSteps(RECORDS, 50, by_record=True), ReleasedSteps(SITES, 11, by_record=True)], 3e-6, ZERO_OUT
    )
    assert by_unit["site"].epsilon is None and "protects single records, and no whole site" in by_unit["site"].refused


def deployed(path, plan=SITES):
    """A run whose sites were elsewhere: the server has its own ledger, and no site's folder."""
    return read(run_folder(path, {}, whole=plan))


def test_runs_whose_sites_are_elsewhere_count_for_every_site(tmp_path):
    first, second = deployed(tmp_path / "1"), deployed(tmp_path / "2")
    (alone,) = totals([first])
    assert alone.unit == "site" and alone.epsilon == SITES.epsilon() and not alone.remarks
    assert alone.members == ((first.name, "every site"),)
    (both,) = totals([first, second])
    assert both.runs == 2 and both.epsilon.value == pytest.approx(replace(SITES, steps=22).epsilon().value)
    assert both.epsilon == together([first, second], "site") == anywhere([first, second], "site")
    assert f"the sites of {second.name} are elsewhere" in both.remarks[1]
    (chosen,) = totals([first, second], chosen=PrivateSelection(10))
    assert chosen.epsilon.value > both.epsilon.value
    (several,) = totals([first, second], size=3)
    assert several.epsilon.value > both.epsilon.value


def test_whoever_was_in_a_simulation_may_have_been_at_a_site_elsewhere(tmp_path):
    """No total is of the simulation alone, as if the other run had not had these records."""
    away, weak = deployed(tmp_path / "1"), replace(RECORDS, noise=GaussianNoise(1.5))
    here = read(run_folder(tmp_path / "2", {"a": "x", "b": "y", "c": "z"}, {"a": RECORDS, "b": RECORDS, "c": weak}))
    of_records = {one.members: one for one in totals([away, here]) if one.unit == "record"}
    two, one = ((here.name, "a"), (away.name, "every site"), (here.name, "b")), ((here.name, "c"),)
    assert list(of_records) == [two, (*one, (away.name, "every site"))]
    both = [ReleasedSteps(RECORDS, 50, by_record=True), ReleasedSteps(SITES, 11, by_record=True)]
    assert of_records[two].epsilon == composed(both, 3e-6, ZERO_OUT) and of_records[two].runs == 2
    whole = [one for one in totals([away, here]) if one.unit == "site"]
    assert all("protects single records, and no whole site" in one.refused for one in whole)
    plain = read(run_folder(tmp_path / "3", {"a": "x"}))
    assert all("promised no privacy" in one.refused for one in totals([away, plain]))


def test_the_same_records_at_two_sites_here_are_at_one_elsewhere(tmp_path):
    here, away = read(run_folder(tmp_path / "1", {"a": "x", "b": "x"}, whole=SITES)), deployed(tmp_path / "2")
    (one,) = totals([here, away])
    assert one.epsilon == composed([ReleasedSteps(SITES, 11, copies=2), ReleasedSteps(SITES, 11)], 3e-6, ZERO_OUT)


def test_a_run_without_privacy_on_the_same_records_leaves_no_bound(tmp_path):
    private = run_folder(tmp_path / "1", {"a": "x", "b": "y"}, dict.fromkeys("ab", RECORDS))
    plain = run_folder(tmp_path / "2", {"a": "x"})
    runs = [read(private), read(plain)]
    found = {one.members[0][1]: one for one in totals(runs)}
    assert found["a"].epsilon is None and "2 used these records, and promised no privacy" in found["a"].refused
    assert found["b"].epsilon.value == RECORDS.epsilon().value
    with pytest.raises(PrivacyError, match="no ε of all runs together"):
        together(runs, "record")
    with pytest.raises(PrivacyError, match="no privacy was promised"):
        totals([read(plain)])


def test_a_run_that_protects_by_itself_has_no_ledger_and_promised_something(tmp_path):
    private, local = run_folder(tmp_path / "1", {"a": "x"}, whole=SITES), run_folder(tmp_path / "2", {"a": "x"})
    (local / CONFIG).write_text("[method]\nepsilon = 7.58\n")
    (one,) = totals([read(private), read(local)])
    assert one.epsilon is None and "2 used these records, and kept no ledger: DP-Prompt needs none" in one.refused
    with pytest.raises(PrivacyError, match=r"no ledger was kept: DP-Prompt needs none \(add up the ε"):
        totals([read(local)])


def test_a_run_without_privacy_is_told_whatever_its_partition(tmp_path):
    """By their digests its records are others; they may still be the same ones, shared out in another way."""
    private = read(run_folder(tmp_path / "1", {"a": "x", "b": "y"}, dict.fromkeys("ab", RECORDS)))
    plain = read(run_folder(tmp_path / "2", {"a": "v", "b": "w"}))
    found = {one.members[0][0]: one for one in totals([private, plain])}
    assert found[plain.name].epsilon is None and "promised no privacy" in found[plain.name].refused
    assert found[private.name].epsilon is not None and anywhere([private, plain], "record") is None
    with pytest.raises(PrivacyError, match="no ε of all runs together"):
        together([private, plain], "record")


def test_a_site_that_has_other_records_in_every_run_has_spent_all_of_them(tmp_path):
    runs = [read(run_folder(tmp_path / n, {"a": n, "b": "x" + n}, whole=SITES)) for n in "123"]
    assert all(one.runs == 1 for one in totals(runs))
    three = replace(SITES, steps=33).epsilon().value
    assert together(runs, "site").value == pytest.approx(three)
    assert anywhere(runs, "record").value > three  # a site replaced


def test_a_delta_of_nothing_is_refused(tmp_path):
    with pytest.raises(PrivacyError, match="δ = 0"):
        totals([read(run_folder(tmp_path / "1", {"a": "x"}, {"a": RECORDS}))], 0.0)


def test_a_run_that_departed_from_its_plan_leaves_no_bound(tmp_path):
    folder = run_folder(tmp_path / "1", {"a": "x"})
    made = ledger_of(RECORDS, folder / "private" / "a" / "privacy.journal")
    made.record(2, [followed(RECORDS, noise_std=0.5)])
    (one,) = totals([read(folder)])
    assert one.epsilon is None and "did not follow its plan" in one.refused


def test_repeated_rounds_count_and_a_run_that_was_abandoned_counts(tmp_path):
    folder = run_folder(tmp_path / "1", {"a": "x"}, {"a": RECORDS})
    gone = run_folder(tmp_path / "2", {"a": None})
    halves = replace(RECORDS, steps=100)
    made = ledger_of(halves, gone / "private" / "a" / "privacy.journal", rounds=2)
    made.record(2, [followed(RECORDS, 50)])
    (one,) = totals([read(folder), read(gone)])
    assert one.epsilon.value == pytest.approx(replace(RECORDS, steps=200).epsilon().value, rel=1e-3)
    assert "stopped before it noted the records of site a" in one.remarks[0]


def test_a_ledger_that_was_edited_or_lost_is_told_and_no_epsilon_is_printed(tmp_path):
    folder = run_folder(tmp_path / "1", {"a": "x", "b": "y"}, dict.fromkeys("ab", RECORDS))
    path = folder / "private" / "a" / "privacy.journal"
    path.write_text(path.read_text().replace('"steps": 50', '"steps": 5'))
    found = {one.members[0][1]: one for one in totals([read(folder)])}
    assert found["a"].epsilon is None and "was edited" in found["a"].refused
    assert found["b"].epsilon is not None
    path.unlink()
    short = replace(RECORDS, steps=5)
    ledger_of(short, path)  # whole in itself, but not what the site's own journal tells of
    found = {one.members[0][1]: one for one in totals([read(folder)])}
    assert "not the one that was written" in found["a"].refused
    path.unlink()
    found = {one.members[0][1]: one for one in totals([read(folder)])}
    assert "has 0 lines, and had 2" in found["a"].refused


def test_reading_changes_nothing(tmp_path):
    folder = run_folder(tmp_path / "1", {"a": "x"}, {"a": RECORDS}, SITES)
    torn = folder / "private" / "a" / "privacy.journal"
    torn.write_bytes(torn.read_bytes() + b"half a line")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    read(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_what_is_no_run_or_has_no_ledgers_left(tmp_path):
    with pytest.raises(CheckpointError, match="not a run folder"):
        read(tmp_path)
    with pytest.raises(CheckpointError, match="nothing is left of what this run spent"):
        read(run_folder(tmp_path / "1", {}))


def test_replacing_is_never_the_weaker_promise(tmp_path):
    other = replace(RECORDS, adjacency="replace-one")
    runs = [read(run_folder(tmp_path / n, {"a": "x"}, {"a": plan})) for n, plan in (("1", RECORDS), ("2", other))]
    (one,) = totals(runs)
    assert one.epsilon.adjacency == "replace-one"
    assert one.epsilon == composed([ReleasedSteps(RECORDS, 50), ReleasedSteps(other, 50)], 1e-5, "replace-one")


def test_batches_of_fixed_size(tmp_path):
    fixed = replace(RECORDS, sampler=FixedSizeSampling(4, 100), clipping=ExampleClipping(1.5))
    found = composed([ReleasedSteps(fixed, 50), ReleasedSteps(RECORDS, 50)], 1e-5, ZERO_OUT)
    assert found.value < math.inf and found.value > max(fixed.epsilon().value, RECORDS.epsilon().value)


def test_a_ledger_in_memory():
    with pytest.raises(PrivacyError, match="not a privacy ledger"):
        PrivacyLedger.of(Journal())


def with_id(folder, id):
    (folder / ID).write_text(id)
    return folder


def test_what_was_noted_of_a_run_is_what_its_folder_says(tmp_path):
    every_kind = [
        read(with_id(run_folder(tmp_path / "1", {"a": "x", "b": None}, {"a": RECORDS}), "one")),
        read(run_folder(tmp_path / "2", {"a": "x"}, whole=SITES)),
        deployed(tmp_path / "3"),
        RunLedgers.unknown("gone", "it is gone"),
    ]
    folder = run_folder(tmp_path / "4", {"a": "x"}, {"a": RECORDS})
    note(folder, every_kind)
    size = (folder / CHOSEN_BY).stat().st_size
    note(folder, every_kind)
    assert (folder / CHOSEN_BY).stat().st_size == size  # of what is known nothing is written again
    assert [one.to_json() for one in noted(folder)] == [one.to_json() for one in every_kind]
    assert [one.to_json() for one in read(folder).chosen_by] == [one.to_json() for one in every_kind]
    assert totals(every_kind[:3]) == totals(noted(folder)[:3])


def test_what_runs_were_chosen_by_is_added_up_with_them_each_once(tmp_path):
    first = with_id(run_folder(tmp_path / "1", {"a": "x"}, {"a": RECORDS}), "first")
    second = with_id(run_folder(tmp_path / "2", {"a": "x"}, {"a": OTHER}), "second")
    note(second, [read(first)])
    both = composed([ReleasedSteps(RECORDS, 50), ReleasedSteps(OTHER, 20)], 1e-5, ZERO_OUT)
    runs = read(second), read(first)
    assert together(runs[:1], "record") == together(runs, "record") == together(every(runs), "record") == both
    assert anywhere(runs[:1], "record") == both
    linked = tmp_path / "3"
    linked.symlink_to(second)
    assert len(every([*runs, read(linked)])) == 2


def test_of_a_run_that_has_gone_on_its_later_state_counts(tmp_path):
    first = with_id(run_folder(tmp_path / "1", {"a": "x"}), "first")
    ledger = PrivacyLedger(RECORDS, Journal(first / "private" / "a" / "privacy.journal"))
    second = with_id(run_folder(tmp_path / "2", {"a": "x"}, {"a": OTHER}), "second")
    for steps in (20, 50):
        ledger.record(steps, [followed(RECORDS, steps - ledger.steps)])
        both = composed([ReleasedSteps(RECORDS, steps), ReleasedSteps(OTHER, 20)], 1e-5, ZERO_OUT)
        assert together([read(second), read(first)], "record") == both
        note(second, [read(first)])
        assert together([read(second)], "record") == both


def test_another_run_in_a_folder_of_the_same_name_counts_as_another(tmp_path):
    """Though both have planned and done the same."""
    folder = with_id(run_folder(tmp_path / "1", {"a": "x"}, whole=SITES), "before")
    second = with_id(run_folder(tmp_path / "2", {"a": "x"}, whole=SITES), "second")
    note(second, [read(folder)])
    with_id(folder, "after")
    (one,) = totals([read(second), read(folder)])
    assert one.epsilon.value == pytest.approx(replace(SITES, steps=33).epsilon().value) and one.runs == 3
    (folder / ID).unlink()  # as of an earlier version: it may be the one that was counted, or not
    assert together([read(second), read(folder)], "site") == one.epsilon


def test_of_two_ledgers_of_one_run_of_which_neither_goes_on_with_the_other_there_is_no_epsilon(tmp_path):
    runs = []
    for name, plan in (("1", RECORDS), ("2", OTHER)):
        runs.append(read(with_id(run_folder(tmp_path / name, {"a": "x"}, {"a": plan}), "same")))
    (one,) = totals(runs)
    assert one.epsilon is None and "neither goes on where the other ends" in one.refused
    with pytest.raises(PrivacyError, match="it is gone"):
        together([runs[0], RunLedgers.unknown("gone", "it is gone")], "record")
    with pytest.raises(PrivacyError, match="it is gone"):
        together([deployed(tmp_path / "3"), RunLedgers.unknown("gone", "it is gone")], "site")


def test_the_same_records_at_two_sites_count_twice_wherever_else_they_may_have_been(tmp_path):
    """Of another run it is not known whether it had the same ones: by their digests it had not."""
    fed = read(run_folder(tmp_path / "1", {"a": "x", "b": "x"}, whole=SITES))
    lora = read(run_folder(tmp_path / "2", {"a": "z"}, {"a": RECORDS}))
    expected = composed(
        [ReleasedSteps(SITES, 11, by_record=True, copies=2), ReleasedSteps(RECORDS, 50)], 1e-5, ZERO_OUT
    )
    assert together([fed, lora], "record", 1e-5).value == pytest.approx(expected.value)


def test_a_site_that_is_gone_with_all_that_told_of_it_is_missed(tmp_path):
    """What is published of the run still names it."""
    folder = run_folder(tmp_path / "1", {"a": "x"}, {"a": RECORDS})
    RunFolder(folder).write(SITES_FILE, [SiteReport(one, None, None, None, None) for one in "ab"])
    with pytest.raises(PrivacyError, match="what site b kept of this run is gone"):
        together([read(folder)], "record")


def test_a_run_that_has_asked_nobody_yet_has_spent_nothing(tmp_path):
    begun = with_id(run_folder(tmp_path / "1", {}), "begun")
    (begun / "config.toml").write_text("[run]\n[method]\n")
    other = with_id(run_folder(tmp_path / "2", {"a": "x"}, {"a": RECORDS}), "other")
    note(other, [read(begun)])
    assert together([read(other)], "record") == together([replace(read(other), chosen_by=())], "record")
    RunFolder(begun).write(SITES_FILE, [])
    with pytest.raises(CheckpointError, match="nothing is left of what this run spent"):
        read(begun)


def test_a_run_of_which_nothing_was_known_is_known_by_its_id_when_it_can_be_read(tmp_path):
    first = with_id(run_folder(tmp_path / "1", {"a": "x"}, {"a": RECORDS}), "first")
    second = with_id(run_folder(tmp_path / "2", {"a": "x"}, {"a": OTHER}), "second")
    config = first / "config.toml"
    config.write_text("run = 3")
    note(second, [found(first)])
    for runs in ([read(second)], [read(second), found(first)]):
        (one,) = totals(runs)  # and no line of what the second one spent alone
        assert one.epsilon is None and "[run] is no table" in one.refused
    config.write_text("")
    assert together([read(second), read(first)], "record").value == pytest.approx(
        composed([ReleasedSteps(RECORDS, 50), ReleasedSteps(OTHER, 20)], 1e-5, ZERO_OUT).value
    )


def test_spelling_a_folder_in_another_way_changes_nothing(tmp_path, monkeypatch):
    """Of an earlier version, without an id, the run that was noted may be another one than lies there."""
    first, second = (run_folder(tmp_path / name, {"a": "x"}, {"a": RECORDS}) for name in "12")
    note(second, [read(first)])
    told = together([read(second), read(first)], "record")
    monkeypatch.chdir(tmp_path)
    assert together([read(second), read(Path("1"))], "record") == told


def part_of(folder, *steps, plan=RECORDS):
    """A run whose one site has come so far, in a round for each part."""
    ledger = PrivacyLedger(plan, Journal(folder / "private" / "a" / "privacy.journal"))
    for some in steps:
        ledger.record(len(ledger.rounds) + 1, [followed(plan, some)])
    return folder


def test_what_could_not_be_read_later_may_be_more_than_was_known(tmp_path):
    """Unless the run had finished by then, or was read again."""
    first = part_of(with_id(run_folder(tmp_path / "1", {"a": "x"}), "first"), 5)
    early = read(first)
    part_of(first, 40)
    (first / "config.toml").write_text("run = 3")
    unknown = found(first)
    second = with_id(run_folder(tmp_path / "2", {"a": "x"}, {"a": OTHER}), "second")
    own = read(second)
    for runs in ([own, early, unknown], [unknown, own, early]):
        with pytest.raises(PrivacyError, match="is no table"):
            together(runs, "record")
    done = replace(early, finished=True)
    assert together([own, done, unknown], "record") == together([own, early], "record")
    for other in (replace(done, name="a copy"), replace(early, name="a copy")):
        with pytest.raises(PrivacyError, match="is no table"):
            together([own, other, unknown], "record")
    (first / "config.toml").write_text("")
    whole = composed([ReleasedSteps(RECORDS, 45), ReleasedSteps(OTHER, 20)], 1e-5, ZERO_OUT)
    note(second, [early, unknown, read(first)])
    assert together([read(second)], "record") == together([read(second), read(first)], "record") == whole


def test_a_third_state_does_not_undo_that_two_contradict_one_another(tmp_path):
    first = part_of(with_id(run_folder(tmp_path / "1", {"a": "x"}), "first"), 5)
    early, copy = read(first), tmp_path / "copy"
    shutil.copytree(first, copy)
    for branch in (first, copy):
        part_of(branch, 10)
    states = [early, read(first), read(copy)]
    for order in permutations(states):
        (one,) = totals(order)
        assert one.epsilon is None and "neither goes on where the other ends" in one.refused
    (one,) = totals([early, read(copy)])  # of a copy that was made with all that it had
    assert one.epsilon is not None


def test_two_rounds_that_did_the_same_are_two(tmp_path):
    ledgers = [
        part_of(run_folder(tmp_path / name, {"a": "x"}), 5) / "private" / "a" / "privacy.journal" for name in "12"
    ]
    assert len({ledger.read_text() for ledger in ledgers}) == 2


def test_a_folder_is_named_in_whatever_way(tmp_path):
    first, second = (run_folder(tmp_path / name, {"a": "x"}, {"a": RECORDS}) for name in "12")
    (second / "config.toml").write_text(f'[run]\nchosen_by = ["{first}/"]\n')
    note(second, [read(first)])
    assert [one.is_unknown for one in read(second).chosen_by] == [False]


def test_what_is_noted_later_was_read_later_whatever_the_clock_says(tmp_path):
    """And what a folder says now is the last of all."""
    first = part_of(with_id(run_folder(tmp_path / "1", {"a": "x"}), "first"), 5)
    second = with_id(run_folder(tmp_path / "2", {"a": "x"}, {"a": OTHER}), "second")
    note(second, [replace(read(first), at="2999-01-01T00:00:00.000000+00:00")])
    part_of(first, 40)
    (first / "config.toml").write_text("run = 3")
    note(second, [found(first)])
    with pytest.raises(PrivacyError, match="is no table"):
        together([read(second)], "record")
    (first / "config.toml").write_text("")
    third = with_id(run_folder(tmp_path / "3", {"a": "x"}, {"a": OTHER}), "third")
    note(third, [replace(read(first), at="2999-01-02T00:00:00.000000+00:00")])  # as by a clock that is ahead
    (first / "config.toml").write_text("run = 3")
    with pytest.raises(PrivacyError, match="is no table"):
        together([read(second), read(third), found(first)], "record")


def test_what_another_run_has_noted_keeps_its_time(tmp_path):
    """Known at first, then unreadable: in whichever order the journals that say so are copied, with others between."""
    first = part_of(with_id(run_folder(tmp_path / "1", {"a": "x"}), "first"), 5)
    early = read(first)
    part_of(first, 40)
    (first / "config.toml").write_text("run = 3")
    unknown, other = found(first), read(with_id(run_folder(tmp_path / "2", {"a": "x"}, {"a": OTHER}), "other"))
    for number, order in enumerate(permutations([early, unknown, other])):
        folder = with_id(run_folder(tmp_path / f"by {number}", {"a": "x"}, {"a": OTHER}), f"by {number}")
        note(folder, order)
        note(folder, order[::-1])
        assert len(noted(folder)) == 3
        with pytest.raises(PrivacyError, match="is no table"):
            together([read(folder)], "record")


def test_a_run_that_may_still_go_on_has_not_finished(tmp_path):
    """It was killed after its last words, before what its server knew was removed."""
    folder = run_folder(tmp_path / "1", {"a": "x"}, {"a": RECORDS})
    (folder / "summary.json").write_text("{}")
    assert read(folder).finished
    (folder / "checkpoint" / "round-0002").mkdir()
    assert not read(folder).finished


def test_a_record_that_may_be_at_any_site_counts_by_all_ledgers_of_its_run(tmp_path):
    """As a method of another package may keep them: of each site for its records, and one for whole sites."""
    run = read(run_folder(tmp_path / "1", {"a": "x"}, {"a": RECORDS}, whole=SITES))
    [record, _] = totals([run])
    assert record.unit == "record" and record.epsilon.value > RECORDS.epsilon().value
    assert anywhere([run], "record") == record.epsilon
