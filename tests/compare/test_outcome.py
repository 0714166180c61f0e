import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.compare.config import CompareConfig
from murmura.compare.outcome import (
    LEAKAGE,
    UPLOADS,
    ArmResult,
    Tried,
    attacked_alike,
    best,
    compared,
    frontier,
    guaranteed,
    with_search,
)
from murmura.compare.remarks import remarks
from murmura.privacy import odometer, run_ledgers
from murmura.privacy.standing import rounded
from murmura.report.guarantee import is_contradicted
from murmura.runs import read
from murmura.runs.names import ID, PRIVACY_LEDGER
from tests.compare.arms import labels, result
from tests.experiment import small
from tests.report.runs import metrics, write_run


def test_figures_are_by_seed_and_only_finite_ones_count(tmp_path):
    arm = result(tmp_path, "a", [2.0, math.inf, 3.0], [0.6, 0.7, 0.8])
    assert arm.values("heldout_loss") == {0: 2.0, 2: 3.0}
    assert (
        arm.lacking == [1] and arm.utility.mean == 2.5 and arm.utility.n == 2 and arm.leakage.mean == pytest.approx(0.7)
    )
    assert arm.bytes == 13_500_000 and arm.wall == 90


def test_how_far_leakage_may_go_is_over_records_and_over_seeds(tmp_path):
    still = result(tmp_path, "still", [1.0, 1.0], [0.6, 0.6])
    assert still.leakage_at_most == pytest.approx(0.65)  # seeds agree, records do not tell more
    spread = result(tmp_path, "spread", [1.0, 1.0], [0.5, 0.7])
    assert spread.leakage_at_most == 1.0


def test_arms_are_compared_with_those_of_their_kind(tmp_path):
    arms = [result(tmp_path, "a", [1.0, 2.0]), result(tmp_path, "b", [1.5, 2.5]), labels(tmp_path, "c")]
    found = compared(arms, "a", "heldout_loss")
    assert list(found) == ["b"] and found["b"].estimate.mean == 0.5


def test_an_audit_is_held_against_what_the_run_alone_guarantees(tmp_path):
    """Its arm's ε counts the search for a rate too, and is larger."""
    told = {"epsilon": 2.0, "delta": 1e-5}
    arm = replace(result(tmp_path, "arm", [1.0], epsilon=5.0, privacy=told), searched=[tmp_path / "search"])
    run = arm.runs[0]
    last = replace(run.last, values={**run.last.values, "audit_epsilon": 3.0})
    counted = with_search(arm, replace(run, rounds=(*run.rounds[:-1], last)))
    assert counted.last.privacy["epsilon"] == 5.0 and is_contradicted(counted)


POINTS = st.lists(st.tuples(st.integers(0, 4), st.integers(3, 9)), min_size=1, max_size=6)


@given(POINTS)
def test_the_frontier_is_what_nothing_beats(tmp_path_factory, points):
    folder = tmp_path_factory.mktemp("arms")
    arms = [result(folder, f"a{place}", [float(x)], [y / 10]) for place, (x, y) in enumerate(points)]
    found = frontier(arms, "instruction")
    points = [(x, max(y, 5)) for x, y in points]  # less than guessing is no merit
    for place, (x, y) in enumerate(points):
        beaten = any(u <= x and v <= y and (u, v) != (x, y) for u, v in points)
        assert (f"a{place}" in found) == (not beaten)


def test_an_arm_that_was_attacked_with_some_seeds_alone_is_on_no_frontier(tmp_path):
    some = result(tmp_path, "some", [1.0, 1.0], [0.6, math.nan])
    assert some.leakage.n == 1 and frontier([some], "instruction") == []


def test_a_rate_is_at_the_edge_of_those_that_were_tried_for_the_arm_itself(tmp_path):
    tried = (Tried(1e-3, 2.0), Tried(1e-2, 3.0))
    assert result(tmp_path, "own", [2.0], tried=tried).edge
    assert not replace(result(tmp_path, "control", [2.0], tried=tried), rate_of="own").edge


