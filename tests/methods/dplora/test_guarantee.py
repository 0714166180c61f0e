"""Plans and accounts of DP-LoRA's sites."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from murmura.errors import PrivacyError
from murmura.federation.site.site import Site
from murmura.federation.site.store import SiteStore
from murmura.methods.dplora.config import DPLoRAConfig
from murmura.methods.dplora.guarantee import Guard, claimed_per_step, note, plan, weakest
from murmura.privacy import accounting
from murmura.privacy.clipping import BatchClipping, ExampleClipping
from murmura.privacy.events import unsampled
from murmura.privacy.guarantee import Guarantee
from murmura.privacy.samplers import FixedSizeSampling, PoissonSampling
from murmura.training.config import LocalTraining
from tests.federation.world import instructions, journals
from tests.privacy.plans import followed

ONE_STEP = LocalTraining(batch_size=8, max_steps=1, clip=10.0, lr=5e-4, optimizer="sgd")


def config(**options):
    return DPLoRAConfig(**{"rounds": 50, "accountant": "rdp"} | options)


def spent(made, steps, **changed):
    """What a training loop that follows the plan says that it did, and saw."""
    return [followed(made, steps, **changed)]


def guard(size=200, training=ONE_STEP, site=None, **options):
    return Guard(config(**options), training, site or Site("ward", instructions(size, 0)))


# ---- plans -----------------------------------------------------------------------------------------------------------


def test_the_sound_plan():
    made = plan(config(noise_multiplier=2.0), ONE_STEP, 200)
    assert (made.unit, made.adjacency, made.steps, made.delta) == ("record", "zero-out", 50, 1e-5)
    assert made.sampler == PoissonSampling(8 / 200)
    assert made.clipping == ExampleClipping(10.0) and made.noise.std == 2
    assert made.epsilon(accountant="rdp").value == pytest.approx(0.70, abs=0.01)


def test_the_paper_s_plan():
    made = plan(config(preset="paper"), ONE_STEP, 200)
    assert made.sampler == FixedSizeSampling(8, 200)
    assert made.clipping == BatchClipping(10.0, groups=2) and made.noise.std == 2
    assert made.sensitivity == pytest.approx(2 * math.sqrt(2))  # not 1, as the paper has it
    replaced = replace(made, adjacency="replace-one")
    assert made.epsilon().value == replaced.epsilon().value == pytest.approx(7.69, abs=0.01)
    assert accounting.epsilon(unsampled(made.event()), 1e-5, made.adjacency).value > 90


@pytest.mark.parametrize(("sigma", "total"), [(2.42, 17.2), (2.0, 22.0), (1.21, 43.6)])
def test_claimed_and_composed(sigma, total):
    """The published table's first figures, and the same noise over 50 steps with every record in each."""
    made = plan(config(noise_multiplier=sigma), ONE_STEP, 8)
    assert made.epsilon(accountant="rdp").value == pytest.approx(total, rel=0.01)
    assert claimed_per_step(sigma, 1e-5) == pytest.approx(4.8448 / sigma, rel=1e-4)


def test_two_groups_cost_the_root_of_two():
    made = plan(config(noise_multiplier=2.0, groups="factors"), ONE_STEP, 8)
    assert made.epsilon(accountant="rdp").value == pytest.approx(35.1, abs=0.1)


def test_epsilon_grows_with_rounds_and_rate_and_falls_with_noise():
    def total(records=200, rounds=50, sigma=1.0):
        return plan(config(noise_multiplier=sigma, rounds=rounds), ONE_STEP, records).epsilon(accountant="rdp").value

    assert total() < total(rounds=100) and total() < total(records=100) and total() > total(sigma=1.5)


