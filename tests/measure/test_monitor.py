"""What is measured after a round, with sites that answer as told."""

import json
from collections import Counter
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from murmura.data.records import Instruction
from murmura.errors import RunError
from murmura.federation.method import Method
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.traits import Traits
from murmura.federation.wire.messages import Failure, Reply
from murmura.measure import heldout, membership
from murmura.measure.attacks import ATTACKS
from murmura.measure.canaries import Canaries, Canary
from murmura.measure.config import EvaluationConfig
from murmura.measure.evaluation_set import EvaluationSet
from murmura.measure.membership import cuts, set_apart, tallies
from murmura.measure.monitor import TOO_FEW, UNLIKE, Monitor, _means, _spread
from murmura.runs.files import made
from murmura.runs.schema import Round
from murmura.streams import Stream
from murmura.tasks import INSTRUCTION, LABELLED
from tests.federation.world import Scripted, verbs_of

GLOBAL = {"w": torch.zeros(1)}
PUBLIC = {"heldout_loss": 2.0, "heldout_rouge": 0.2}
COMPLETED = {"nonmember_rouge": 0.2, "nonmember_exact": 0.0, "nonmember_prefix": 1.0}
PUBLIC_RECORDS = EvaluationSet(INSTRUCTION, [Instruction("public", "", f"record {k}") for k in range(40)])


class Nothing(Method):
    traits = Traits(label="Nothing")

    def lead(self, server, fleet):
        """Nothing to do."""


def fleet_of(answer, sites=("a", "b", "c")):
    return Fleet(Scripted(answer, list(sites)), verbs_of(Nothing(None)), Ledger(), Stream(0))


def upload(site, value):
    return site, {"w": torch.tensor([float(value)])}


@pytest.fixture
def calls(monkeypatch):
    """What the monitor itself evaluates. Its 40 records score 0, 2.5, 5 ... 97.5, and by an adapter whose number is
    1000 or more so much more."""
    made = []

    def measure(self, runtime, adapters, *, completes, poses):
        made.append(len(adapters))
        return [PUBLIC | (COMPLETED if completes else {}) for _ in adapters]

    def scores(reader, task, runtime, adapters, records):
        numbers = [np.array([2.5 * float(record.output.split()[-1]) for record in own]) for own in records]
        more = [adapter["w"].item() if adapter["w"].item() >= 1000 else 0.0 for adapter in adapters]
        return [dict.fromkeys(ATTACKS, own + much) for own, much in zip(numbers, more, strict=True)]

    monkeypatch.setattr(EvaluationSet, "measure", measure)
    monkeypatch.setattr(membership, "scores", scores)
    monkeypatch.setattr(heldout, "fall", lambda runtime, public, adapter: {"heldout_fall": adapter["w"].item()})
    return made


def monitor_of(**options):
    config = EvaluationConfig(**{"sample": 6, "attack_records": 40, **options})
    return Monitor(SimpleNamespace(max_length=96), PUBLIC_RECORDS, config, Stream(0))


def answers(site, ask):
    """What sites say: of an attack, that all their members score what their adapter's number is, or more than all
    others where that is 1000 or more."""
    payload = ask.payload(site)
    if ask.verb == "memorise":
        records = min(payload["records"], 1) if site == "c" else payload["records"]
        fields = (0.9 if site == "c" else 0.3, 0.0, 2.0, records)
        return Reply(site, dict(zip(("rouge", "exact", "prefix", "records"), fields, strict=True)))
    fields = {}
    for prefix, name in (("", "adapter"), ("upload_", "upload")):
        if payload.get(f"{prefix}records"):
            number = payload[name]["w"].item()
            score = number + 98 if number >= 1000 else number
            scores = dict.fromkeys(ATTACKS, np.full(payload[f"{prefix}records"], score))
            apart = set_apart(payload[f"{prefix}records"], INSTRUCTION, Stream(0))
            fields[f"{prefix}tally"] = tallies(scores, payload[f"{prefix}cuts"], apart)
    return Reply(site, fields)


def test_leakage_is_how_members_rank_among_others(calls):
    fleet = fleet_of(answers)
    figures = monitor_of().measure({"w": torch.tensor([69.5])}, fleet)
    assert figures["attack_auc"] == pytest.approx(0.7, abs=0.1)  # of the others that were not set apart
    assert 0 < figures["attack_auc_low"] < figures["attack_auc"] < figures["attack_auc_high"] < 1
    told = figures["attacks"]["attack"]
    assert told["members"] == pytest.approx(30, abs=3) and told["others"] == 30  # one in four was set apart
    assert figures["heldout_loss"] == 2.0
    assert not any(name.startswith(("upload", "member", "memor")) for name in figures)
    assert calls == [1]
    ask, sites = fleet.engine.asked[-1]
    assert sum(ask.payload(site)["records"] for site in sites) == 40  # attack_records, all sites together