class TestBest:
    def arm(self, make):
        from murmura.compare.arms import Candidate

        return Candidate("a", make(), (1e-3, 1e-2), "my.toml")

    def test_the_least_loss_wins_and_the_first_of_equals(self, make):
        arm = self.arm(make)
        assert best(arm, [Tried(1e-3, 2.0), Tried(1e-2, 1.0)]) == 1e-2
        assert best(arm, [Tried(1e-3, 2.0), Tried(1e-2, 2.0)]) == 1e-3

    def test_a_rate_that_diverged_is_not_taken(self, make):
        arm = self.arm(make)
        assert best(arm, [Tried(1e-3, 2.0), Tried(1e-2, None)]) == 1e-3
        assert best(arm, [Tried(1e-3, None), Tried(1e-2, None)]) is None


class TestGuaranteed:
    """The ε of an arm holds for all that whoever takes it has seen."""

    MADE: ClassVar[dict[str, Path]] = {}  # once for all tests, which have copies

    @pytest.fixture
    def folders(self, tmp_path, tmp_path_factory, make, no_page):
        from murmura.experiment.run import run

        method = {"name": "dplora", "epsilon": 8.0, "rounds": 1}
        for name, seed in (("search-a", 10_000), ("search-b", 10_001), ("final", 0)):
            if name not in self.MADE:
                where = {"name": name, "folder": str(tmp_path_factory.mktemp(name) / name), "seed": seed}
                self.MADE[name] = run(make(method=method, run=where)).folder
        return {name: shutil.copytree(folder, tmp_path / name) for name, folder in self.MADE.items()}

    def test_the_search_counts(self, folders):
        searched, final = [folders["search-a"], folders["search-b"]], read(folders["final"])
        alone, _ = guaranteed([], [final])
        whole, why = guaranteed(searched, [final])
        own = final.last.privacy
        every = odometer.together([run_ledgers.read(one) for one in folders.values()], own["unit"], own["delta"])
        assert why == "" and alone == own["epsilon"] and whole == rounded(every.value, 8.0) >= every.value > alone

    def test_what_a_run_has_noted_counts_too_wherever_it_is_now(self, folders, tmp_path):
        """The file of a comparison may name it no more, it may be gone, and another run may lie there."""
        searched, final = [folders["search-a"]], read(folders["final"])
        whole, _ = guaranteed([folders["search-a"], folders["search-b"]], [final])
        run_ledgers.note(final.folder, [run_ledgers.read(folders["search-b"])])
        assert guaranteed(searched, [final]) == (whole, "")
        arm = replace(result(tmp_path, "arm", [1.0]), searched=searched, epsilon=whole)
        assert with_search(arm, final).beside == tuple(searched)
        assert guaranteed([*searched, folders["search-b"]], [final]) == (whole, "")
        moved = folders["search-b"].rename(tmp_path / "moved")
        assert guaranteed(searched, [final]) == guaranteed([*searched, moved], [final]) == (whole, "")
        another = run_ledgers.read(shutil.copytree(moved, folders["search-b"]))
        (folders["search-b"] / ID).write_text("another run")
        more, _ = guaranteed([*searched, folders["search-b"]], [final])
        four = [*map(run_ledgers.read, (*searched, moved, folders["search-b"])), replace(another, id="final")]
        assert more == rounded(odometer.together(four, "record", 1e-5).value, 8.0) >= whole

    def test_a_ledger_that_was_edited_leaves_none_though_the_run_still_tells_one(self, folders):
        final, [ledger, *_] = read(folders["final"]), sorted((folders["final"] / "private").glob(f"*/{PRIVACY_LEDGER}"))
        lines = ledger.read_text().splitlines(keepends=True)
        ledger.write_text("".join(lines[:-1]))
        assert final.last.privacy["epsilon"] > 0 and guaranteed([], [final])[0] is None

    def test_where_the_searchs_ledgers_are_gone_there_is_none(self, folders):
        shutil.rmtree(folders["search-a"] / "private")
        shutil.rmtree(folders["search-a"] / "checkpoint", ignore_errors=True)
        found, why = guaranteed([folders["search-a"]], [read(folders["final"])])
        assert found is None and "the search for a rate counts too" in why

    def test_one_run_without_a_promise_takes_it_from_the_arm(self, folders, tmp_path):
        plain = result(tmp_path, "plain", [1.0]).runs[0]
        assert guaranteed([], [read(folders["final"]), plain]) == (None, "")


@pytest.fixture
def make(tmp_path, llama_folder):
    small.write_data(tmp_path)
    return lambda **sections: small.experiment(tmp_path, llama_folder, **sections)


