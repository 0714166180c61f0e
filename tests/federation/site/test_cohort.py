"""Sites that work together."""

import pytest
import torch

from murmura.aggregation.choosing import RULES, rule
from murmura.aggregation.config import AggregationConfig
from murmura.errors import RefusedError, RunError
from murmura.federation.site.cohort import Cohort
from murmura.federation.site.site import Site
from murmura.federation.wire.messages import Ask, decode, encode
from murmura.methods.fedit.config import FedITConfig
from murmura.methods.fedit.method import FedIT
from murmura.streams import Stream
from murmura.training.config import LocalTraining
from murmura.training.loop import batches
from tests.federation.world import instructions, make_sites, make_workbench
from tests.training.helpers import assert_close, random_state


@pytest.fixture
def runtime(tokenizer):
    return make_workbench(tokenizer)


def cohort_of(runtime, sites, round=3):
    return Cohort(sites, runtime, Ask("train", round), Stream(0))


def test_randomness_belongs_to_round_purpose_and_site(runtime):
    sites = make_sites(2, 2, 2)
    streams = cohort_of(runtime, sites).streams("private")
    assert cohort_of(runtime, sites[2:]).streams("private") == streams[2:]
    seeds = {s.integer() for s in streams}
    seeds |= {s.integer() for s in cohort_of(runtime, sites).streams("synthetic")}
    seeds |= {s.integer() for s in cohort_of(runtime, sites, round=4).streams("private")}
    assert len(seeds) == 9


def test_fields_as_each_site_got_them(runtime):
    cohort = cohort_of(runtime, make_sites(1, 1, 1))
    cohort.sites[2].store["lr"] = 0.3
    ask = Ask("train", 3, {"records": 5, "none": None}, {"site-1": {"lr": 0.1, "records": 6}, "site-0": {"lr": 0.2}})
    assert cohort.given(ask, "records") == [5, 6, 5]
    assert cohort.given(ask, "none", default=lambda site: 1) == [None] * 3
    assert cohort.given(ask, "lr", default=lambda site: site.store["lr"]) == [0.2, 0.1, 0.3]
    with pytest.raises(KeyError):
        cohort.given(ask, "lr")


def test_one_reply_a_site(runtime):
    cohort = cohort_of(runtime, make_sites(2, 1))
    replies = cohort.reply(examples=cohort.sizes, loss=[0.1, None])
    assert [(reply.site, reply.fields) for reply in replies] == [
        ("site-0", {"examples": 2, "loss": 0.1}),
        ("site-1", {"examples": 1, "loss": None}),
    ]


def test_a_site_trains_as_if_alone(runtime):
    sites, start = make_sites(3, 2, 4), random_state(runtime.bank, 0)
    together = cohort_of(runtime, sites)
    found = together.train(together.own(), [start] * 3, 0.01, "private")
    for k, site in enumerate(sites):
        alone = cohort_of(runtime, [site])
        assert_close(alone.train(alone.own(), [start], 0.01, "private")[0].state, found[k].state)


def test_public_records_are_kept_beside_the_own_ones_and_are_no_members(runtime):
    sites, public = make_sites(3, 2), instructions(4, seed=50)
    cohort = cohort_of(runtime, sites)
    assert cohort.public() == [[], []] and cohort.examples == cohort.sizes == [3, 2]
    sites[0].keep("public", public[:3], 4)
    sites[0].store = decode(encode(sites[0].store))  # as it is kept
    assert sites[0].public == public[:3] and cohort.examples == [3 + 4, 2] and cohort.sizes == [3, 2]
    own, kept = cohort.own(), cohort.public()
    assert [len(items) for items in kept] == [3, 0]
    assert FedIT(FedITConfig()).members(sites[0], Stream(0)) == make_sites(3, 2)[0].records
    assert [items[: len(mine)] for items, mine in zip(cohort.own_and_others(), own, strict=True)] == own
    assert [items[len(mine) :] for items, mine in zip(cohort.own_and_others(), own, strict=True)] == kept


