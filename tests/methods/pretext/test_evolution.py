"""A round of voting at the server, with sites, models and vectors that a test can see through."""

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from murmura.errors import DataError, PrivacyError
from murmura.methods.pretext import evolution as evolution_module
from murmura.methods.pretext.ballots import require_allowed
from murmura.methods.pretext.config import PretextConfig
from murmura.methods.pretext.evolution import CANDIDATES, DRAWN, VOTES, Evolution, starting, union
from murmura.methods.pretext.guarantee import plan
from murmura.methods.pretext.selection import select
from murmura.streams import Stream
from tests.federation.world import journals
from tests.methods.pretext.world import Replies


class Vectors:
    """An encoder to whom a text is where the numbers in it say."""

    def embed(self, texts):
        found = np.zeros((len(texts), 2), np.float32)
        for row, text in zip(found, texts, strict=True):
            angle = 0.1 * sum(int(word) for word in text.split() if word.isdigit())
            row[:] = np.cos(angle), np.sin(angle)
        return found


class Adding:
    """Variation: one more number at the end of a text, drawn with its own stream."""

    def vary(self, texts, streams):
        return [f"{text} {stream.python().randrange(3)}" for text, stream in zip(texts, streams, strict=True)]


class Words:
    """A tokenizer to whom a word is a token."""

    def __call__(self, texts, **options):
        return {"input_ids": [text.split() for text in texts]}

    def decode(self, ids, **options):
        return " ".join(ids)


def at(*places, dtype=torch.int32):
    """Votes for some candidates, one each."""
    return lambda count: torch.bincount(torch.tensor(places, dtype=torch.int64), minlength=count).to(dtype)


def evolution(tmp_path, fleet, *, shares=0, **options):
    (tmp_path / "public.jsonl").write_text("".join(f'{{"text": "one two three {k}"}}\n' for k in range(40)))
    options = {
        "public": str(tmp_path / "public.jsonl"),
        "public_words": 3,
        "population": 20,
        "rounds": 3,
        "lookahead": 0,
        "noise_multiplier": 0,
        "threshold": 0.0,
        "distance": False,
    } | options
    config = PretextConfig.parse(options, "test")
    noted, events, told = {}, [], []
    server = SimpleNamespace(
        store={},
        stream=Stream(0),
        journal=journals(),
        note=noted.__setitem__,
        event=events.append,
        note_privacy=told.append,
        evaluation_set=SimpleNamespace(subjects=["one two three 7"]),
        runtime=SimpleNamespace(tokenizer=Words(), resources=SimpleNamespace(encoder=lambda option: Vectors())),
    )
    found = Evolution(config, server, fleet, shares)
    found.__dict__["variation"] = Adding()
    return SimpleNamespace(evolution=found, server=server, noted=noted, events=events, told=told)


def test_survivors_are_varied_and_the_seeds_are_those_of_all_rounds(tmp_path):
    world = evolution(tmp_path, Replies(at(4, 4, 9), at(9)), lookahead=2)
    for round in (1, 2, 3):
        world.evolution.round(round)
    store, fleet = world.server.store, world.evolution.fleet
    assert [set(drawn) for drawn in store[DRAWN]] == [{4, 9}] * 3
    for before, drawn, after in zip(store[CANDIDATES], store[DRAWN], store[CANDIDATES][1:], strict=False):
        assert all(text.startswith(before[place]) for text, place in zip(after, drawn, strict=True))
    once = PretextConfig(public="x", repeats="once")
    assert union(once, world.server) == [text for own in store[CANDIDATES] for text in dict.fromkeys((own[4], own[9]))]
    assert len(set(store[CANDIDATES][0])) == 20  # of 39 public texts
    assert "one two three 7" not in store[CANDIDATES][0]  # the run is measured with it
    # A candidate stands at the mean of its variations, which is shorter than they are unless they are alike.
    lengths = fleet.asked[0][1]["candidates"].norm(dim=1)
    assert lengths.min() < 0.999 and lengths.max() <= 1.0001
    assert world.noted["seeds"] == len(set(union(once, world.server))) and world.noted["most_votes"] == 2


@pytest.mark.parametrize("lie", [{}, {"distance": 1.0}, {"distance": {"a": 1.0}, "texts": 1}])
def test_distances_that_cannot_be_added_are_left_out(tmp_path, lie):
    class Telling(Replies):
        def sum(self, verb, sites, like=None, **options):
            told = Replies({"distance": 1.5, "texts": 3}, lie) if verb == "report_distance" else self
            found = Replies.sum(told, verb, sites, like, **options)
            self.events = told.events
            return found

    world = evolution(tmp_path, Telling(at(4), at(4)), distance=True)
    world.evolution.round(1)
    assert world.noted["population_distance"] == 0.5 and len(world.evolution.fleet.events) == 1