def test_noise_is_calibrated_over_all_steps_of_the_run():
    training = ONE_STEP.model_copy(update={"max_steps": 3})
    made = plan(config(epsilon=2.0, rounds=4), training, 40)
    assert made.steps == 12
    assert made.epsilon(accountant="rdp").value == pytest.approx(2.0, abs=1e-4)


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ([20, 2000], {"preset": "paper"}),
        ([20, 200], {"sampler": "fixed", "noise_multiplier": 2.0}),
        ([20, 200], {"adjacency": "replace-one", "noise_multiplier": 2.0}),
        ([8, 9], {"noise_multiplier": 2.0}),
        pytest.param(
            [8, 9, 20, 200],
            {"noise_multiplier": 2.0, "sampler": "fixed", "adjacency": "replace-one"},
            marks=pytest.mark.slow,
        ),
        ([200, 8, 30, 16, 17, 200], {"noise_multiplier": 0.7}),
    ],
)
def test_the_weakest_plan_is_that_of_the_worst_site(sizes, options):
    """A large site takes many steps in an epoch, a small one a large share of its records in each."""
    training = LocalTraining(batch_size=8, epochs=1, clip=1.0)
    chosen = config(rounds=5, **options)
    every = [plan(chosen, training, size).epsilon(accountant="rdp").value for size in sizes]
    assert weakest(chosen, training, sizes).epsilon(accountant="rdp").value == max(every)
    assert min(every) < max(every)


def test_epochs_count_too():
    training = ONE_STEP.model_copy(update={"max_steps": None, "epochs": 2})
    assert plan(config(noise_multiplier=1.0, rounds=4), training, 20).steps == 4 * 2 * 3


def test_noise_on_weights_is_noise_on_gradients_of_the_same_effect():
    literal = plan(config(preset="paper", noise_on="weights"), ONE_STEP, 200)
    assert literal.noise.std == pytest.approx(2 / (5e-4 * 10))
    examples = plan(config(noise_multiplier=2.0, noise_on="weights"), ONE_STEP, 200)
    assert examples.noise.std == pytest.approx(8 * 2 / (5e-4 * 10))


@pytest.mark.parametrize(
    ("options", "training", "message"),
    [
        ({}, {"batch_size": 201}, "200 records, training.batch_size = 201. Set training.batch_size to at most 200"),
        ({"preset": "paper"}, {"batch_size": 201}, "smaller than the batch: 200 records, training.batch_size = 201"),
        ({}, {"clip": 0.0}, "training.clip = 0. Set training.clip to C"),
        ({"noise_multiplier": 2.0, "noise_on": "weights"}, {"optimizer": "adamw"}, "Set training.optimizer = 'sgd'"),
        ({"noise_multiplier": 2.0, "noise_on": "weights"}, {"max_steps": 2}, "after one step of SGD only"),
    ],
)
def test_plans_that_protect_nobody(options, training, message):
    with pytest.raises(PrivacyError) as error:
        guard(training=ONE_STEP.model_copy(update=training), **options)
    assert message in str(error.value)
    assert str(error.value).startswith("site ward: ")


def test_without_noise_there_need_be_no_norm():
    made = plan(DPLoRAConfig(rounds=50, noise_multiplier=0.0), ONE_STEP.model_copy(update={"clip": 0.0}), 200)
    assert made.noise.std == 0 and made.clipping.norm > 1e38


# ---- accounts --------------------------------------------------------------------------------------------------------


def test_an_account_goes_on_from_round_to_round():
    site, found = Site("ward", instructions(200, 0)), []
    for round in (1, 2, 3):
        one = guard(site=site, noise_multiplier=1.0)
        one.record(round, spent(one.plan, 1))
        found.append(one.told())
    expected = [one.plan.epsilon(steps, "rdp").value for steps in (1, 2, 3)]
    assert [figures["epsilon"] for figures in found] == pytest.approx(expected)
    assert [figures["answers"] for figures in found] == [1, 2, 3]
    assert found[0].keys() == {"epsilon", "refused", "answers"} and found[0]["refused"] is None


def test_an_account_of_another_plan_is_not_gone_on_with():
    site = Site("ward", instructions(200, 0))
    one = guard(site=site, noise_multiplier=1.0)
    one.record(1, spent(one.plan, 1))
    for changed in ({"noise_multiplier": 0.9}, {"noise_multiplier": 1.0, "rounds": 51}):
        with pytest.raises(PrivacyError, match="site ward: the run was begun under another privacy plan"):
            guard(site=site, **changed)


def test_too_many_steps_are_refused_with_the_reason():
    one = guard(noise_multiplier=1.0, rounds=2)
    for round in (1, 2, 3):
        one.record(round, spent(one.plan, 1))
    figures = one.told()
    assert figures["epsilon"] is None and figures["refused"]


