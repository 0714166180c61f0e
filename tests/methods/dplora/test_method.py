"""DP-LoRA and Vanilla FL: whole runs on a tiny model."""

from functools import cache

import pytest
import torch

from murmura.aggregation.choosing import rule
from murmura.aggregation.config import AggregationConfig
from murmura.aggregation.mean import too_long
from murmura.errors import CheckpointError, ConfigError, PrivacyError, RefusedError, RunError
from murmura.federation.engines.local import LocalEngine
from murmura.federation.server.checkpoint import latest
from murmura.federation.site.cohort import Cohort
from murmura.federation.site.store import SiteStore
from murmura.federation.traits import RULES
from murmura.federation.wire.messages import Ask, Failure, Reply
from murmura.federation.wire.releases import Count, verb
from murmura.methods import build, parse_config
from murmura.methods.dplora import guarantee
from murmura.methods.dplora.config import DPLoRAConfig
from murmura.methods.dplora.guarantee import plan
from murmura.methods.dplora.method import DPLoRA
from murmura.privacy.entropy import OSEntropy
from murmura.privacy.guarantee import Cost
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.observation import length
from murmura.privacy.reported import ReportedEpsilons, rounded
from murmura.runs.folder import RunFolder
from murmura.runs.names import REPORTED
from murmura.training.adapter import split_residual
from murmura.training.config import LocalTraining
from murmura.training.loop import train
from tests.aggregation.means import weighted_mean
from tests.federation.engines.wired import Wired
from tests.federation.world import failing, instructions, lead, make_world
from tests.methods.dpfedavg.helpers import interrupted
from tests.privacy.plans import Rehearsed
from tests.training.helpers import EPS, assert_close, assert_same

ALGORITHMS = ("dplora", "vanilla-fl", "tfedavg", "cmfl")
SGD = LocalTraining(lr=0.5, batch_size=3, max_steps=1, optimizer="sgd", clip=0, schedule="constant")
CLIPPED = LocalTraining(lr=0.01, batch_size=2, eps=EPS, max_steps=2, clip=0.5, schedule="constant")
SIZES = (4, 5, 6)


def seeded(cohort, site):
    return Rehearsed(cohort.stream / "entropy" / cohort.round / site.name)


def dplora(name="dplora", rounds=2, entropy=seeded, **options):
    if name == "dplora":
        options = {"noise_multiplier": 1.0} | options
        options |= {"accountant": "rdp"} if options["noise_multiplier"] != 0 else {}
    method = build(parse_config({"name": name, "rounds": rounds, **options}, "my.toml"))
    if entropy is not None:
        method.entropy = entropy
    return method


def run(tokenizer, folder, method, **options):
    return lead(tokenizer, method, folder, **{"sizes": SIZES, "training": CLIPPED} | options)


@pytest.fixture(scope="module")
def plain(tokenizer, tmp_path_factory):
    """A run by default, which is made once and left as it is."""
    return cache(lambda: run(tokenizer, tmp_path_factory.mktemp("plain"), dplora()))


# ---- the algorithm ---------------------------------------------------------------------------------------------------


def fedsgd(world, shards_of, rounds):
    """A ← A − γ·Σ_k ρ_k·mean of gradients over ``shards_of(site)``, with ρ_k = 1/K, step by step."""
    adapter, bench = world.server.adapter, world.runtime
    for _ in range(rounds):
        sites = []
        for site in world.sites:
            shards = shards_of(bench.tokenise_fitting(site.records))
            alone = [train(bench.bank, [s], [adapter], _all_of(s), SGD.lr, _stream(world))[0].state for s in shards]
            sites.append((weighted_mean((state, 1) for state in alone), 1))
        adapter = weighted_mean(sites)
    return adapter


def _all_of(shard):
    return SGD.model_copy(update={"batch_size": len(shard)})


def _stream(world):
    return [world.fleet.stream / "by hand"]