def test_by_how_much_the_loss_fell_is_told_of_the_global_model_once_it_is_trained(calls):
    fleet, monitor = fleet_of(answers), monitor_of(attacks=False)
    assert "heldout_fall" not in monitor.measure({"w": torch.ones(1)}, fleet)
    fleet.round = 1
    assert monitor.measure({"w": torch.ones(1)}, fleet)["heldout_fall"] == 1.0
    monitor.evaluation_set = EvaluationSet(LABELLED, PUBLIC_RECORDS.heldout)
    assert "heldout_fall" not in monitor.measure(GLOBAL, fleet)  # its loss is no mean over tokens


def test_leakage_of_uploads(calls):
    monitor, fleet = monitor_of(uploads=2), fleet_of(answers)
    monitor.begin(1)
    monitor.observe_upload(*upload("a", 1000))
    monitor.observe_upload(*upload("b", 2000))
    figures = monitor.measure({"w": torch.tensor([-1.0])}, fleet)
    assert (figures["attack_auc"], figures["upload_auc"]) == (0.0, 1.0)
    ask, sites = fleet.engine.asked[-1]
    assert sites == ["a", "b", "c"]  # one ask for both attacks
    given = [ask.payload(site) for site in sites]
    assert [p.get("upload_records") for p in given] == [20, 20, None]
    # Each upload goes back to its own site and no other, with cut points of its own.
    assert [p["upload"]["w"].item() for p in given[:2]] == [1000, 2000]
    assert [float(p["upload_cuts"]["plain loss"].min()) for p in given[:2]] == [1000, 2000]


def test_a_site_whose_upload_alone_is_attacked_gets_no_global_adapter(calls):
    monitor, fleet = monitor_of(uploads=3, attack_records=1), fleet_of(answers)
    monitor.begin(1)
    for site in fleet.sites:
        monitor.observe_upload(*upload(site, 10))
    monitor.measure(GLOBAL, fleet)
    ask, sites = fleet.engine.asked[-1]
    assert sorted(ask.payload(site).get("records", 0) for site in sites) == [0, 0, 1]
    assert sum("adapter" in ask.payload(site) for site in sites) == 1


def test_canaries_are_attacked_nowhere_and_sites_are_told_how_many_they_have(calls):
    asked = {}

    def heard(site, ask):
        asked[site] = ask.payload(site)
        return answers(site, ask)

    record = Instruction("code", "", "1")
    canaries = Canaries([Canary("b", (record, record), 0)] * 3, "record", None)
    monitor = monitor_of(attack_records=200)
    told = Monitor(None, PUBLIC_RECORDS, monitor.config, Stream(0), canaries)
    told.sizes = {"a": 20, "b": 13, "c": 10}
    told.measure(GLOBAL, fleet_of(heard))  # of round 0, where exposure is not measured
    assert {site: given["records"] for site, given in asked.items()} == {"a": 20, "b": 10, "c": 10}
    assert {site: given.get("canaries") for site, given in asked.items()} == {"a": None, "b": 3, "c": None}


def test_personal_adapters_are_measured_where_they_are(calls):
    def answer(site, ask):
        if ask.verb == "assess":
            loss = {"a": 1.0, "b": 3.0}[site]
            rouge = 0.1 * loss
            return Reply(site, {"figures": {"heldout_loss": loss, "heldout_rouge": rouge, "nonmember_rouge": rouge}})
        if ask.verb == "memorise":
            return answers(site, ask)
        told = ask.payload(site)
        assert "adapter" not in told and len(told["nonmembers"]) == 6
        public = np.arange(6.0)
        points = cuts(dict.fromkeys(ATTACKS, public))
        tally = tallies(dict.fromkeys(ATTACKS, np.full(3, 2.5)), points, np.zeros(3, dtype=bool))
        others = tallies(dict.fromkeys(ATTACKS, public), points, np.zeros(6, dtype=bool))
        return Reply(site, {"tally": tally, "others": others})

    fleet = fleet_of(answer)
    fleet.round = 1
    figures = monitor_of(memorisation=True, attack_records=6).measure(GLOBAL, fleet, personal=["a", "b"], last=True)
    assert figures["heldout_loss"] == 2.0 and "heldout_fall" not in figures
    assert figures["attack_auc"] == 0.5 and figures["attacks"]["attack"]["members"] == 6
    assert figures["memorisation"] == pytest.approx(0.3 - 0.2)
    assert all(sites == ["a", "b"] for _, sites in fleet.engine.asked)
    assert calls == []