def test_less_noise_than_planned_is_refused():
    one = guard(noise_multiplier=1.0)
    one.record(1, spent(one.plan, 1, noise_std=0.5))
    assert one.told()["epsilon"] is None


def test_noise_on_weights_is_entered_as_what_it_does():
    """However records are drawn; ε of Poisson samples is computed sooner."""
    one = guard(preset="paper", noise_on="weights", sampler="poisson")

    def step(round, lr):
        one.record(round, spent(one.trained(lr), 1))
        return one.told()

    assert step(1, 5e-4)["epsilon"] == pytest.approx(one.plan.epsilon(1, "rdp").value)
    assert one.trained(1e-4).noise.std == pytest.approx(5 * one.plan.noise.std)
    assert step(2, 1e-4)["refused"] is None  # a lower rate is more noise for the gradient
    assert "its noise was" in step(3, 1e-3)["refused"]


def test_gradients_that_were_not_finite_are_told_at_the_site_alone(tmp_path):
    kept = SiteStore(tmp_path / "ward", "ward")
    one = guard(site=Site("ward", instructions(200, 0), kept=kept, journal=kept.ledger), noise_multiplier=1.0)
    for round, bad in ((1, 0), (2, 3)):
        [done] = spent(one.plan, 1)
        one.record(round, [replace(done, observed=replace(done.observed, not_finite=bad))])
    _, told = (tmp_path / "ward" / "notes.txt").read_text().splitlines()
    assert told.startswith("Round 2: 3 gradients of records were not finite numbers")
    assert one.ledger.departures == []


class Noted:
    """A server of 50 rounds with noise of 2."""

    def __init__(self, path=None):
        self.journal, self.noted = journals(path), []
        self.runtime = SimpleNamespace(training=ONE_STEP)
        self.promised = Guarantee.of(plan(config(noise_multiplier=2.0), ONE_STEP, 200), "rdp")

    def note_privacy(self, figures):
        self.noted.append(dict(figures))


def figures(epsilon, refused=None):
    return {"epsilon": epsilon, "refused": refused, "answers": 9}


def test_the_worst_protected_site_counts():
    server = Noted()
    for site, epsilon in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
        note(server, config(noise_multiplier=2.0), site, figures(epsilon))
    assert [noted["epsilon"] for noted in server.noted] == [1, 3, 3]
    assert server.noted[-1] == {
        "unit": "record",
        "adjacency": "zero-out",
        "delta": 1e-5,
        "epsilon": 3.0,
        "accountant": "rdp",
        "plan": server.promised.plan.describe(),
        "refused": None,
        "claimed_per_step": claimed_per_step(2.0, 1e-5),
    }


def test_a_site_that_falls_silent_still_counts_and_a_refusal_is_worst():
    server = Noted()
    note(server, config(noise_multiplier=2.0), "a", figures(5.0))
    note(server, config(noise_multiplier=2.0), "b", figures(6.0))
    note(server, config(noise_multiplier=2.0), "b", figures(7.0))
    note(server, config(noise_multiplier=2.0), "a", figures(None, "more steps than planned"))
    assert [n["epsilon"] for n in server.noted] == [5, 6, 7, None]
    assert server.noted[-1]["refused"] == "site a says: more steps than planned"


def test_a_site_that_tells_less_than_before_has_lost_its_ledger():
    server, options = Noted(), config(noise_multiplier=2.0)
    for epsilon in (3.0, 1.0, 5.0):  # after a loss nobody knows what came before
        note(server, options, "a", figures(epsilon))
    assert [noted["epsilon"] for noted in server.noted] == [3, None, None]
    assert "site a has lost" in server.noted[-1]["refused"]


def test_what_a_site_said_in_a_round_that_was_lost_still_counts(tmp_path):
    options = config(noise_multiplier=2.0)
    before = Noted(tmp_path)
    note(before, options, "a", figures(5.0))  # its round is lost: the server is killed
    resumed = Noted(tmp_path)
    note(resumed, options, "b", figures(4.0))  # and it does not answer again
    assert resumed.noted[-1]["epsilon"] == 5