def test_without_noise_and_norm_it_is_fedsgd(tokenizer, tmp_path):
    """σ = 0, C = ∞, every record in every step: the mean over sites of the mean over records."""
    method = dplora(rounds=3, noise_multiplier=0.0)
    world = make_world(tokenizer, method, tmp_path, sizes=(3, 3, 3), training=SGD)
    expected = fedsgd(world, lambda shard: [[item] for item in shard], 3)
    method.lead(world.server, world.fleet)
    assert_close(world.server.adapter, expected, atol=1e-6)


def test_the_paper_s_letter_without_noise_and_norm_is_fedsgd(tokenizer, tmp_path):
    """There the gradient is that of the batch's mean loss, over its tokens."""
    method = dplora(rounds=3, preset="paper", noise_multiplier=0.0)
    world = make_world(tokenizer, method, tmp_path, sizes=(3, 3, 3), training=SGD)
    expected = fedsgd(world, lambda shard: [shard], 3)
    method.lead(world.server, world.fleet)
    assert_close(world.server.adapter, expected, atol=1e-6)


def test_fedavg_counts_sites_alike(tokenizer, tmp_path):
    world = make_world(tokenizer, method := dplora("vanilla-fl", 1), tmp_path, sizes=SIZES, training=CLIPPED)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    alone = []
    for site in world.sites:
        cohort = Cohort([site], world.runtime, Ask("train", 1), world.fleet.stream)
        alone.append((cohort.train(cohort.own(), [start], CLIPPED.lr, "private")[0].state, 1))
    assert_close(world.server.adapter, weighted_mean(alone))


def test_clipping_bounds_a_round(tokenizer, tmp_path):
    """Two groups, each clipped to C, one SGD step: no factor moves further than γ·C."""
    sgd = SGD.model_copy(update={"clip": 1e-3})
    method = dplora(rounds=1, preset="paper", noise_multiplier=0.0)
    world = make_world(tokenizer, method, tmp_path, sizes=(3,), training=sgd)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    for factor in ("lora_A", "lora_B"):
        moved = torch.cat([(world.server.adapter[n] - t).flatten() for n, t in start.items() if factor in n])
        assert moved.norm() <= sgd.lr * 1e-3 * (1 + 1e-4)
    assert moved.norm() > 0.99 * sgd.lr * 1e-3  # B's gradient is longer than that


def test_noise_is_there_and_new_in_every_run(tokenizer, tmp_path):
    assert isinstance(DPLoRA(DPLoRAConfig()).entropy(None, None), OSEntropy)
    runs = [run(tokenizer, tmp_path / str(k), dplora(rounds=1, entropy=None)).server.adapter for k in range(2)]
    name = next(iter(runs[0]))
    assert not torch.equal(runs[0][name], runs[1][name])


def test_noise_on_weights(tokenizer, tmp_path):
    """What a site uploads is its clipped step and N(0, σ²) on every weight."""
    options = {"preset": "paper", "rounds": 1}
    training = SGD.model_copy(update={"clip": 0.1})
    silent = run(tokenizer, tmp_path / "a", dplora(noise_multiplier=0.0, **options), sizes=(3,), training=training)
    noisy = dplora(noise_multiplier=0.25, noise_on="weights", **options)
    loud = run(tokenizer, tmp_path / "b", noisy, sizes=(3,), training=training)
    noise = torch.cat([(loud.server.adapter[n] - t).flatten() for n, t in silent.server.adapter.items()])
    assert noise.numel() > 400
    assert float(noise.std()) == pytest.approx(0.25, rel=0.12)
    assert loud.server.rows[1]["privacy"]["epsilon"] > 0


def test_noise_on_many_weights_is_no_upload_that_is_too_long():
    method = dplora(noise_multiplier=2.0, noise_on="weights", preset="paper", rounds=1)
    sent = {"w": torch.zeros(512, 4096)}
    noise = {"w": 2.0 * torch.randn(512, 4096, generator=torch.Generator().manual_seed(0))}
    assert too_long(noise, sent) and not too_long(noise, sent, method.per_number["adapter"])
    assert too_long({"w": noise["w"] * 2.5}, sent, method.per_number["adapter"])
    assert "adapter" not in dplora(noise_multiplier=2.0).per_number