def test_what_cannot_be_averaged_is_left_out(calls):
    """Of what a site says of adapters of its own: another table, another figure, tallies of other cells."""
    points = cuts(dict.fromkeys(ATTACKS, np.arange(6.0)))
    counted = tallies(dict.fromkeys(ATTACKS, np.full(3, 2.5)), points, np.zeros(3, dtype=bool))
    others = tallies(dict.fromkeys(ATTACKS, np.arange(6.0)), points, np.zeros(6, dtype=bool))
    lies = {
        "assess": {"figures": 1.0},
        "attack": {"tally": {"plain loss": torch.zeros(2, 3)}, "others": others},
        "memorise": {"records": 1},
    }
    true = {
        "assess": {"figures": {"heldout_loss": 2.0, "heldout_rouge": 0.1, "nonmember_rouge": 0.2, "of": {"x": 1.0}}},
        "attack": {"tally": counted, "others": others},
        "memorise": {"rouge": 0.3, "exact": 0.0, "prefix": 2.0, "records": 1},
    }
    fleet = fleet_of(lambda site, ask: Reply(site, (lies if site == "b" else true)[ask.verb]))
    figures = monitor_of(memorisation=True, attack_records=6).measure(GLOBAL, fleet, personal=["a", "b"], last=True)
    assert (figures["heldout_loss"], figures["attack_auc"], figures["member_rouge"]) == (2.0, 0.5, 0.3)
    assert [one.split(":")[0] for one in fleet.events if "left out" in one] == [
        f"the answer of site b to '{verb}' is left out" for verb in ("assess", "attack", "memorise")
    ]


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ({"accuracy": 5.0, "accuracy_n": 10}, "'accuracy' is not from 0 to 1"),
        ({"choice_accuracy": -0.1}, "'choice_accuracy' is not from 0 to 1"),
        ({"preference_accuracy": 0.5, "preference_accuracy_n": 0}, "'preference_accuracy_n' is no number of them"),
    ],
)
def test_a_share_that_is_none_is_left_out(calls, lie, why):
    """An interval is told with the mean, which what is no share has none of."""
    own = {"accuracy": 0.5, "accuracy_n": 2, "choice_accuracy": 1.0, "preference_accuracy": 0.5}
    fleet = fleet_of(lambda site, ask: Reply(site, {"figures": own | (lie if site == "b" else {})}))
    figures = monitor_of(attacks=False).measure(GLOBAL, fleet, personal=["a", "b"])
    assert {name: figures[name] for name in own} == own
    assert any(f"site b to 'assess' is left out: {why}" in one for one in fleet.events)


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ({"accuracy": {"x": 1.0}}, "'accuracy' is no number"),
        ({"accuracy_low": "much"}, "'accuracy_low' is no number"),
        ({"confusion": {"x": 1.0}}, "'confusion' is no table of tables of numbers"),
        ({"confusion": {"x": {"y": {"z": 1}}}}, "'confusion' is no table of tables of numbers"),
        ({"answers": {"gsm8k": 3}}, "'answers' is no table of tables of numbers"),
        ({"calibration": {"x": 1.0}, "seconds": 3, "attacks": {"x": 1}, "lm_eval.\x1b[2J.acc": 5}, None),
        ({"confusion": {"\x1b[2J": {"\x1b[2J": 1}}, "calibration": None, "answers": None}, None),
    ],
)
@pytest.mark.parametrize("sites", ["b", "ab"])
def test_what_sites_say_leaves_a_row_that_can_be_read_and_printed(calls, lie, why, sites):
    """The row of a round is in a file that every later command reads, and its figures are printed."""
    own = {"accuracy": 0.5, "calibration": [(0.5, 0.5, 2)], "confusion": {"bad": {"good": 1}}, "answers": {}}
    fleet = fleet_of(lambda site, ask: Reply(site, {"figures": own | (lie if site == "b" else {})}), sites)
    figures = monitor_of(attacks=False).measure(GLOBAL, fleet, personal=list(sites))
    row = {name: value for name, value in figures.items() if name not in ("confusion", "answers")}
    tables = {name: figures[name] for name in ("confusion", "answers") if name in figures}
    read = made({"round": 1, "values": row, **tables}, Round, "metrics.jsonl")
    assert read.values.get("accuracy", 0.5) == 0.5 and not read.calibration
    assert "\x1b" not in f"{fleet.events}{json.dumps(figures, ensure_ascii=False)}"
    assert [one.rpartition("left out: ")[2] for one in fleet.events] == ([why] if why else [])


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ({"rouge": -9.0}, "'rouge' is not from 0 to 1"),
        ({"exact": 1.5}, "'exact' is not from 0 to 1"),
        ({"prefix": -1.0}, "'prefix' is not from 0 to 96"),
        ({"prefix": 1e300}, "'prefix' is not from 0 to 96"),
        ({"records": 10**9}, "it tells of more than 2 records"),
    ],
)
def test_figures_that_nobody_can_have_are_left_out(calls, lie, why):
    true = {"rouge": 0.3, "exact": 0.0, "prefix": 2.0, "records": 1}
    fleet = fleet_of(lambda site, ask: Reply(site, true | (lie if site == "b" else {})))
    figures = monitor_of(memorisation=True, attacks=False).measure(GLOBAL, fleet, last=True)
    assert figures["member_rouge"] == pytest.approx(0.3) and figures["member_prefix"] == 2.0
    assert fleet.events == [f"the answer of site b to 'memorise' is left out: {why}"]


