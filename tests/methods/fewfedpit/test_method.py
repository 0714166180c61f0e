import json
from collections import Counter
from dataclasses import asdict, astuple
from types import SimpleNamespace

import pytest
import torch

from murmura.aggregation.config import AggregationConfig
from murmura.data.records import Instruction
from murmura.drafting.draft import Drafts
from murmura.errors import ConfigError, DataError
from murmura.federation.forecast import SitePart
from murmura.federation.site.cohort import Cohort
from murmura.federation.site.site import Site
from murmura.federation.wire.messages import Ask, Reply
from murmura.generation.writer import Completion
from murmura.methods import build, parse_config
from murmura.methods.fedit.config import FedITConfig
from murmura.methods.fedit.method import FedIT
from murmura.methods.fewfedpit.config import FewFedPITConfig
from murmura.methods.fewfedpit.method import FewFedPIT
from murmura.methods.fewfedpit.rejections import WHY
from murmura.methods.fewfedpit.select import Opinion
from murmura.methods.fewfedpit.substitute import Substitute
from murmura.methods.fewfedpit.synthetic import _shown
from murmura.streams import Stream
from murmura.training.adapter import mix, split_residual
from murmura.training.config import LocalTraining
from tests.aggregation.means import weighted_mean
from tests.federation.engines.wired import Wired
from tests.federation.world import stores
from tests.methods.fewfedpit.conftest import written
from tests.methods.harness import furthest, perform, records, same, sites


@pytest.fixture
def go(bench, tmp_path):
    """Run FewFedPIT with some options; a small M keeps the tests fast, and judging by PPL keeps every draft."""

    def run(members=None, engine=None, **options):
        config = {"rounds": 1, "keep": 4, "drafts_per_kept": 1, "scorer": "ppl", "instruction_attempts": 1} | options
        used = {"engine": engine} if engine else {}
        return perform(made(**config), bench, tmp_path / "run", members=members, **used)

    return run


def made(**options):
    return build(parse_config({"name": "fewfedpit", **options}, "my.toml"))


def fedavg(bench, folder, members=None, sample=0, **options):
    return perform(FedIT(FedITConfig(**options)), bench, folder, members=members, sample=sample)[0]


# ---- the algorithm ------------------------------------------------------------------------------------------------


def test_beta_one_is_fedavg_bit_for_bit(bench, tmp_path, drafted):
    """Several rounds, sites sampled, and the defaults of everything else."""
    method = FewFedPIT(FewFedPITConfig(beta=1, rounds=3, sites_per_round=2))
    mixed, _ = perform(method, bench, tmp_path / "mixed", sample=1)
    plain = fedavg(bench, tmp_path / "plain", sample=1, rounds=3, sites_per_round=2)
    assert same(mixed.adapter, plain.adapter)
    for figure in ("train_loss", "heldout_loss", "heldout_rouge"):
        assert [row[figure] for row in mixed.rows] == [row[figure] for row in plain.rows]
    assert drafted == []


@pytest.mark.parametrize("judge", ["private", "global"])
def test_beta_zero_does_not_depend_on_local_training_when_the_synthetic_records_are_given(go, drafted, judge):
    others = [Site(s.name, records("skin", 9)[: s.size][::-1]) for s in sites()]
    first, _ = go(beta=0, judge=judge, rounds=2)
    second, _ = go(beta=0, judge=judge, rounds=2, members=others)
    assert same(first.adapter, second.adapter)
    half, _ = go(beta=0.5, judge=judge)
    other_half, _ = go(beta=0.5, judge=judge, members=others)
    assert furthest(half.adapter, other_half.adapter) > 1e-5


def test_a_round_is_the_beta_mix_of_the_branches(go, bench, drafted):
    ends = [go(beta=beta)[0].adapter for beta in (0, 0.3, 1)]
    assert furthest(ends[1], mix(0.3, ends[2], ends[0])) < 1e-6
    assert furthest(ends[0], ends[2]) > 1e-4