def test_noise_on_weights_comes_before_they_are_rounded(tokenizer, tmp_path, monkeypatch):
    """On weights as large as a server pleases, one record may move the rounding of each."""
    seen = []

    def noted(noise, exact, *rest):
        seen.append(length(exact.values()))
        return add(noise, exact, *rest)

    add = GaussianNoise.add
    monkeypatch.setattr(GaussianNoise, "add", noted)
    training = SGD.model_copy(update={"clip": 0.1})
    method = dplora(noise_multiplier=0.25, noise_on="weights", preset="paper", rounds=1)
    run(tokenizer, tmp_path, method, training=training)
    assert seen and max(seen) <= 0.1 * 2**0.5


# ---- engines, slots, resuming ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_both_engines_give_the_same(fine_grid, tokenizer, tmp_path, algorithm):
    local = run(tokenizer, tmp_path / "local", dplora(algorithm))
    wire = run(tokenizer, tmp_path / "wire", dplora(algorithm), engine=Wired)
    assert_close(wire.server.adapter, local.server.adapter)
    for ours, theirs in zip(wire.server.rows, local.server.rows, strict=True):
        assert ours["bytes_down"] == theirs["bytes_down"]
        assert ours["privacy"] == theirs["privacy"] and ours["counts"] == theirs["counts"]
    assert {site: sorted(store) for site, store in wire.stores().items()} == {
        site: sorted(store) for site, store in local.stores().items()
    }


@pytest.mark.parametrize("slots", [1, 2])
def test_results_do_not_depend_on_the_number_of_slots(tokenizer, tmp_path, plain, slots):
    few = run(tokenizer, tmp_path, dplora(), slots=slots)
    assert_close(few.server.adapter, plain().server.adapter)


@pytest.mark.parametrize("preset", ["sound", "paper"])
def test_without_noise_one_seed_gives_one_result(tokenizer, tmp_path, preset):
    """Whoever is with them in a bank, and whether the run was resumed."""

    def silent():
        return dplora(preset=preset, noise_multiplier=0.0, entropy=None)

    first = run(tokenizer, tmp_path / "first", silent()).server
    assert_same(run(tokenizer, tmp_path / "again", silent()).server.adapter, first.adapter)
    assert_close(run(tokenizer, tmp_path / "few", silent(), slots=1).server.adapter, first.adapter)
    assert_same(killed_and_resumed(tokenizer, tmp_path / "cut", silent, after=1).server.adapter, first.adapter)


def test_without_noise_samples_are_new_in_every_round_and_site(tokenizer, tmp_path):
    method = dplora(noise_multiplier=0.0, entropy=None)
    world = make_world(tokenizer, method, tmp_path, sizes=SIZES, training=CLIPPED)
    cohorts = [Cohort(world.sites, world.runtime, Ask("train_private", k), world.fleet.stream) for k in (1, 2)]
    assert len({method.entropy(c, site).bytes(8) for c in cohorts for site in world.sites}) == 2 * len(SIZES)


def killed_and_resumed(tokenizer, folder, make, after):
    return interrupted(tokenizer, folder, make, after, sizes=SIZES, training=CLIPPED)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_that_was_killed_goes_on_as_if_it_had_not(tokenizer, tmp_path, algorithm):
    whole = run(tokenizer, tmp_path / "whole", dplora(algorithm, 3))
    again = killed_and_resumed(tokenizer, tmp_path / "cut", lambda: dplora(algorithm, 3), after=2)
    assert_same(again.server.adapter, whole.server.adapter)
    assert [row["privacy"] for row in again.server.rows] == [row["privacy"] for row in whole.server.rows]
    assert [row["counts"] for row in again.server.rows] == [row["counts"] for row in whole.server.rows]


class Stopped(Exception):
    """What ends a process, for a test that lives on."""