def test_no_distance_is_told_where_nobody_has_one(tmp_path):
    world = evolution(tmp_path, Replies(), distance=True)
    world.evolution._tell_distance(np.zeros((2, 2), np.float32))
    assert "population_distance" not in world.noted


def test_a_candidate_is_as_many_seeds_as_it_was_drawn_times_unless_all_survive_alike(tmp_path):
    """Hou et al. 2024, section 3: duplicates give more representation."""
    world = evolution(tmp_path, Replies(at(*[4] * 6, 9), at(9)))
    for number in (1, 2):
        world.evolution.round(number)
    store, config = world.server.store, world.evolution.config
    drawn = [[own[place] for place in places] for own, places in zip(store[CANDIDATES], store[DRAWN], strict=True)]
    assert Counter(union(config, world.server)) == Counter(drawn[0]) + Counter(drawn[1])
    assert len(union(config, world.server)) == 40 and Counter(drawn[0])[store[CANDIDATES][0][4]] > 10
    ranked = PretextConfig(public="x", selection="rank")
    assert len(union(ranked, world.server)) == sum(len(set(own)) for own in drawn) >= world.noted["seeds"]


def test_who_survives_and_how_much_it_weighs_follows_from_the_noisy_votes_alone(tmp_path):
    """So that ε covers it: what was published and the run's randomness, without any site, give the same seeds."""
    world = evolution(tmp_path, Replies(at(5, 5, 5), at(6)), noise_multiplier=2.31, threshold=1.0)
    for number in (1, 2, 3):
        world.evolution.round(number)
    store, stream = world.server.store, world.server.stream / "survivors"
    again = [
        select(np.array(votes), 8 * 2.31, "sample", 1, stream / number).drawn
        for number, votes in enumerate(store[VOTES], start=1)
    ]
    assert again == store[DRAWN]
    # Noisy, every round; a single vote is whole once in 64, since what is noised leaves in steps of 1/64.
    assert not any(all(vote.is_integer() for vote in votes) for votes in store[VOTES])
    published = SimpleNamespace(store={CANDIDATES: store[CANDIDATES], DRAWN: again})
    assert union(world.evolution.config, published) == union(world.evolution.config, world.server)


def test_public_texts_are_cut_after_a_whole_sentence_or_are_no_candidates(tmp_path):
    world = evolution(tmp_path, Replies(at()))
    rows = [f"A first one of {k}. And a second one of them." for k in range(9)]
    rows += [f"{k} goes on and on without a stop or end" for k in range(9)]
    (tmp_path / "public.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    some = {"public": str(tmp_path / "public.jsonl"), "public_words": 3, "population": 14, "text_tokens": 8}
    found = starting(PretextConfig(**some), world.server)
    assert set(found) == {f"A first one of {k}." for k in range(9)} and len(found) == 14
    assert max(Counter(found).values()) == 2  # five are there again
    kept = starting(PretextConfig(**some, torn="kept"), world.server)
    assert len(set(kept)) == 14 and all(len(text.split()) == 8 for text in kept)
    with pytest.raises(DataError, match="of no public text the first 4 tokens") as caught:
        starting(PretextConfig(**some).model_copy(update={"text_tokens": 4}), world.server)
    assert caught.value.where == some["public"]


@pytest.mark.parametrize("noise", ["gaussian", "skellam", "discrete-gaussian"])
def test_the_noise_is_exactly_what_is_accounted_for(tmp_path, noise):
    options = {"noise": noise, "noise_multiplier": 2.31, "population": 4000, "rounds": 1, "threshold": 1.0}
    world = evolution(tmp_path, Replies(at(5), at(6)), **options)
    world.evolution.round(1)
    votes = np.array(world.server.store[VOTES][0])
    assert world.noted["vote_noise"] == pytest.approx(8 * 2.31)
    assert votes.std() == pytest.approx(8 * 2.31, rel=0.06)  # five standard errors
    assert noise == "gaussian" or (votes == votes.round()).all()
    assert all(votes[place] > 8 * 2.31 for place in world.server.store[DRAWN][0])  # H is one σ
    [told] = world.told
    expected = plan(world.evolution.config).epsilon(steps=1).value
    assert told["refused"] is None and told["epsilon"] == pytest.approx(expected)


def test_shares_of_more_sites_than_are_needed_make_the_noise_and_the_threshold_larger(tmp_path):
    fleet = Replies(*[at(3)] * 9)
    options = {"noise": "skellam", "noise_multiplier": 2.0, "threshold": 1.0, "shares": 4}
    world = evolution(tmp_path, fleet, **options)
    height = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evolution_module, "select", lambda votes, h, *rest: height.append(h) or select(votes, h, *rest))
        world.evolution.round(1)
    assert world.noted["vote_noise"] == pytest.approx(8 * 2.0 * (9 / 4) ** 0.5) == height[0]