def test_the_synthetic_branch_starts_from_the_global_adapter_and_sees_synthetic_records_alone(go, bench, drafted):
    """Upload by upload against training done by hand."""
    server, _ = go(beta=0)
    start = bench.bank.initial(Stream(0) / "adapter")
    cohort = Cohort(sites(), bench, Ask("improve", 1), Stream(0))
    shards = [bench.tokenise_fitting(written(site.name, 4)) for site in cohort.sites]
    trained = cohort.train(shards, [start] * 3, server.lr(1), "synthetic")
    by_hand = weighted_mean((t.state, site.size) for t, site in zip(trained, cohort.sites, strict=True))
    assert same(server.adapter, by_hand)


def test_the_global_adapter_writes_and_the_private_branch_judges(go, bench, drafted, monkeypatch):
    judges = []
    score = bench.score

    def spy(adapters, items, **options):
        if options["description"] == "judge drafts":
            judges.append(adapters)
        return score(adapters, items, **options)

    monkeypatch.setattr(bench, "score", spy)
    start = bench.bank.initial(Stream(0) / "adapter")
    go()
    assert all(same(order.adapter, start) for order in drafted)
    cohort = Cohort(sites(), bench, Ask("improve", 1), Stream(0))
    private = cohort.train(cohort.own(), [start] * 3, 5e-3, "private")
    assert all(same(judge, private[i // 4].state) for i, judge in enumerate(judges[0]))
    go(judge="global")
    assert all(same(judge, start) for judge in judges[1])


def test_judges_have_what_exact_aggregation_left_over(bench, tmp_path, drafted, monkeypatch):
    """As the writers have: else they would be another model than the one that is trained."""
    seen, score = [], bench.score

    def spy(adapters, items, **options):
        if options["description"] == "judge drafts":
            seen.append({bool(split_residual(one)[1]) for one in adapters})
        return score(adapters, items, **options)

    monkeypatch.setattr(bench, "score", spy)
    options = {"name": "fewfedpit", "rounds": 2, "keep": 4, "drafts_per_kept": 1, "scorer": "ppl"}
    perform(build(parse_config(options, "my.toml"), AggregationConfig(rule="flora")), bench, tmp_path / "run")
    assert seen == [{False}, {True}]
    assert [bool(split_residual(order.adapter)[1]) for order in drafted] == [False] * 3 + [True] * 3


def test_random_choice_asks_no_judge(go, bench, drafted, monkeypatch):
    trained = []
    train = Cohort.train
    monkeypatch.setattr(
        Cohort, "train", lambda self, shards, *a, **k: trained.append(shards) or train(self, shards, *a, **k)
    )
    go(scorer="random", beta=0)
    assert [[len(shard) for shard in shards] for shards in trained] == [[0, 0, 0], [4, 4, 4]]


def test_untouched_mixes_with_the_global_adapter_and_writes_nothing(go, bench, tmp_path, monkeypatch):
    monkeypatch.setattr(f"{FewFedPIT.__module__}.generated", lambda *args: pytest.fail("something was written"))
    server, fleet = perform(made(beta=0.25, untouched=True, rounds=1), bench, tmp_path / "untouched")
    start = bench.bank.initial(Stream(0) / "adapter")
    private, _ = go(beta=1)
    assert furthest(server.adapter, mix(0.25, private.adapter, start)) < 1e-7 < furthest(server.adapter, start)
    row = next(row for row in fleet.ledger.table() if row["field"] == "adapter")
    assert row["note"].startswith("mixed with the unchanged global adapter, β = 0.25")


# ---- where generation gives little --------------------------------------------------------------------------------


def test_a_model_that_writes_rubbish_leaves_the_global_adapter_in_the_synthetic_branch(go, bench):
    """The tiny model really writes; nothing survives the filters."""
    server, _ = go(beta=0.25, keep=2, instruction_tokens=6, example_tokens=6)
    counts = server.rows[-1]["counts"]
    assert counts["sites.without_synthetic"] == 3
    assert sum(n for name, n in counts.items() if name.startswith("drafts.")) >= 2 * 3
    start = bench.bank.initial(Stream(0) / "adapter")
    private, _ = go(beta=1)
    assert furthest(server.adapter, mix(0.25, private.adapter, start)) < 1e-7


@pytest.mark.parametrize(
    ("options", "then"),
    [
        ({"beta": 0}, "with β = 0 the global adapter came back from them unchanged"),
        ({}, "the unchanged global adapter stood in for their synthetic branch"),
        ({"name": "fedmit"}, "they trained on their own records alone"),
        ({"name": "locit-sg"}, "they trained on their own records alone"),
    ],
)
def test_sites_left_without_synthetic_records_are_an_event_with_the_reason_and_what_to_try(
    go, bench, monkeypatch, capsys, options, then
):
    def say(adapters, prompts, limits, **kwargs):
        return [Completion("what now", [], True) for _ in prompts]

    monkeypatch.setattr(bench, "write", say)
    server, _ = go(keep=2, **options)
    told = (
        f"3 of 3 sites had no synthetic record to train on (kidney, heart, skin); {then}. Most often, a new "
        "instruction had fewer than 4 words (6 of 6): choose a stronger model (model.name)"
    )
    assert [row["events"] for row in server.rows] == [[], [told]]
    assert f"round 1: {told}\n" in capsys.readouterr().err


def test_sites_with_few_records_are_counted_each_round_and_their_owners_alone_told_once(
    go, drafted, capsys, monkeypatch
):
    notes = []
    monkeypatch.setattr(Site, "tell", lambda site, what: notes.append((site.name, what)))
    server, _ = go(rounds=2)
    assert [row["counts"].get("sites.few_records") for row in server.rows] == [None, 2, 2]
    assert [row["events"] for row in server.rows] == [[], [], []]  # all have synthetic records
    assert [site for site, _ in notes] == ["kidney", "heart"]
    assert notes[1][1].startswith("Round 1: this site has 3 records, fewer than the 8 to be shown")
    assert "fewer than" not in capsys.readouterr().err


# ---- what is told -------------------------------------------------------------------------------------------------


def test_counts_of_all_sites_are_added_up(go, drafted):
    server, _ = go(drafts_per_kept=2)
    assert server.rows[-1]["counts"] == {
        "drafts.similar": 6,
        "drafts.kept": 12,
        "drafts.outranked": 12,
        "sites.few_records": 2,
    }


def test_the_disclosure_table_says_that_mixing_is_not_differential_privacy(go, drafted):
    _, fleet = go(beta=0.5)
    rows = {row["field"]: row for row in fleet.ledger.table() if row["verb"] == "improve"}
    assert rows.keys() == {"adapter", "examples", "loss", "counts"}
    assert rows["adapter"]["note"] == ("mixed with the synthetic branch, β = 0.5; mixing is not differential privacy")
    assert rows["adapter"]["protection"] is None
    for sent in ("drafts", "prompts", "too few records", "without synthetic"):
        assert sent in rows["counts"]["what"]


@pytest.mark.parametrize(
    ("options", "label"),
    [
        ({}, "FewFedPIT β=0.5"),
        ({"beta": 0}, "FewFedPIT β=0"),
        ({"untouched": True}, "FewFedPIT β=0.5, untouched"),
        ({"scorer": "ifd", "judge": "global"}, "FewFedPIT β=0.5, IFD, global judge"),
        ({"substitute": "data/alpaca.jsonl", "substitute_label": "OOD"}, "FewFedPIT β=0.5 +OOD"),
        ({"substitute": "data/alpaca.jsonl"}, "FewFedPIT β=0.5 +alpaca"),
        ({"name": "fedmit"}, "FedMIT"),
        ({"name": "locit-sg"}, "LocIT+SG"),
    ],
)
def test_labels(options, label):
    assert made(**options).traits.label == label


@pytest.mark.parametrize(
    ("options", "shards"),
    [
        ({}, [10, 4]),
        ({"beta": 1}, [10]),
        ({"beta": 0, "judge": "global"}, [4]),
        ({"accumulate": True}, [10, 12]),
        ({"name": "fedmit"}, [10, 14]),
        ({"name": "locit-sg", "substitute": "x.jsonl"}, [14]),
    ],
)
def test_the_plan_of_a_third_round(options, shards):
    method = made(keep=4, **options)
    one_by_one = LocalTraining(batch_size=1)
    found = method.forecast(SitePart([None] * 10, 3, False, one_by_one, adapter=9, down=8, up=7))
    assert found.steps == one_by_one.epochs * sum(shards)
    assert (found.tokens > 0) == method.config.generates
    assert (found.down, found.up) == ((0, 0) if method.traits.personal else (8, 7))


# ---- variants -----------------------------------------------------------------------------------------------------


def test_fedmit_is_fedavg_on_private_and_synthetic_records_together(go, bench, tmp_path, drafted):
    """In one batch, so that the order of records does not matter; sites of one size, so that weights are equal."""
    bench.training = bench.training.model_copy(update={"batch_size": 64})
    members = [Site(topic, records(topic, 5)) for topic in ("kidney", "heart")]
    joint = [Site(s.name, s.records + written(s.name, 4)) for s in members]
    mit, fleet = go(name="fedmit", members=members)
    plain = fedavg(bench, tmp_path / "plain", joint, rounds=1)
    assert furthest(mit.adapter, plain.adapter) < 1e-5
    notes = {row["verb"]: row["note"] for row in fleet.ledger.table() if row["field"] == "adapter"}
    assert notes["improve_together"] == "trained on private and synthetic records together"


def test_locit_sg_keeps_adapters_at_the_sites_and_writes_with_them(go, bench, drafted):
    server, fleet = go(name="locit-sg", rounds=2)
    assert same(server.adapter, bench.bank.initial(Stream(0) / "adapter"))
    kept = stores(fleet)
    assert furthest(kept["kidney"]["adapter"], kept["heart"]["adapter"]) > 1e-5
    released = {row["field"] for row in fleet.ledger.table() if row["verb"] == "improve_alone"}
    assert released == {"loss", "counts"}
    first, second = drafted[:3], drafted[3:]
    assert all(same(order.adapter, server.adapter) for order in first)
    assert not any(same(order.adapter, server.adapter) for order in second)
    wire, behind = go(name="locit-sg", rounds=2, engine=Wired)
    assert furthest(server.adapter, wire.adapter) < 1e-5
    assert all(furthest(kept[name]["adapter"], store["adapter"]) < 1e-5 for name, store in stores(behind).items())
    assert [row["counts"] for row in server.rows] == [row["counts"] for row in wire.rows]


def test_counts_are_a_table_of_what_there_is_to_count():
    """Names that a site makes up would stand in the report."""
    server, refused = SimpleNamespace(adapter={"w": torch.zeros(2)}, round=1, lr=lambda _: 0.1), []
    server.ask_personal = lambda *_, **asked: refused.append(asked["refused"]) or ()
    alone, together = made(name="locit-sg"), made(name="fedmit")
    alone.average(server, SimpleNamespace(round=1), [], "improve_alone", {})
    state = {"adapter": server.adapter, "examples": 1}
    for unfit, fields in ((refused[0], {}), (together._unfit(server, "improve_together"), state)):
        assert unfit(Reply("a", fields | {"loss": None, "counts": {"drafts.kept": 2}})) is None
        for told in (None, "x", [1], {"drafts.kept": None}, {"drafts.kept": 2, "site heart lies": 1}):
            assert "'counts' is not" in unfit(Reply("a", fields | {"loss": 1.0, "counts": told}))
        assert "'counts' is not" in unfit(Reply("a", fields | {"loss": 1.0}))
        assert "'loss' is not" in unfit(Reply("a", fields | {"loss": "x", "counts": {}}))


def test_accumulated_records_stay_at_the_site_and_are_trained_on_again(go, drafted, monkeypatch):
    trained = []
    train = Cohort.train

    def spy(self, shards, starts, lr, purpose, **options):
        trained.append((purpose, [len(shard) for shard in shards]))
        return train(self, shards, starts, lr, purpose, **options)

    monkeypatch.setattr(Cohort, "train", spy)
    _, fleet = go(accumulate=True, rounds=2)
    kept = stores(fleet)["heart"]["synthetic"]
    assert kept == [["write note 0 about the heart", "", "a new heart note 0 says rest and drink"], *kept[1:]]
    assert len(kept) == 4  # the same drafts came twice; they count once
    assert json.loads(json.dumps(kept)) == kept
    assert drafted[0].known == [] and len(drafted[3].known) == 4
    assert [sizes for purpose, sizes in trained if purpose == "synthetic"] == [[4, 4, 4], [4, 4, 4]]


# ---- substitutes --------------------------------------------------------------------------------------------------


def public(folder, items):
    path = folder / "public.jsonl"
    path.write_text("".join(json.dumps(asdict(item)) + "\n" for item in items))
    return str(path)


def test_a_substitute_takes_the_place_of_the_synthetic_records(bench, tmp_path, drafted, monkeypatch):
    shown = {}
    train = Cohort.train

    def spy(self, shards, starts, lr, purpose, **options):
        shown[purpose] = shards
        return train(self, shards, starts, lr, purpose, **options)

    monkeypatch.setattr(Cohort, "train", spy)
    monkeypatch.setattr(bench, "write", lambda *a, **k: pytest.fail("something was generated"))
    items = [*records("skin", 12), Instruction("too long", "", "word " * 400)]
    config = FewFedPITConfig(substitute=public(tmp_path, items), keep=4)
    cohort = Cohort(sites(), bench, Ask("improve", 1), Stream(0))
    each = Substitute.load(config, bench, []).draw([site.name for site in cohort.sites], Stream(0) / "round" / 1)
    shared = {"adapter": bench.bank.initial(Stream(0)), "lr": 1e-3}
    replies = FewFedPIT(config).improve(cohort, Ask("improve", 1, shared, each))
    allowed = {tuple(bench.reading.tokenise([item])[0].ids) for item in items[:12]}
    drawn = [{tuple(item.ids) for item in shard} for shard in shown["synthetic"]]
    assert all(len(own) == 4 and own <= allowed for own in drawn)
    assert drawn[0] != drawn[1]
    assert [len(shard) for shard in shown["private"]] == [6, 3, 9]
    assert drafted == [] and replies[0]["counts"] == {}


def test_a_run_with_a_substitute(bench, tmp_path):
    config = FewFedPITConfig(substitute=public(tmp_path, records("heart", 5)), keep=4, rounds=1, beta=0)
    server, _ = perform(FewFedPIT(config), bench, tmp_path / "run")
    assert furthest(server.adapter, bench.bank.initial(Stream(0) / "adapter")) > 1e-4
    assert server.rows[-1]["counts"] == {}


def test_a_substitute_that_is_too_small_is_refused(bench, tmp_path):
    method = FewFedPIT(FewFedPITConfig(substitute=public(tmp_path, records("skin", 3)), keep=4))
    with pytest.raises(ConfigError, match=r"has 3 records.*Lower method\.keep"):
        perform(method, bench, tmp_path / "run")


@pytest.mark.parametrize("fitting", [0, 3])
def test_a_substitute_of_which_too_few_fit_is_refused(bench, tmp_path, fitting):
    items = [*records("skin", fitting), *(Instruction(f"a letter {i}", "", "word " * 400) for i in range(4))]
    method = FewFedPIT(FewFedPITConfig(substitute=public(tmp_path, items), keep=4))
    told = rf"has {len(items)} records, of which {fitting} fit 256 tokens; a site trains on 4.*raise data\.max_length"
    with pytest.raises(ConfigError, match=told):
        perform(method, bench, tmp_path / "run")


def test_a_draw_depends_on_the_seed_and_on_the_file_alone(bench, tmp_path):
    items = [*records("skin", 3), Instruction("too long", "", "word " * 400), *records("heart", 3)]
    found = Substitute.load(FewFedPITConfig(substitute=public(tmp_path, items), keep=4), bench, [])
    order = (Stream(0) / "substitute" / "a").python().sample(items, len(items))
    order.remove(items[3])
    assert found.draw(["a"], Stream(0)) == {"a": {"public": [list(astuple(item)) for item in order[:4]]}}


def test_what_the_run_is_measured_with_is_no_substitute(bench, tmp_path, capsys):
    items = records("skin", 6)
    config = FewFedPITConfig(substitute=public(tmp_path, items), keep=4)
    measured = [f"  {items[0].subject}", items[4].subject]  # whatever the white space
    assert Substitute.load(config, bench, measured).records == [*items[1:4], items[5]]
    assert "2 public records are ones that the run is measured with" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"has 3 records"):
        Substitute.load(config, bench, [item.subject for item in items[:3]])


def test_a_substitute_that_is_missing_is_found_out_before_the_first_round(bench, tmp_path):
    method = FewFedPIT(FewFedPITConfig(substitute=str(tmp_path / "none.jsonl")))
    with pytest.raises(DataError, match="no such file"):
        perform(method, bench, tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


# ---- engines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fewfedpit", "fedmit"])
def test_the_wire_changes_nothing(go, drafted, name):
    """In one round: sites keep nothing for the next, but under LocIT+SG, whose test has the wire, too."""
    local, wire = go(name=name)[0], go(name=name, engine=Wired)[0]
    assert furthest(local.adapter, wire.adapter) < 1e-5
    assert [row["counts"] for row in local.rows] == [row["counts"] for row in wire.rows]


def test_the_wire_changes_nothing_when_the_model_really_writes(go):
    options = {"keep": 2, "instruction_tokens": 6, "example_tokens": 6}
    local, wire = go(**options)[0], go(engine=Wired, **options)[0]
    assert furthest(local.adapter, wire.adapter) < 1e-5
    assert [row["counts"] for row in local.rows] == [row["counts"] for row in wire.rows]


def test_a_cohort_in_chunks_gives_the_same(go, bench, drafted):
    whole, _ = go()
    bench.slots = 2
    chunks, _ = go()
    assert furthest(whole.adapter, chunks.adapter) < 1e-5


# ---- drafts for the owner -------------------------------------------------------------------------------------------


def test_drafts_are_kept_for_their_owner_if_asked_with_the_reasons_and_change_nothing(go, drafted, monkeypatch):
    shown = {}
    monkeypatch.setattr(Site, "show", lambda site, drafts: shown.update({site.name: drafts}))
    plain, _ = go(drafts_per_kept=2)
    assert shown == {}
    kept, _ = go(drafts_per_kept=2, drafts_shown=1)
    assert same(plain.adapter, kept.adapter) and set(shown) == {site.name for site in sites()}
    for name, (one, other) in shown.items():
        assert one.kept and one.text.startswith("write note") and name in one.text
        assert one.why.startswith("among the best: loss of its response")
        assert not other.kept and other.why.startswith("others ranked before it")
        assert one.round == other.round == 1


def test_of_each_reason_one_is_shown_before_any_has_two(bench):
    records = written("kidney", 2)
    dropped = [("sorry", "refusal"), ("sorry again", "refusal"), ("", "empty")]
    drafted = Drafts(records, Counter(), dropped)
    config = FewFedPITConfig(drafts_shown=3)
    found = _shown(1, drafted, [Opinion(1.0, 2.0), None], [0], config)
    assert [(one.text, one.kept) for one in found] == [
        (f"{records[0].instruction}\n{records[0].output}", True),
        ("sorry", False),
        ("", False),
        (f"{records[1].instruction}\n{records[1].output}", False),
    ]
    assert [one.why for one in found] == [
        "among the best: IFS 0.500",
        WHY["refusal"],
        WHY["empty"],
        WHY["does_not_fit"],
    ]