def stopped_in(tokenizer, folder, method, round):
    """A run, new or resumed, that ends in a round when its uploads have reached the server."""
    world = make_world(tokenizer, method, folder, sizes=(4, 4), training=CLIPPED)
    if saved := latest(folder / "checkpoint"):
        world.server.restore(saved)
    combine = world.server.combine

    def ending(contributions):
        arrived = list(contributions)
        if world.fleet.round == round:
            raise Stopped
        combine(arrived)

    world.server.combine = ending
    with pytest.raises(Stopped):
        method.lead(world.server, world.fleet)


def test_every_upload_that_was_sent_is_in_the_printed_epsilon(tokenizer, tmp_path):
    """A run of four rounds that is stopped five times in the third sends nine uploads."""
    for _ in range(5):
        stopped_in(tokenizer, tmp_path, dplora(rounds=4), 3)
    world = make_world(tokenizer, method := dplora(rounds=4), tmp_path, sizes=(4, 4), training=CLIPPED)
    world.server.restore(latest(tmp_path / "checkpoint"))
    method.lead(world.server, world.fleet)
    told = [row["privacy"]["epsilon"] for row in world.server.rows[1:]]
    promised = plan(method.config, CLIPPED, 4)
    assert told == pytest.approx([promised.epsilon(2 * uploads, "rdp").value for uploads in (1, 2, 8, 9)])
    assert world.server.rows[4]["privacy"]["refused"] is None


def test_noisy_steps_that_end_in_no_finite_number_are_in_the_ledger(tokenizer, tmp_path):
    """That a site fails follows from them, and is told."""
    training = CLIPPED.model_copy(update={"lr": 3e38, "optimizer": "sgd", "max_steps": 4})
    method = dplora(rounds=1, noise_multiplier=4.0)
    world = make_world(tokenizer, method, tmp_path, sizes=(4, 4), training=training)
    with pytest.raises(RunError):
        method.lead(world.server, world.fleet)
    for site in world.sites:
        assert {line["round"] for line in site.journal.lines[1:]} == {1}
        assert guarantee.Guard(method.config, training, site).ledger.steps >= 4


@pytest.mark.parametrize("lr", [0.02, 3e37, 0.0, -0.01])
def test_no_site_trains_privately_at_a_rate_above_the_runs(tokenizer, tmp_path, lr):
    world = make_world(tokenizer, method := dplora(rounds=1), tmp_path, sizes=(4,), training=CLIPPED)
    ask = Ask("train_private", 1, {"adapter": world.server.adapter, "lr": lr})
    with pytest.raises(RefusedError, match=r"in this run 0\.01 at most"):
        method.train_private(Cohort(world.sites, world.runtime, ask, world.fleet.stream), ask)


def test_a_ledger_is_on_the_disk_before_its_upload_leaves(tokenizer, tmp_path):
    seen = []

    class Watched(LocalEngine):
        def ask(self, ask, sites):
            for reply in super().ask(ask, sites):
                if ask.verb == "train_private":
                    rounds = [
                        line["round"]
                        for line in SiteStore(RunFolder(tmp_path).private_of(reply.site), reply.site).ledger.lines[1:]
                    ]
                    seen.append(rounds == list(range(1, ask.round + 1)))
                yield reply

    run(tokenizer, tmp_path, dplora(), engine=Watched)
    assert seen == [True] * 2 * len(SIZES)


def test_an_upload_whose_ledger_cannot_be_written_does_not_leave(tokenizer, tmp_path, monkeypatch):
    from murmura import atomic

    written = atomic.append

    def full(path, data):
        if "private" in path.parts:  # the sites' disk, not the server's
            raise OSError(28, "No space left on device")
        written(path, data)

    monkeypatch.setattr("murmura.atomic.append", full)
    world = make_world(tokenizer, method := dplora(), tmp_path, sizes=SIZES, training=CLIPPED)
    with pytest.raises(CheckpointError, match="the privacy ledger cannot be written"):
        method.lead(world.server, world.fleet)
    assert not world.ledger.table()