def test_written_records_are_trained_on_too_and_are_not_public(runtime):
    sites, made = make_sites(3, 2), instructions(2, seed=50)
    cohort = cohort_of(runtime, sites)
    sites[0].keep("written", made, 5)
    sites[0].store = decode(encode(sites[0].store))  # as it is kept
    assert sites[0].written == made and sites[0].public == [] and cohort.examples == [3 + 5, 2]
    assert cohort.public() == [[], []] and [len(items) for items in cohort.others()] == [2, 0]
    assert [len(items) for items in cohort.own_and_others()] == [3 + 2, 2]
    assert FedIT(FedITConfig()).members(sites[0], Stream(0)) == make_sites(3, 2)[0].records


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (None, "something else than an adapter"),
        ({"w": [1.0]}, "something else than an adapter"),
        ({"w": torch.tensor([1.0, float("nan")])}, "a NaN or an infinity"),
        ({"w": torch.tensor([127], dtype=torch.int8), "w.scales": torch.tensor([3e38])}, "a NaN or an infinity"),
    ],
)
def test_what_the_server_sends_in_place_of_an_adapter_is_refused(runtime, sent, why):
    fields = {} if sent is None else {"adapter": sent}
    ask = Ask("train", 1, fields)
    with pytest.raises(RefusedError, match=why):
        Cohort([Site("a", [])], runtime, ask, Stream(0)).starts(ask)


def test_divergence_names_round_site_and_step(runtime):
    sites = [*make_sites(2, 2), Site("ward 7/b", instructions(4, seed=9))]
    cohort = cohort_of(runtime, sites)
    training, weights = LocalTraining(batch_size=2), [[1.0] * 2, [1.0] * 2, [1.0] * 4]
    late = list(batches(4, training, cohort.streams("private")[2]))[1][0]  # a record of its second step
    weights[2][late] = float("nan")
    starts = [random_state(runtime.bank, 0)] * 3
    with pytest.raises(RunError, match="no longer a finite number") as error:
        cohort.train(cohort.own(), starts, 0.01, "private", training, weights=weights)
    assert error.value.where == "round 3, site ward 7/b, step 2 (private)"
    assert "--resume" in error.value.fix


def test_a_site_is_not_blamed_for_an_adapter_that_it_was_sent(runtime):
    cohort = cohort_of(runtime, make_sites(2))
    broken = {name: torch.full_like(tensor, 1e30) for name, tensor in random_state(runtime.bank, 0).items()}
    with pytest.raises(RunError, match="before anything is trained: so it is the adapter that") as error:
        cohort.train(cohort.own(), [broken], 0.01, "private")
    assert "not of this site or its records" in error.value.fix


def test_a_residual_that_no_rule_of_the_run_makes_is_refused(runtime):
    """A server could have a site fail, or not, by how large it makes it."""
    start = random_state(runtime.bank, 0)
    one = next(name for name in start if ".lora_A." in name)
    more = {
        one.replace(".lora_A.", ".residual_A."): torch.ones(9, start[one].shape[1]),
        one.replace(".lora_A.", ".residual_B."): torch.ones(start[one.replace("_A.", "_B.")].shape[0], 9),
    }
    [site] = make_sites(2)
    for kind in RULES:
        options = {"kind": kind, **({"norm": 1.0} if kind == "norm-bound" else {})}
        chosen = rule(AggregationConfig(rule=options))
        ask = Ask("train", 1, {"adapter": chosen.download(start, None, 1) | more})
        cohort = Cohort([site], runtime, ask, Stream(0), chosen)
        if kind in ("fedex", "flora"):
            assert cohort.starts(ask)[0].keys() == (start | more).keys()
            large = {name: torch.ones([10**3 if side == 9 else side for side in more[name].shape]) for name in more}
            lone = dict([next(iter(more.items()))])
            for other in (large, lone):
                with pytest.raises(RefusedError, match="a higher rank than its weight can have"):
                    cohort.starts(Ask("train", 1, {"adapter": start | other}))
        else:
            with pytest.raises(RefusedError, match="has sent a residual"):
                cohort.starts(ask)


@pytest.mark.parametrize(("kind", "own"), [("fedsa", "B"), ("ffa", "A")])
def test_a_factor_that_no_server_of_the_run_sends_is_refused(runtime, kind, own):
    """A site would lose what is its own, and train the other factor beside one that the server chose."""
    [site], whole = make_sites(2), random_state(runtime.bank, 0)
    kept = site.store["adapter"] = random_state(runtime.bank, 1)
    sent = {name: tensor for name, tensor in whole.items() if f".lora_{own}." not in name}
    for adapter, refused in ((sent, False), (whole, True)):
        ask = Ask("train", 1, {"adapter": adapter})
        cohort = Cohort([site], runtime, ask, Stream(0), rule(AggregationConfig(rule=kind)))
        if refused:
            with pytest.raises(RefusedError, match="a factor that this run's rule does not have it send"):
                cohort.starts(ask)
        else:
            assert_close(cohort.starts(ask)[0], kept | sent)
