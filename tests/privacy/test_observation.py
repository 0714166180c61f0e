"""What was seen, what it says against a plan, and the four mutants that all printed one ε."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from murmura.errors import PrivacyError, RunError
from murmura.federation.engines.local import LocalEngine
from murmura.federation.wire.messages import Reply
from murmura.methods.dpfedavg.config import DPFedAvgConfig
from murmura.methods.dpfedavg.method import DPFedAvg
from murmura.methods.dpftrl.config import DPFTRLConfig
from murmura.methods.dpftrl.method import DPFTRL
from murmura.methods.dplora.config import DPLoRAConfig
from murmura.methods.dplora.method import DPLoRA
from murmura.privacy.clipping import AdaptiveSiteClipping
from murmura.privacy.entropy import OSEntropy, SeededEntropy
from murmura.privacy.journal import Journal
from murmura.privacy.ledger import PrivacyLedger, Spent
from murmura.privacy.mechanisms import gaussian, tree
from murmura.privacy.mechanisms.discrete_gaussian import DiscreteGaussianNoise
from murmura.privacy.mechanisms.gaussian import noise_like
from murmura.privacy.mechanisms.skellam import SkellamNoise
from murmura.privacy.mechanisms.tree import TreeNoise
from murmura.privacy.observation import Observation, chi_square, contradictions, length, noised, require_share
from murmura.privacy.samplers import FixedSizeSampling, FullParticipation, OncePerTree, PoissonSampling, binomial
from murmura.streams import Stream
from murmura.training import private
from murmura.training.config import LocalTraining
from tests.federation.world import Scripted, lead, make_world
from tests.privacy.plans import RECORDS, SITES, VOTES, followed, of_records, of_sites, seen

ADAPTIVE = of_sites(clipping=AdaptiveSiteClipping(0.5, 0.5, 0.2, count_noise=20.0))
TREE = of_sites(noise=TreeNoise(11.3, 4), sampler=OncePerTree(3))
FIXED = of_records(sampler=FixedSizeSampling(8, 200))
IN_SHARES = Spent(10, FullParticipation(), 8, 11.3, shares=200, observed=seen(VOTES, 10, shares=200))
CLIPPED = LocalTraining(lr=0.01, batch_size=2, max_steps=4, clip=1e-3, schedule="constant")


# ---- what a verdict rests on -----------------------------------------------------------------------------------------


def judged(plan, count=10, **changes):
    done = followed(plan, count)
    return contradictions(plan, [replace(done, observed=replace(done.observed, **changes))])


@pytest.mark.parametrize("plan", [RECORDS, SITES, ADAPTIVE, TREE, FIXED, VOTES])
def test_what_follows_the_plan_contradicts_nothing(plan):
    assert judged(plan) == [] == contradictions(plan, [])


@pytest.mark.parametrize(
    ("plan", "changes", "reason"),
    [
        (RECORDS, {"drawn": 2000}, "2000 records of 2000 were seen to take part, over all steps, where 80 are to be"),
        (RECORDS, {"drawn": 10}, "10 records of 2000 were seen"),
        (FIXED, {"drawn": 81}, "81 records of 2000 were seen to take part, over all steps, where 80 are"),
        (FIXED, {"chances": 1990}, "80 records of 1990"),
        (SITES, {"drawn": 1999}, "1999 sites of 2000 were seen"),
        (TREE, {"drawn": 31}, "31 sites of 2000 were seen to take part, over all steps, where 30 are"),
        (TREE, {"apart": 1}, "a site was seen to be back after 1 step, in a tree that it may be in once"),
        (RECORDS, {"after": 1.001}, "a clipped contribution of 1.001 norms was seen, where 1 is the most"),
        (RECORDS, {"after": 1.0000011}, "a clipped contribution of 1.0000011 norms was seen, where 1 is the most"),
        (RECORDS, {"after": math.nan}, "a clipped contribution of inf norms"),
        (RECORDS, {"squares": 0.0}, "noise of 0 times the standard deviation that was planned was seen"),
        (RECORDS, {"squares": 10 * 1000 * 1.8**2}, "noise of 0.9 times the standard deviation"),
        (RECORDS, {"squares": 10 * 1000 * 2.2**2}, "noise of 1.1 times the standard deviation"),
        (RECORDS, {"numbers": 10**13, "squares": 10**13 * 2.00002**2}, "noise of 1.00001 times the standard deviation"),
        (RECORDS, {"numbers": 0, "squares": 0.0}, "noise of 0 times"),
        (ADAPTIVE, {"count_squares": 0.0}, "the noise on the count was seen to be another than planned"),
        (ADAPTIVE, {"counts": 0}, "the noise on the count was seen"),
        (RECORDS, {"is_secret": False}, "seen to come from a source that is no secret"),
        (VOTES, {"squares": 10 * 1000 * 10.3**2}, "noise of 0.9115 times the standard deviation"),
        (VOTES, {"squares": 0.0}, "noise of 0 times the standard deviation"),
        (VOTES, {"shares": 3}, "3 shares of noise were seen to be in its sums, where 0 are said to be"),
        (VOTES, {"after": 1.125}, "a clipped contribution of 1.125 norms was seen"),
        (VOTES, {"clipped": (("site", 1),)}, "seen to clip by site in 1 group of tensors, where votes in 1"),
        (RECORDS, {"clipped": (("batch", 1),)}, "seen to clip by batch in 1 group of tensors, where example in 1"),
        (RECORDS, {"clipped": (("example", 1), ("example", 2))}, "seen to clip by example in 2 groups"),
        (RECORDS, {"steps": 9}, "1 of its 1 entries in the ledger do not say what was seen"),
    ],
)
def test_what_was_seen_is_held_against_the_plan(plan, changes, reason):
    [told] = judged(plan, **changes)
    assert reason in told


@pytest.mark.parametrize("observed", [None, Observation()])
def test_a_step_that_nobody_has_seen_has_no_epsilon(observed):
    made = PrivacyLedger(RECORDS)
    made.record(1, [followed(RECORDS, 3)])
    made.record(2, [replace(followed(RECORDS, 1), observed=observed)])
    with pytest.raises(PrivacyError, match="do not say what was seen"):
        made.epsilon()


def test_steps_too_few_to_tell_apart_add_up_over_rounds():
    """A batch that is a third too large is nothing in one round, and no chance in a hundred."""
    made = PrivacyLedger(of_records(steps=100))
    for round in range(1, 101):
        one = followed(RECORDS, 1)
        made.record(round, [replace(one, observed=replace(one.observed, drawn=11))])
        assert (made.departures == []) == (round < 36), round
    assert "1100 records of 20000 were seen" in made.departures[0]


def test_more_noise_than_planned_must_be_there_where_it_is_said():
    told = followed(RECORDS, 1, noise_std=3.0)
    assert contradictions(RECORDS, [told, followed(RECORDS, 1)]) == []
    [reason] = contradictions(RECORDS, [replace(told, observed=seen(RECORDS))])
    assert "noise of 0.6667 times" in reason


def test_shares_are_counted_where_the_sites_add_the_noise():
    assert contradictions(VOTES, [IN_SHARES]) == []
    short = replace(IN_SHARES, observed=replace(IN_SHARES.observed, shares=1999))
    [reason] = contradictions(VOTES, [short])
    assert reason == "1999 shares of noise were seen to be in its sums, where 2000 are said to be"
    [reason] = contradictions(VOTES, [IN_SHARES, replace(followed(VOTES), observed=replace(seen(VOTES), squares=1.0))])
    assert reason.startswith("noise of 0.002798 times")


@pytest.mark.parametrize(
    ("noise", "count", "shares"),
    [
        (SkellamNoise(11.3), 60, 1),
        (SkellamNoise(2.31), 2048, 1250),  # of variance 0.27
        (SkellamNoise(0.1), 600, 1),
        (DiscreteGaussianNoise(2.31), 60, 1),
        (DiscreteGaussianNoise(2.31, 300), 2048, 300),
        (DiscreteGaussianNoise(0.06), 2048, 1),  # σ = 0.48, and the variance is not σ²
    ],
)
def test_integer_noise_that_is_as_planned_passes_and_other_does_not(noise, count, shares):
    votes = torch.arange(count) % 3
    for draw in range(40):
        drawn = noise.draw(8, count, SeededEntropy(Stream(0) / "integers" / draw), shares)
        require_share(noise, 8, shares, votes, votes + drawn, "site a, round 3")
    for wrong in (torch.zeros_like(drawn), 2 * drawn, 8 * drawn):
        with pytest.raises(PrivacyError, match=r"site a, round 3: votes were about to leave with noise of"):
            require_share(noise, 8, shares, votes, votes + wrong, "site a, round 3")


def test_noise_too_small_to_tell_anything_of_is_not_judged():
    nothing = torch.zeros(40, dtype=torch.int64)
    require_share(SkellamNoise(1.0), 8, 6400, nothing, nothing, "")
    with pytest.raises(PrivacyError):
        require_share(SkellamNoise(1.0), 8, 1, nothing, nothing, "")


def test_a_plan_without_noise_needs_no_secret():
    plain = RECORDS.with_noise(0.0)
    assert contradictions(plain, [replace(followed(plain), observed=replace(seen(plain), is_secret=False))]) == []


def test_observations_stay_in_the_ledger_and_add_up(tmp_path):
    made = PrivacyLedger(RECORDS, Journal(tmp_path / "ledger"))
    made.record(1, [followed(RECORDS, 2)])
    made.record(2, [followed(RECORDS, 3)])
    again = PrivacyLedger(RECORDS, Journal(tmp_path / "ledger"))
    [entry] = again.entries
    assert entry.observed == seen(RECORDS, 5) == made.entries[0].observed
    assert again.epsilon() == RECORDS.epsilon(5)
    json.loads(json.dumps(entry.to_json(), allow_nan=False))


@pytest.mark.parametrize(("chances", "rate"), [(20, 0.5), (5000, 0.04), (10**10, 0.1)])
def test_draws_are_judged_beyond_chance(chances, rate):
    mean, deviation = chances * rate, math.sqrt(chances * rate * (1 - rate))
    assert all(binomial(round(mean + away * deviation), chances, rate) for away in (-4, 0, 4) if mean - 4 >= 0)
    for drawn in (round(mean + 7.5 * deviation), round(mean - 7.5 * deviation)):
        assert not (0 <= drawn <= chances) or not binomial(drawn, chances, rate)
    assert binomial(3, 3, 1.0) and not binomial(2, 3, 1.0) and binomial(0, 0, 0.3)


@pytest.mark.parametrize("numbers", [1, 50, 10**4, 10**6 + 1, 10**9, 10**12])
def test_sums_of_squares_are_judged_beyond_chance(numbers):
    assert chi_square(numbers, numbers) and not chi_square(0.0, numbers)
    share = math.sqrt(2 / numbers)
    if numbers >= 10**4:
        assert all(chi_square(numbers * (1 + away * share), numbers) for away in (-5.5, 5.5))
    if numbers <= 10**9:  # beyond that it is within the slack
        assert not chi_square(numbers * (1 + 20 * share + 50 / numbers), numbers)


def test_true_draws_and_noise_pass():
    generator = np.random.default_rng(0)
    for _ in range(200):
        drawn = int(generator.binomial(300, 0.07))
        squares = float(np.square(generator.normal(size=700)).sum())
        assert binomial(drawn, 300, 0.07) and chi_square(squares, 700)


def test_noise_is_the_difference_that_was_made():
    exact = [torch.ones(3, 4), torch.zeros(5)]
    made = noised(exact, [exact[0] + 2.0, exact[1] - 1.0], 2.0)
    assert (made.numbers, made.squares) == (17, pytest.approx((12 * 4 + 5) / 4))
    assert length(exact) == pytest.approx(math.sqrt(12))


# ---- mutants: code that does not do what is planned, in whole runs ---------------------------------------------------


def everybody(sampler, population, steps, entropy):
    return [list(range(population)) for _ in range(steps)]


class NoNoise(OSEntropy):
    def normal(self, count):
        return torch.zeros(count)


def public(*arguments):
    return SeededEntropy(Stream(0) / "known to all")


def site_level(method, config, folder, tokenizer):
    """A run whose sites answer with a hundredth on every weight, unclipped."""
    world = make_world(tokenizer, made := method(config), folder)

    def answer(site, ask):
        update = {name: torch.full_like(t, 0.01) for name, t in ask["adapter"].items()}
        return Reply(
            site, {"update": update} | ({"unclipped": torch.tensor(0.5)} if getattr(config, "adaptive", False) else {})
        )

    world.fleet.engine = Scripted(answer)
    return made, world


def of_dplora(tokenizer, folder):
    config = DPLoRAConfig(rounds=2, noise_multiplier=2.0, accountant="rdp")
    return lead(tokenizer, DPLoRA(config), folder, training=CLIPPED, sizes=(8, 9)).server.rows[-1]["privacy"]


def of_weights(tokenizer, folder):
    config = DPLoRAConfig(rounds=3, preset="paper", noise_on="weights", accountant="rdp")
    training = LocalTraining(lr=0.01, batch_size=2, max_steps=1, clip=1e-3, optimizer="sgd")
    return lead(tokenizer, DPLoRA(config), folder, training=training, sizes=(8, 9)).server.rows[-1]["privacy"]


def of_dpfedavg(tokenizer, folder, **options):
    config = DPFedAvgConfig(
        rounds=8,
        noise_multiplier=2.0,
        accountant="rdp",
        clip_norm=5.0,
        sampler={"kind": "poisson", "sites_per_round": 1},
        **options,
    )
    made, world = site_level(DPFedAvg, config, folder, tokenizer)
    made.lead(world.server, world.fleet)
    return world.server.rows[-1]["privacy"]


def of_dpftrl(tokenizer, folder):
    config = DPFTRLConfig(rounds=3, noise_multiplier=2.0, accountant="rdp", clip_norm=5.0, noise={"restart_every": 4})
    made, world = site_level(DPFTRL, config, folder, tokenizer)
    made.lead(world.server, world.fleet)
    return world.server.rows[-1]["privacy"]


RUNS = {"dplora": of_dplora, "weights": of_weights, "dpfedavg": of_dpfedavg, "dpftrl": of_dpftrl}


@pytest.mark.parametrize("run", RUNS)
def test_a_run_that_does_what_is_planned_has_its_epsilon(tokenizer, tmp_path, run):
    told = RUNS[run](tokenizer, tmp_path)
    assert told["refused"] is None and told["epsilon"] > 0


def test_noise_on_the_count_is_seen(tokenizer, tmp_path, monkeypatch):
    # The norm hardly moves: these sites do not clip.
    options = {"adaptive": {"count_noise": 3.0, "lr": 0.01}}
    assert of_dpfedavg(tokenizer, tmp_path / "whole", **options)["refused"] is None
    next_norm = AdaptiveSiteClipping.next_norm
    quiet = lambda clipping, *words: next_norm(replace(clipping, count_noise=1e-9), *words)  # noqa: E731
    monkeypatch.setattr(AdaptiveSiteClipping, "next_norm", quiet)
    told = of_dpfedavg(tokenizer, tmp_path / "mutant", **options)
    assert "the noise on the count was seen to be another than planned" in told["refused"]


@pytest.mark.parametrize("run", ["dplora", "dpfedavg"])
def test_mutant_everybody_takes_part_in_every_step(tokenizer, tmp_path, monkeypatch, run):
    monkeypatch.setattr(PoissonSampling, "batches", everybody)
    told = RUNS[run](tokenizer, tmp_path)
    assert told["epsilon"] is None and "were seen to take part, over all steps, where" in told["refused"]


def test_mutant_records_are_not_clipped(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(private.PrivateStep, "_kept", lambda self, norms, slots: torch.ones_like(norms))
    told = of_dplora(tokenizer, tmp_path)
    assert told["epsilon"] is None and "norms was seen, where 1 is the most" in told["refused"]


def test_mutant_records_are_clipped_by_norms_that_are_a_little_too_small(tokenizer, tmp_path, monkeypatch):
    """What was clipped is measured without them."""
    exact = private.PrivateStep._norms_of_rows
    monkeypatch.setattr(private.PrivateStep, "_norms_of_rows", lambda self, rows: exact(self, rows) * (1 - 3e-5))
    told = of_dplora(tokenizer, tmp_path)
    assert told["epsilon"] is None and "a clipped contribution of 1.00002" in told["refused"]


@pytest.mark.parametrize("method", [DPFedAvg, DPFTRL])
def test_mutant_sites_are_not_clipped(tokenizer, tmp_path, monkeypatch, method):
    """The server leaves out an update that is too long, and sees a sum that is too long for so many sites; and a site
    that sees an update sends none."""
    options = {"rounds": 1, "noise_multiplier": 2.0, "clip_norm": 1e-3, "accountant": "rdp"}
    config = (DPFedAvgConfig if method is DPFedAvg else DPFTRLConfig)(**options)
    made, world = site_level(method, config, tmp_path / "seen", tokenizer)
    with pytest.raises(RunError, match="site a to 'train_clipped' is left out: 'update' is longer than the norm"):
        made.lead(world.server, world.fleet)

    monkeypatch.setattr(method, "_unclipped", lambda *_: None)  # as under a secure sum, where nobody sees an update
    made, world = site_level(method, config, tmp_path / "scripted", tokenizer)
    made.lead(world.server, world.fleet)
    told = world.server.rows[-1]["privacy"]
    assert told["epsilon"] is None and "norms was seen, where 1 is the most" in told["refused"]

    monkeypatch.setattr(
        "murmura.methods.site_level.method.clip", lambda update, norm: ({n: t.float() for n, t in update.items()}, True)
    )
    with pytest.raises(PrivacyError, match="site site-0, round 1: an update was about to leave unclipped"):
        lead(tokenizer, method(config), tmp_path / "sites", engine=LocalEngine)


@pytest.mark.parametrize("run", RUNS)
def test_mutant_without_noise(tokenizer, tmp_path, monkeypatch, run):
    monkeypatch.setattr(OSEntropy, "normal", NoNoise.normal)
    told = RUNS[run](tokenizer, tmp_path)
    assert told["epsilon"] is None
    # What rounding to a grid does to a sum is all that is left.
    found = re.search(r"noise of (\S+) times the standard deviation that was planned was seen", told["refused"])
    assert found and float(found[1]) < 1e-3


@pytest.mark.parametrize("run", RUNS)
def test_mutant_with_noise_from_a_public_seed(tokenizer, tmp_path, monkeypatch, run):
    monkeypatch.setattr(
        {"dpfedavg": DPFedAvg, "dpftrl": DPFTRL}.get(run, DPLoRA), "entropy", lambda self, *place: public()
    )
    told = RUNS[run](tokenizer, tmp_path)
    assert told["epsilon"] is None and "seen to come from a source that is no secret" in told["refused"]


@pytest.mark.parametrize("run", [of_dplora, of_dpfedavg, of_dpftrl])
def test_mutant_half_the_noise(tokenizer, tmp_path, monkeypatch, run):
    for module in (gaussian, tree):
        monkeypatch.setattr(module, "noise_like", lambda total, std, entropy: noise_like(total, std / 2, entropy))
    told = run(tokenizer, tmp_path)
    assert " times the standard deviation that was planned" in told["refused"]


def test_what_was_seen_does_not_leave_the_site(tokenizer, tmp_path):
    told = of_dplora(tokenizer, tmp_path)
    assert not {"drawn", "observed", "before", "after", "squares"} & set(json.dumps(told).replace('"', " ").split())
    assert Spent(1, RECORDS.sampler, 1.0, 1.0).observed is None
