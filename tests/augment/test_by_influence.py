"""What LESS fetches: sites answer with gradients of their own records, on a tiny model."""

import random
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from murmura.augment import influence
from murmura.augment.config import AugmentConfig
from murmura.augment.strategies import choosing, weigh
from murmura.augment.verbs import Augmenting
from murmura.data.records import Instruction
from murmura.errors import RunError
from murmura.federation import forecast
from murmura.federation.site.cohort import Cohort
from murmura.federation.site.site import Site
from murmura.federation.wire.messages import Ask, Reply
from murmura.retrieval.rademacher import RademacherProjection
from murmura.streams import Stream
from murmura.training import by_example
from tests.conftest import WORDS
from tests.methods.harness import records, runtime
from tests.retrieval.pools import make_pool, unit

OPTIONS = {"pool": "pool", "strategy": "less", "less_warm_up": 0.5, "less_epochs": 2, "less_lr": 1e-3}
OPTIONS |= {"less_batch": 4, "less_dimension": 512}
ROWS = 10
ANSWERS = {
    "kidney": "tablets daily dose evening food blood test monday morning",
    "heart": "summary letter breath doctor visit rash spreads skin fever",
}


class Fleet:
    """Sites that answer as they do in a run, all in one cohort, in another order than they are asked in."""

    def __init__(self, config, bench, sites, spoil=lambda found: found):
        self.config, self.bench, self.sites, self.spoil, self.asked = config, bench, sites, spoil, []
        self.left_out = {}

    def ask(self, verb, sites, each=None, *, refused, **shared):
        self.asked.append((verb, list(sites), shared))
        ask = Ask(verb, 1, shared)
        cohort = Cohort([self.sites[site] for site in sites if site in self.sites], self.bench, ask, Stream(0))
        for reply in reversed(Augmenting(self.config).features(cohort, ask)):
            spoilt = Reply(reply.site, {"features": self.spoil(reply["features"])})
            if why := refused(spoilt):
                self.left_out[reply.site] = why
            else:
                yield spoilt


@pytest.fixture
def bench(llama, tokenizer):
    return runtime(llama, tokenizer)


@pytest.fixture
def sites():
    """Each asks three questions that have one answer, in words of its own."""
    return {
        topic: Site(topic, [replace(record, output=answer) for record in records(topic, 3)])
        for topic, answer in ANSWERS.items()
    }


@pytest.fixture
def pool(tmp_path, sites):
    """Answers of words by chance; rows 4 and 7 answer other questions as records of the two sites do."""
    rng, others = random.Random(0), [word for word in WORDS if word not in " ".join(ANSWERS.values())]
    rows = [Instruction(f"draft note {row}", "", " ".join(rng.sample(others, 9))) for row in range(ROWS)]
    for row, answer in zip((4, 7), ANSWERS.values(), strict=True):
        rows[row] = Instruction(f"what about patient {row}", "", answer)
    return make_pool(tmp_path / "pool", unit(ROWS, 4), records=rows)


def choose(bench, sites, pool, *, withheld=None, asked=None, spoil=lambda found: found, **options):
    chosen = choosing(AugmentConfig(**OPTIONS | options), withheld)
    stream = Stream(0)
    server = SimpleNamespace(stream=stream, runtime=bench, adapter=bench.bank.initial(stream / "adapter"), round=1)
    fleet = Fleet(chosen.config, bench, sites, spoil)
    return chosen, chosen.choose(server, fleet, asked or list(sites), pool, 1), fleet


@pytest.mark.parametrize("over", ["max", "mean"])
def test_what_a_site_s_own_gradients_point_at_comes_first(bench, sites, pool, over):
    chosen, found, fleet = choose(bench, sites, pool, records=3, less_over=over)
    assert {site: int(one.rows[0]) for site, one in found.items()} == {"kidney": 4, "heart": 7}
    for one in found.values():
        assert len(set(one.rows)) == 3 and list(one.scores) == sorted(one.scores, reverse=True)
        assert -1 <= one.scores[-1] < one.scores[0] <= 1.0001
    [(verb, asked, shared)] = fleet.asked
    assert (verb, asked, shared["epochs"]) == ("features", list(ANSWERS), 2)
    assert shared.keys() == {"epochs", "epoch-1", "epoch-2"}
    assert chosen.why(found["kidney"], 0).startswith("number 1 of those")
    assert ("on average" in chosen.why(found["kidney"], 0)) == (over == "mean")