def test_figures_of_which_sites_say_different_kinds_are_those_of_the_most(calls):
    said = iter([{"x": 1.0}, {"x": {"y": 1.0}}, {"x": 3.0}, {"x": "more"}])
    assert _means(list(said)) == {"x": 2.0}
    assert _means([{"x": 1.0}, {"x": 2.0, "audit_epsilon": 50.0}]) == {"x": 1.5}  # of which one alone has heard


def test_memorisation_is_measured_once_and_only_if_wanted(calls):
    fleet, monitor = fleet_of(answers), monitor_of(memorisation=True)
    assert "memorisation" not in monitor.measure(GLOBAL, fleet)
    figures = monitor.measure(GLOBAL, fleet, last=True)
    assert figures["member_rouge"] == pytest.approx((2 * 0.3 + 2 * 0.3 + 1 * 0.9) / 5)  # each record counts alike
    assert figures["memorisation"] == pytest.approx(figures["member_rouge"] - 0.2)
    assert figures["member_prefix"] == 2.0
    assert "memorisation" not in monitor_of().measure(GLOBAL, fleet, last=True)


def test_sites_that_are_gone_leave_figures_empty(calls):
    fleet = fleet_of(lambda site, ask: Failure(site, "gone"))
    figures = monitor_of(memorisation=True).measure(GLOBAL, fleet, last=True)
    assert figures["heldout_loss"] == 2.0
    assert figures["attack_auc"] is figures["memorisation"] is None
    assert fleet.events[0] == "site a did not answer 'attack': gone"
    assert monitor_of(attacks=False).measure(GLOBAL, fleet, personal=["a"]) == {}


def test_too_few_records_are_told_and_what_to_give(calls):
    """One non-member is set apart to choose the attack by, or is left to measure with."""
    told = []
    for seed in range(12):
        fleet, public = fleet_of(answers), EvaluationSet(INSTRUCTION, PUBLIC_RECORDS.heldout[:1])
        figures = Monitor(None, public, EvaluationConfig(), Stream(seed)).measure(GLOBAL, fleet)
        assert ("attack_auc" in figures) != (TOO_FEW in fleet.events)
        told += [event for event in fleet.events if event != UNLIKE]
    assert told and "data.nonmember_records" in TOO_FEW


def test_members_and_others_that_differ_before_training_are_told(calls):
    fleet, adapter = fleet_of(answers), {"w": torch.tensor([99.0])}
    fleet.round, monitor = 0, monitor_of()
    monitor.measure(adapter, fleet)
    assert fleet.events == [UNLIKE]
    fleet.begin(1)
    monitor.measure(adapter, fleet)
    assert fleet.events == []  # afterwards it is what was looked for


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_the_run(monkeypatch, loss):
    monkeypatch.setattr(EvaluationSet, "measure", lambda *_, **options: [{"heldout_loss": loss}])
    fleet = fleet_of(answers)
    fleet.round = 5
    with pytest.raises(RunError, match="held-out loss is not a finite number") as error:
        monitor_of().measure(GLOBAL, fleet)
    assert error.value.where == "round 5"
    assert fleet.engine.asked == []


def kept(monitor):
    return {site: state["w"].item() for site, state in monitor._uploads.items()}