def test_the_key_of_leakage_is_in_the_catalogue():
    from murmura.measure.catalogue import figure

    assert figure(LEAKAGE).better == "lower"


def attacked(folder, arm, strongest, target="attack", **each):
    """An arm with a run that was attacked in several ways, each with an interval of ± 0.05."""
    ends = {name.replace("_", " "): [auc, auc - 0.05, auc + 0.05] for name, auc in each.items()}
    auc, low, high = ends[strongest]
    attacks = {target: {"attack": strongest, "members": 80, "others": 60, "each": ends}}
    values = {f"{target}_auc": auc, f"{target}_auc_low": low, f"{target}_auc_high": high}
    last = metrics(1, **values, attacks=attacks)
    run = read(write_run(folder / arm, arm, 0, [metrics(0), last]))
    return ArmResult(arm, "instruction", [0], {0: run}, 1e-3, (), 12, None, "")


def test_arms_are_compared_by_one_attack_that_finds_most_in_all_of_them_together(tmp_path):
    one = attacked(tmp_path, "one", "error zone", error_zone=0.8, loss_difference=0.7)
    other = attacked(tmp_path, "other", "loss difference", error_zone=0.82, loss_difference=0.71)
    assert compared([one, other], "one", LEAKAGE)["other"].estimate.mean == pytest.approx(-0.09)  # which was the choice
    one, other = attacked_alike([one, other])
    assert one.attacks == other.attacks == {"attack": "error zone"}
    assert compared([one, other], "one", LEAKAGE)["other"].estimate.mean == pytest.approx(0.02)
    assert other.leakage.mean == 0.82 and other.leakage_at_most == pytest.approx(0.87)


def test_the_control_is_never_the_attack(tmp_path):
    """Its AUC is that of records of another kind, too, which no arm can help."""
    one = attacked(tmp_path, "one", "error zone", error_zone=0.66, plain_loss=0.7)
    other = attacked(tmp_path, "other", "error zone", error_zone=0.5, plain_loss=0.7)
    one, other = attacked_alike([one, other])
    assert other.attacks == {"attack": "error zone"}
    assert compared([one, other], "one", LEAKAGE)["other"].estimate.mean == pytest.approx(-0.16)


def test_single_uploads_are_compared_by_one_attack_too(tmp_path):
    one = attacked(tmp_path, "one", "error zone", target="upload", error_zone=0.8, loss_difference=0.7)
    other = attacked(tmp_path, "other", "loss difference", target="upload", error_zone=0.82, loss_difference=0.71)
    one, other = attacked_alike([one, other])
    assert other.attacks == {"upload": "error zone"}
    assert [other.values(f"{UPLOADS}{end}")[0] for end in ("", "_low", "_high")] == pytest.approx([0.82, 0.77, 0.87])


def test_limits_are_held_against_the_strongest_attack_on_the_arm_itself_too(tmp_path):
    one = attacked(tmp_path, "one", "error zone", error_zone=0.9, loss_difference=0.7)
    other = attacked(tmp_path, "other", "loss difference", error_zone=0.52, loss_difference=0.6)
    _, other = attacked_alike([one, other])
    assert other.attacks == {"attack": "error zone"} and other.leakage.mean == 0.52 and other.most_leakage == 0.6


def test_how_sure_a_limit_is_kept_is_told_by_the_strongest_attack_too(tmp_path):
    one = attacked(tmp_path, "one", "error zone", error_zone=0.9, loss_difference=0.7)
    other = attacked(tmp_path, "other", "loss difference", error_zone=0.52, loss_difference=0.6)
    _, other = attacked_alike([one, other])
    assert other.leakage_at_most == pytest.approx(0.65) and other.widest(LEAKAGE)[1] == pytest.approx(0.57)


def test_without_an_attack_in_common_each_has_its_own_strongest(tmp_path):
    one = attacked(tmp_path, "one", "error zone", error_zone=0.8)
    other = attacked(tmp_path, "other", "loss difference", loss_difference=0.71)
    arms = attacked_alike([one, other])
    assert [arm.leakage.mean for arm in arms] == [0.8, 0.71]
    choice, *_ = remarks(arms, "instruction", config := CompareConfig(), [])
    assert choice.startswith("No attack is known to have been tried on all arms") and "differences" in choice
    unattacked = result(tmp_path, "unattacked", [2.1])
    assert not any("attack" in one for one in remarks([unattacked], "instruction", config, []))