# ---- what is told ----------------------------------------------------------------------------------------------------


def test_the_privacy_of_each_round(tokenizer, tmp_path):
    world = run(tokenizer, tmp_path, dplora(rounds=3))
    told = [row["privacy"] for row in world.server.rows]
    assert not told[0]  # nothing is spent before training
    spent = [one["epsilon"] for one in told[1:]]
    assert 0 < spent[0] < spent[1] < spent[2]
    assert told[3]["claimed_per_step"] == pytest.approx(4.8448, abs=1e-3)
    assert told[3]["refused"] is None and told[3]["unit"] == "record"
    assert "rate 0.5" in told[3]["plan"]  # of the site with the fewest records


def test_a_target_is_kept(tokenizer, tmp_path):
    world = run(tokenizer, tmp_path, dplora(rounds=2, noise_multiplier=None, epsilon=4.0), sizes=(4, 4))
    assert world.server.rows[2]["privacy"]["epsilon"] == pytest.approx(4.0, abs=1e-3)
    assert world.server.rows[1]["privacy"]["epsilon"] < 4


def test_to_a_target_sites_do_not_tell_how_many_records_they_have(tokenizer, tmp_path):
    def said(size):
        method = dplora(rounds=3, noise_multiplier=None, epsilon=4.0)
        world = run(tokenizer, tmp_path / str(size), method, sizes=(size, size))
        return [row["privacy"] for row in world.server.rows[1:]]

    few, many = said(6), said(14)
    assert few == many and few[-1]["epsilon"] == 4.0
    assert "rate" not in few[0]["plan"] and few[0]["claimed_per_step"] is None


@pytest.mark.parametrize("spent, expected", [(4.0, 4.0), (3.9999, 4.0), (3.1, 3.2), (4.01, 5.0), (9.0, 9.765625)])
def test_an_epsilon_is_only_ever_rounded_up(spent, expected):
    assert rounded(spent, 4.0) == pytest.approx(expected) and rounded(spent, 4.0) >= spent


def test_nothing_but_adapters_and_epsilon_is_released(plain):
    world = plain()
    table = {row["field"]: row for row in world.ledger.table()}
    assert table.keys() == {"adapter", "privacy"}
    assert table["adapter"]["protection"]["unit"] == "record"
    assert "clipping per_example" in table["adapter"]["protection"]["mechanism"]
    assert all(row["train_loss"] is None for row in world.server.rows)


@pytest.mark.parametrize("algorithm", ["vanilla-fl", "tfedavg", "cmfl"])
def test_baselines_promise_nothing(tokenizer, tmp_path, algorithm):
    world = run(tokenizer, tmp_path, dplora(algorithm))
    assert {str(row["protection"]) for row in world.ledger.table()} == {"None"}
    assert not any(row["privacy"] for row in world.server.rows)
    assert not any(row["kind"] == "count" for row in world.ledger.table())  # ρ_k = 1/K
    assert world.server.rows[2]["heldout_loss"] != world.server.rows[0]["heldout_loss"]


@pytest.mark.parametrize("algorithm", ["dplora", "vanilla-fl"])
def test_numbers_sent_beside_the_paper_s_formula(tokenizer, tmp_path, algorithm):
    world = run(tokenizer, tmp_path, dplora(algorithm, 1))
    counts, size = world.server.rows[1]["counts"], world.runtime.bank.size
    formula = 3 * 2 * 2 * 2 * 32  # K · L · r · 2n of the tiny model
    assert counts == {"numbers_up.sent": 3 * size, "numbers_up.by_the_formula_T·K·L·r·2n": formula}


def ruled(name):
    method = DPLoRA(DPLoRAConfig(rounds=2, noise_multiplier=1.0, accountant="rdp"), rule(AggregationConfig(rule=name)))
    method.entropy = seeded
    return method


