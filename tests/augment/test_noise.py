"""Noise on centres: what a site sends and enters in its ledger, and what is told of its ε."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from murmura.augment import noise
from murmura.augment.config import AugmentConfig
from murmura.augment.verbs import Augmenting
from murmura.data.records import Instruction
from murmura.errors import PrivacyError
from murmura.federation.site.site import Site
from murmura.federation.wire.releases import DifferentialPrivacy
from murmura.privacy.guarantee import Cost
from murmura.privacy.ledger import PrivacyLedger
from murmura.streams import Stream
from tests.federation.world import journals
from tests.retrieval.pools import make_pool, unit

NOISY = AugmentConfig(pool="pool", clusters=4, noise_multiplier=2.0, every=2)
PLAN = noise.planned(NOISY, rounds=5)  # in rounds 1, 3 and 5
STARTS = torch.from_numpy(unit(4, 8, seed=1))


class Encoder:
    """Knows the vector of each number, and none of several texts together, where it would depend on the others."""

    def embed_each(self, texts):
        return unit(99, 8)[[int(text) for text in texts]]


def site(count, **options):
    return Site("ward", [Instruction(str(number), "", "") for number in range(count)], **options)


def answer(one, round=1, config=NOISY, plan=PLAN):
    return noise.answer(one, one.records, round, STARTS, config, plan, Encoder())


def test_a_site_enters_what_its_centres_cost_before_they_leave():
    one = site(60)
    told = answer(one)
    assert told["centres"].dtype == torch.float32 and told["centres"].shape[1:] == (8,)
    assert told["sizes"].dtype == torch.int64 and len(told["sizes"]) == len(told["centres"])
    assert told["privacy"]["epsilon"] == PLAN.epsilon(3).value and told["privacy"]["refused"] is None
    assert told["privacy"]["answers"] == 1
    assert PrivacyLedger.of(one.centres).steps == 3
    assert one.journal.lines == []  # which would be for the run as a whole


def test_centres_that_are_sent_again_cost_more_whether_it_was_planned_or_not():
    one = site(60)
    spent = [answer(one, round)["privacy"]["epsilon"] for round in (1, 1, 3)]  # the first one was repeated
    assert spent == [PLAN.epsilon(steps).value for steps in (3, 6, 9)] and spent[0] < spent[1] < spent[2]
    assert answer(one, 5)["privacy"]["epsilon"] == pytest.approx(PLAN.epsilon(12).value)
    assert "12 steps where 9 were planned" in answer(one, 7)["privacy"]["refused"]


def test_what_a_site_says_of_its_epsilon_does_not_depend_on_its_records():
    assert len({str(answer(site(count))["privacy"]) for count in (0, 1, 60)}) == 1


def test_a_ledger_of_another_plan_is_refused_and_nothing_is_sent():
    one = site(9)
    answer(one)
    with pytest.raises(PrivacyError, match="begun under another privacy plan"):
        answer(one, plan=noise.planned(NOISY, rounds=9))


def test_a_ledger_that_cannot_be_written_lets_nothing_leave(monkeypatch):
    one = site(9)
    monkeypatch.setattr(one.centres, "append", lambda line: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        answer(one)


def test_clusters_that_are_too_small_by_noisy_counts_are_left_out():
    quiet = NOISY.model_copy(update={"noise_multiplier": 0.01, "smallest_cluster": 10})
    told = answer(site(60), config=quiet, plan=noise.planned(quiet, 5))
    assert 0 < len(told["sizes"]) <= 4 and told["sizes"].min() >= 10
    some = answer(site(5), config=quiet, plan=noise.planned(quiet, 5))
    assert len(some["centres"]) == len(some["sizes"]) == 0


def test_k_means_starts_from_public_records_of_the_domain_the_same_everywhere(tmp_path):
    vectors = np.concatenate([unit(20, 8, seed=1), -np.abs(unit(20, 8, seed=2))])[[*range(0, 40)]]
    order = np.arange(40).reshape(2, 20).T.ravel()  # domains by turns
    pool = make_pool(tmp_path / "pool", vectors[order])
    begin = noise.starts(NOISY, pool, None, Stream(0))
    assert begin.shape == (4, 8) and torch.equal(begin, noise.starts(NOISY, pool, None, Stream(0)))
    math = noise.starts(NOISY.model_copy(update={"domain": "math"}), pool, None, Stream(0))
    assert (math < 0).all()


def test_the_epsilon_that_is_told_is_that_of_the_least_protected_site():
    server = SimpleNamespace(journal=journals(), round=1, may_answer=lambda sites: sites)
    once = noise.planned(NOISY, 1).epsilon().value

    def told(**spent):
        for site, epsilon in spent.items():
            noise.reported(server).record(
                site, {"epsilon": epsilon, "refused": None if epsilon else "why", "answers": 9}
            )
        return noise.guaranteed(server, NOISY)

    noise.asked(server, NOISY, [])  # all are barred: the ask that follows says so
    assert noise.guaranteed(server, NOISY).epsilon == 0.0
    noise.asked(server, NOISY, ["a", "b"])
    found = told(a=once)  # b has not said what its answer has cost, if there is one
    assert (found.epsilon, found.delta, found.adjacency) == (once, 1e-5, "zero-out")
    assert found.plan == noise.planned(NOISY, 1).describe()
    noise.asked(server, NOISY, ["a", "b"])
    assert told(a=2.0 * once, b=3.0 * once).epsilon == 3.0 * once
    assert told(a=2.5 * once).epsilon == 3.0 * once  # b no longer answers
    noise.asked(server, NOISY, ["b"])
    thrice = noise.planned(NOISY, 5).epsilon().value  # in rounds 1, 3 and 5
    assert noise.guaranteed(server, NOISY).epsilon == max(3.0 * once, thrice)
    assert told(a=None).refused == "site a says: why"


def test_what_leaves_is_declared_with_its_protection():
    plain, noisy = Augmenting(AugmentConfig(pool="pool")), Augmenting(NOISY, rounds=5)
    assert plain.releases("centres").keys() == {"centres", "sizes"}
    assert all(one.protection is None for one in plain.releases("centres").values())
    told = noisy.releases("centres")
    assert {name for name, one in told.items() if isinstance(one.protection, DifferentialPrivacy)} == {
        "centres",
        "sizes",
    }
    assert "9 steps" in told["sizes"].protection.words and told["privacy"].protection is None
    assert noisy.cost("centres", 7, None) == Cost(PLAN, 3)
    assert plain.cost("centres", 7, None) is None and noisy.is_free("take")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"noise_iterations": 5}, "without a 'noise_multiplier'"),
        ({"noise_delta": 1e-6}, "without a 'noise_multiplier'"),
        ({"noise_multiplier": 1.0, "every": 2, "focus": "hardest"}, "hardest depends on all"),
        ({"noise_multiplier": 1.0, "strategy": "random"}, "with strategy 'random'"),
        ({"noise_multiplier": 0.0}, "greater than 0"),
    ],
)
def test_options_that_do_nothing_or_break_the_promise_are_refused(options, said):
    with pytest.raises(ValidationError, match=said):
        AugmentConfig(pool="pool", **options)


def test_how_often_centres_are_sent_follows_from_the_rounds():
    assert PLAN.steps == 9 and noise.planned(NOISY.model_copy(update={"every": None}), rounds=5).steps == 3