def test_uploads_are_a_fair_sample_in_whatever_order_they_come():
    counts, monitor = Counter(), monitor_of(uploads=3)
    for round in range(400):
        forth, back = {}, {}
        for result, order in (forth, range(10)), (back, reversed(range(10))):
            monitor.begin(round)
            for k in order:
                monitor.observe_upload(*upload(f"site-{k}", k))
            result.update(kept(monitor))
        assert forth == back
        assert len(forth) == 3
        counts.update(forth.keys())
    assert len(counts) == 10
    assert all(80 < count < 160 for count in counts.values())  # 120 expected


def test_uploads_are_kept_for_their_round_only():
    monitor = monitor_of(uploads=2)
    monitor.observe_upload(*upload("b", 1))
    assert kept(monitor) == {"b": 1}
    monitor.begin(2)
    assert kept(monitor) == {}
    for options in {"uploads": 0}, {"attacks": False}:
        silent = monitor_of(**options)
        silent.observe_upload(*upload("a", 1))
        assert kept(silent) == {}


def test_when_a_round_is_measured():
    assert [round for round in range(8) if monitor_of(every=3).due(round, 7)] == [0, 3, 6, 7]
    assert all(monitor_of().due(round, 7) for round in range(8))


def test_members_are_spread_over_sites():
    sites = {f"site-{k}": 7 for k in range(10)}
    assert set(_spread(sites, 30, Random(0)).values()) == {3}
    some = _spread(sites, 34, Random(0))
    assert sum(some.values()) == 34
    assert set(some.values()) == {3, 4}
    few = _spread(sites, 4, Random(0))
    assert list(few.values()) == [1] * 4
    assert list(few) == [site for site in sites if site in few]
    assert any(list(_spread(sites, 4, Random(seed))) != list(few) for seed in range(5))


def test_members_are_spread_in_proportion_to_the_sites_records():
    sizes = {"large": 900, "small": 30, "middle": 70}
    draws = [_spread(sizes, 10, Random(seed)) for seed in range(4000)]
    assert all(sum(draw.values()) == 10 and draw["large"] == 9 for draw in draws)
    means = {site: sum(draw.get(site, 0) for draw in draws) / len(draws) for site in sizes}
    assert means == pytest.approx({"large": 9, "small": 0.3, "middle": 0.7}, abs=0.03)


def test_every_member_counts_alike_but_every_personal_adapter_does(calls):
    sizes = {"a": 10, "b": 30, "c": 20}
    monitor = Monitor(None, PUBLIC_RECORDS, EvaluationConfig(attack_records=6), Stream(0))
    monitor.sizes = sizes

    def asked(**options):
        fleet = fleet_of(lambda site, ask: Failure(site, "gone"))
        monitor.measure(GLOBAL, fleet, **options)
        ask, sites = fleet.engine.asked[-1]
        return {site: ask.payload(site)["records"] for site in sites}

    assert asked() == {"a": 1, "b": 3, "c": 2}
    assert asked(personal=["a", "b"]) == {"a": 3, "b": 3}
    monitor.config = EvaluationConfig(attack_records=5)
    assert asked(personal=["c", "a"]) == asked(personal=["a", "c"])  # in whatever order they joined


def test_figures_of_personal_adapters_are_means_and_so_are_counts_by_label(monkeypatch):
    told = {
        "a": {"accuracy": 0.5, "accuracy_n": 4, "calibration": [[0.5, 0.5, 4]], "confusion": {"x": {"x": 1, "y": 3}}},
        "b": {"accuracy": 1.0, "accuracy_n": 4, "calibration": [[0.9, 1.0, 4]], "confusion": {"x": {"x": 4, "y": 0}}},
    }
    monitor = Monitor(None, PUBLIC_RECORDS, EvaluationConfig(attacks=False), Stream(0))
    fleet = fleet_of(lambda site, ask: Reply(site, {"figures": told[site]}), sites=tuple(told))
    figures = monitor.measure(GLOBAL, fleet, personal=tuple(told))
    assert figures == {"accuracy": 0.75, "accuracy_n": 4.0, "confusion": {"x": {"x": 2.5, "y": 1.5}}}


def test_the_words_of_a_row_are_the_catalogues():
    row = {
        "round": 1,
        "accuracy": 0.94,
        "accuracy_n": 50,
        "heldout_loss": None,
        "attack_auc": 0.75,
        "attack_auc_low": 0.625,
        "attack_auc_high": 0.875,
        "attacks": {"attack": {"attack": "error zone", "members": 12, "others": 30}},
        "mine": 3,
        "wall": 4.4,
    }
    assert monitor_of().words(row) == (
        "accuracy 0.940 (0.838–0.979, n = 50), leakage (AUC) 0.750 (0.625–0.875, "
        "error zone, n = 12 + 30: says little), 4 s"
    )