def test_a_round_that_was_lost_has_spent_what_it_spent(tmp_path):
    """Killed after the votes and before the checkpoint: the ledger does not go back, and the sites vote again."""
    world = evolution(tmp_path, Replies(at(5), at(6)), noise_multiplier=2.31)
    world.evolution.round(1)
    world.server.store.clear()
    again = Evolution(world.evolution.config, world.server, world.evolution.fleet)
    again.round(1)
    assert len(world.server.store[VOTES]) == 1
    assert [one["epsilon"] for one in world.told] == pytest.approx([again.plan.epsilon(steps=n).value for n in (1, 2)])


def test_published_pairs_of_noise_and_epsilon():
    for z, epsilon in ((11.3, 1.28748), (2.31, 7.57898)):
        config = PretextConfig(public="x", noise_multiplier=z, accountant="rdp")
        assert plan(config).epsilon(accountant="rdp").value == pytest.approx(epsilon, abs=2e-4)
    assert plan(PretextConfig(public="x", epsilon=7.58)).noise_multiplier == pytest.approx(2.1805, abs=1e-3)


def test_a_sum_with_noise_in_shares_counts_before_its_masks_come_off(tmp_path):
    """ε holds against the server: were it killed while it takes them off, it would have the sum all the same."""
    fleet = Replies(at(5), at(6), at(7))
    world = evolution(tmp_path, fleet, shares=3, noise="skellam", noise_multiplier=2.31)
    fleet.revealing = lambda: pytest.fail("killed")
    with pytest.raises(pytest.fail.Exception):
        world.evolution.round(1)
    fleet.revealing = lambda: None
    world.evolution.round(1)
    ledger = world.evolution.account.ledger
    assert (ledger.rounds, ledger.repeated) == ([1, 1], (1,))
    assert world.told[-1]["epsilon"] == pytest.approx(plan(world.evolution.config, 3).epsilon(steps=2).value)


def test_a_site_that_cannot_have_cast_its_votes_is_left_out(tmp_path):
    stuffed, short = lambda count: torch.full((count,), 8, dtype=torch.int32), lambda count: torch.zeros(3).int()
    fleet = Replies(at(1, 1), stuffed, short, at(2))
    world = evolution(tmp_path, fleet)
    world.evolution.round(1)
    assert fleet.events == [
        "s1: it holds 160 votes, at most 8 may be cast",
        "s2: 'votes' has shape (3,), expected (20,)",
    ]
    assert sum(world.server.store[VOTES][0]) == 3


def test_no_site_sends_more_votes_than_it_may_cast():
    config, site = PretextConfig(public="x", texts_per_site=2), SimpleNamespace(name="north")
    cohort = SimpleNamespace(sites=[site], round=3)
    require_allowed(config, cohort, [torch.tensor([1, 1, 0])])
    with pytest.raises(PrivacyError, match="site north, round 3: votes were about to leave that are too many"):
        require_allowed(config, cohort, [torch.tensor([1, 1, 1])])


def test_votes_that_say_nothing_leave_all_candidates_alike_and_an_event(tmp_path):
    world = evolution(tmp_path, Replies(at(), at()), population=40)
    world.evolution.round(1)
    assert len(set(world.server.store[DRAWN][0])) > 15
    assert "no candidate has votes above the threshold" in world.events[0]


def test_votes_of_other_kinds_move_the_sum_by_one(tmp_path):
    unit = lambda count: torch.full((count,), 1 / count**0.5)  # noqa: E731
    world = evolution(tmp_path, Replies(unit, unit), votes="cosine", noise_multiplier=3.0)
    assert world.evolution.plan.clipping.norm == 1.0
    world.evolution.round(1)
    assert world.noted["vote_noise"] == 3.0
    assert world.told[0]["refused"] is None
    with pytest.raises(PrivacyError, match="another privacy plan"):
        plan_of_before = world.server.journal
        Evolution(
            PretextConfig(public="x", noise_multiplier=5.0), SimpleNamespace(journal=plan_of_before, store={}), None
        )