def test_an_aggregation_rule_that_freezes_a_factor_halves_the_bytes(tokenizer, tmp_path, plain):
    ffa = run(tokenizer, tmp_path, ruled("ffa"))
    uploads = [next(r["bytes"] for r in w.ledger.table() if r["field"] == "adapter") for w in (ffa, plain())]
    assert uploads[0] < 0.6 * uploads[1]
    start = ffa.runtime.bank.initial(ffa.fleet.stream / "adapter")
    assert all(torch.equal(t, start[n]) for n, t in ffa.server.adapter.items() if "lora_A" in n)


@pytest.mark.parametrize("name", [name for name in RULES if name != "mean"])
def test_every_rule_works_on_noised_adapters_at_the_same_price(tokenizer, tmp_path, plain, name):
    """Aggregation comes after the noise, so it spends nothing."""
    local = run(tokenizer, tmp_path / "local", ruled(name))
    assert local.server.rows[2]["privacy"] == plain().server.rows[2]["privacy"]
    if name == "fedsa":  # the others put nothing more on the wire than they do in methods/fedit/test_aggregation
        wire = run(tokenizer, tmp_path / "wire", ruled(name), engine=Wired)
        assert_close(wire.server.adapter, local.server.adapter, atol=1e-4)


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_dead_site_is_left_out_and_counts_with_all_that_it_may_have_spent(tokenizer, tmp_path):
    engine = failing(LocalEngine, lambda site, ask: site == "site-1" and ask.verb == "train_private")
    world = run(tokenizer, tmp_path, dplora(rounds=2), engine=engine)
    assert "privacy" not in world.stores()["site-1"]
    for row in world.server.rows[1:]:
        assert row["privacy"]["epsilon"] == world.server.promised.spent.value