def test_it_is_the_same_again_and_whoever_shares_the_cohort(bench, sites, pool):
    _, together, _ = choose(bench, sites, pool, records=3)
    _, alone, _ = choose(bench, {"heart": sites["heart"]}, pool, records=3, asked=["gone", "heart"])
    assert list(alone) == ["heart"]
    assert (alone["heart"].rows == together["heart"].rows).all()
    assert (alone["heart"].scores == together["heart"].scores).all()


def test_rows_that_nobody_is_given_or_that_do_not_fit_are_left_out(bench, sites, tmp_path, pool):
    rows = [*pool.records(np.arange(ROWS)), Instruction("too long", "", "word " * 300)]
    longer = make_pool(tmp_path / "longer", unit(ROWS + 1, 4), records=rows)
    _, found, _ = choose(bench, sites, longer, records=50, withheld=np.array([4]))
    assert sorted(found["kidney"].rows) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    _, found, _ = choose(bench, sites, pool, records=6, dedup="all")
    assert len({*found["kidney"].rows, *found["heart"].rows}) == ROWS and len(found["heart"].rows) == 4


def test_of_a_sample_only_its_rows_are_compared_and_that_is_told(bench, sites, pool):
    chosen, found, _ = choose(bench, sites, pool, records=4, less_sample=4)
    assert sorted(found["kidney"].rows) == sorted(found["heart"].rows) and len(found["heart"].rows) == 4
    assert chosen.title == "LESS among 4 records of the pool"
    assert choosing(AugmentConfig(**OPTIONS)).title == "LESS"


def test_a_budget_in_bytes_is_spent_on_the_best(bench, sites, pool):
    _, some, _ = choose(bench, sites, pool, bytes=700)
    _, best, _ = choose(bench, sites, pool, records=ROWS)
    for site, one in some.items():
        assert 0 < len(one.rows) < ROWS and (one.rows == best[site].rows[: len(one.rows)]).all()
        assert sum(weigh(pool.records(one.rows))) <= 700


@pytest.mark.parametrize("most", [3, 16])
def test_a_record_is_forecast_with_its_share_of_a_matrix_of_random_signs(bench, pool, monkeypatch, most):
    """Where a matrix takes 6 seconds and a gradient 2, and one matrix serves so many records."""
    clock, project, gradients = [0], RademacherProjection.__call__, by_example.example_gradients

    def take(each, work):
        return lambda first, second, *rest: clock.append(clock.pop() + each(second)) or work(first, second, *rest)

    monkeypatch.setattr(RademacherProjection, "__call__", take(lambda vectors: 6, project))
    monkeypatch.setattr(influence, "example_gradients", take(lambda items: 2 * len(items), gradients))
    monkeypatch.setattr(forecast.time, "perf_counter", lambda: clock[0])
    monkeypatch.setitem(by_example.HELD, "cpu", most * bench.bank.size)
    trial = forecast.Trial(bench, bench, pool.records(np.arange(ROWS)), [])
    chosen = choosing(AugmentConfig(**OPTIONS))
    assert chosen._gradient(trial) == pytest.approx(2 + 6 / most)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda found: found[:1], r"has shape \(1, 3, 512\), expected \(2, 3, 512\)"),
        (lambda found: found[..., :5], r"has shape \(2, 3, 5\), expected \(2, 3, 512\)"),
        (lambda found: found[0], r"has shape \(3, 512\), expected"),
        (lambda found: found / 0, "holds a NaN or an infinity"),
        (lambda found: found.double(), "is torch.float64, expected torch.float32"),
        (lambda found: None, "is missing"),
    ],
)
def test_a_site_whose_gradients_cannot_be_used_is_left_out(bench, sites, pool, spoil, why):
    _, found, fleet = choose(bench, sites, pool, records=2, spoil=spoil)
    assert not found and fleet.left_out.keys() == sites.keys()
    assert re.match(f"'features' {why}", fleet.left_out["heart"])


def test_a_warm_up_that_comes_to_nothing_stops_the_run(bench, sites, pool, tmp_path):
    with pytest.raises(RunError, match=r"warm-up of LESS, step \d+: .*no longer a finite.* Lower augment\.less_lr"):
        choose(bench, sites, pool, records=2, less_lr=1e30, less_epochs=4)
    long = make_pool(tmp_path / "long", unit(2, 4), records=[Instruction("long", "", "word " * 300)] * 2)
    with pytest.raises(RunError, match=r"augment\.pool: none of the 1 records of the pool that were drawn fits 256"):
        choose(bench, sites, long, records=1)


def test_what_a_site_sends_is_declared_and_said_to_be_invertible():
    [(name, release)] = Augmenting(AugmentConfig(**OPTIONS)).releases("features").items()
    assert (name, release.kind, release.protection) == ("features", "embeddings", None)
    assert "single record" in release.what and "turned back into much of its text" in release.note