@pytest.mark.parametrize("target", [None, 4.0])
def test_rounds_that_are_done_again_and_do_not_arrive_count_too(tokenizer, tmp_path, target):
    method = dplora(rounds=2, epsilon=target, noise_multiplier=None if target else 1.0)
    world = make_world(tokenizer, method, tmp_path, sizes=SIZES, training=CLIPPED)
    told = []
    for _ in range(3):
        guarantee.asked(world.server, method.config, ["site-1"])
        told.append(world.server.journal(REPORTED, ReportedEpsilons).worst["epsilon"])
    assert told[0] == told[1] == max(world.server.promised.spent.value, target or 0.0)
    plans = [guarantee.plan(method.config, CLIPPED, size) for size in SIZES]
    thrice = max(one.epsilon(one.steps // 2 * 3, method.config.accountant).value for one in plans)
    assert told[2] == (rounded(thrice, target) if target else thrice) > told[1]


@pytest.mark.parametrize("target", [None, 4.0])
def test_what_has_left_a_site_and_did_not_arrive_counts(tokenizer, tmp_path, target):
    """Whoever sees what left the site sees it; the server need not have counted it."""

    class Late(LocalEngine):
        def ask(self, ask, sites):
            for reply in super().ask(ask, sites):
                lost = ask.verb == "train_private" and reply.site == "site-1"
                yield Failure(reply.site, "too late") if lost else reply

    method = dplora(rounds=2, epsilon=target, noise_multiplier=None if target else 1.0)
    world = run(tokenizer, tmp_path, method, sizes=(9, 3), engine=Late)
    spent = guarantee.Guard(method.config, world.runtime.training, world.sites[1]).told()["epsilon"]
    assert spent > guarantee.Guard(method.config, world.runtime.training, world.sites[0]).told()["epsilon"] or target
    for row in world.server.rows[1:]:
        assert row["privacy"]["epsilon"] >= spent


UNFIT = {
    "no upload": lambda adapter: {},
    "words": lambda adapter: {"adapter": "here"},
    "no number": lambda adapter: {"adapter": {name: tensor * torch.nan for name, tensor in adapter.items()}},
    "a field more": lambda adapter: {"adapter": adapter, "more": 1},
    "another shape": lambda adapter: {"adapter": {name: tensor[:-1] for name, tensor in adapter.items()}},
}
TOLD = {
    "no ε": ({"epsilon": None, "refused": "no secret randomness"}, None),
    "more than promised": ({"epsilon": 99.0, "refused": None, "answers": 1}, 99.0),
}


@pytest.mark.parametrize("unfit", UNFIT)
@pytest.mark.parametrize("told", TOLD)
def test_what_a_site_says_of_its_epsilon_counts_though_its_upload_is_left_out(tokenizer, tmp_path, unfit, told):
    privacy, expected = TOLD[told]

    class Unfit(LocalEngine):
        def ask(self, ask, sites):
            for reply in super().ask(ask, sites):
                if ask.verb == "train_private" and reply.site == "site-1":
                    reply = Reply(reply.site, {**UNFIT[unfit](reply["adapter"]), "privacy": privacy})
                yield reply

    world = run(tokenizer, tmp_path, dplora(rounds=1), engine=Unfit)
    row = world.server.rows[-1]
    assert row["privacy"]["epsilon"] == expected
    assert "the answer of site site-1 to 'train_private' is left out" in row["events"][0]


@pytest.mark.parametrize("kind", ["fedex", "flora"])
def test_private_steps_begin_with_what_exact_aggregation_left_over(tokenizer, tmp_path, kind, monkeypatch):
    """Also where public records come first, which train the adapter alone."""
    method = build(
        parse_config({"name": "dplora", "rounds": 2, "noise_multiplier": 0.0}, "my.toml"), AggregationConfig(rule=kind)
    )
    world = make_world(tokenizer, method, tmp_path, sizes=SIZES, training=CLIPPED)
    for site in world.sites[1:]:
        site.keep("public", instructions(4, seed=77), 4)
    seen, train = [], Cohort.train

    def noting(self, shards, starts, lr, purpose, **options):
        seen.append((self.round, purpose, {bool(split_residual(start)[1]) for start in starts}))
        return train(self, shards, starts, lr, purpose, **options)

    monkeypatch.setattr(Cohort, "train", noting)
    method.lead(world.server, world.fleet)
    assert seen == [(n, purpose, {n == 2}) for n in (1, 2) for purpose in ("public", "private")]


class Peeking(DPLoRA):
    """Has sites send besides what no noise is in."""

    spends = None

    def verbs(self):
        return [*super().verbs(), "peek"]

    @verb(releases={"examples": Count()})
    def peek(self, cohort, ask):
        return cohort.reply(examples=cohort.sizes)

    def cost(self, name, records, training):
        return self.spends if name == "peek" else super().cost(name, records, training)


def test_a_method_that_goes_further_keeps_no_epsilon_for_what_none_covers():
    method = Peeking(DPLoRAConfig(name="dplora", noise_multiplier=1.0))
    with pytest.raises(ConfigError, match="verb peek releases what no ε covers"):
        method.guarantee(SIZES, CLIPPED)
    method.spends = Cost(epsilon=0.1)
    assert method.guarantee(SIZES, CLIPPED) is not None
    assert Peeking(DPLoRAConfig(name="dplora", noise_multiplier=0.0)).guarantee(SIZES, CLIPPED) is None


@pytest.mark.parametrize("name", ["dplora", "dpfedavg", "dpftrl"])
def test_a_method_that_gives_up_the_promise_draws_no_noise(name):
    """Ledgers of noise add up to an ε, for whoever reads them, of which the method says that it does not hold."""
    by_name = {"dplora": {}, "dpfedavg": {"clip_norm": 1.0}, "dpftrl": {"clip_norm": 1.0}}[name]

    def unpromising(noise):
        config = parse_config({"name": name, "rounds": 2, "noise_multiplier": noise, **by_name}, "my.toml")
        return type("Mine", (type(build(config)),), {"protects": None})(config)

    with pytest.raises(PrivacyError, match="by a method that promises nothing"):
        unpromising(1.0).guarantee(SIZES, CLIPPED)
    assert unpromising(0.0).guarantee(SIZES, CLIPPED) is None
