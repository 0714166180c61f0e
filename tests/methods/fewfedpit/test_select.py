import math
import random

import pytest
import torch

from murmura.data.records import Instruction
from murmura.data.tokenising import tokenise_response
from murmura.methods.fewfedpit.select import Opinion, choose, judge
from murmura.streams import Stream
from tests.methods.harness import records, runtime


def opinions(*ratios):
    return [Opinion(ratio * 2.0, 2.0) for ratio in ratios]


def chosen(scorer, found, keep=2, seed=0):
    return choose(scorer, found, keep, random.Random(seed))


def test_ifs_keeps_the_lowest_ratios():
    choice = chosen("ifs", opinions(0.9, 0.4, 1.2, 0.7))
    assert choice.kept == [1, 3]
    assert choice.counts == {"drafts.kept": 2, "drafts.outranked": 2, "kept.ratio_of_1_or_more": 0}


def test_ifd_keeps_the_highest_ratios_up_to_one():
    assert chosen("ifd", opinions(0.9, 0.4, 1.2, 0.7)).kept == [0, 3]
    assert chosen("ifd", opinions(1.0, 0.9, 1.1), keep=1).kept == [0]


@pytest.mark.parametrize("scorer", ["ifs", "ifd", "ppl", "random"])
def test_every_scorer_keeps_as_many_drafts(scorer):
    """Otherwise arms would differ in M, and not in the scorer alone."""
    choice = chosen(scorer, opinions(1.5, 1.2, 0.7, 1.1), keep=3)
    assert len(choice.kept) == choice.counts["drafts.kept"] == 3
    if scorer in ("ifs", "ifd"):
        assert choice.kept == [1, 2, 3]
        assert choice.counts["kept.ratio_of_1_or_more"] == 2


def test_ppl_looks_at_the_response_after_its_prompt_alone():
    found = [Opinion(2.0, 9.0), Opinion(1.0, 0.5), Opinion(3.0, 30.0)]
    assert chosen("ppl", found).kept == [0, 1]


def test_random_needs_no_loss_and_follows_its_stream():
    found = [Opinion(math.nan, math.nan)] * 20
    picks = [chosen("random", found, 5, seed).kept for seed in range(3)]
    assert all(len(pick) == 5 for pick in picks)
    assert picks[0] == chosen("random", found, 5, 0).kept
    assert len({tuple(pick) for pick in picks}) == 3


@pytest.mark.parametrize("scorer", ["ifs", "ifd", "ppl", "random"])
def test_drafts_that_do_not_fit_are_dropped(scorer):
    choice = chosen(scorer, [None, *opinions(0.5)])
    assert choice.kept == [1]
    assert choice.counts["drafts.does_not_fit"] == 1


@pytest.mark.parametrize(
    ("given", "alone"),
    [(1.0, 0.0), (math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0), (math.inf, math.inf), (0.0, 0.0)],
)
def test_a_ratio_that_is_no_number_is_infinite_and_never_chosen(given, alone):
    opinion = Opinion(given, alone)
    assert opinion.ratio == math.inf
    for scorer in ("ifs", "ifd"):
        assert +chosen(scorer, [opinion]).counts == {"drafts.no_score": 1}


def test_a_perplexity_that_is_no_number_is_never_chosen():
    assert chosen("ppl", [Opinion(math.nan, 1.0), Opinion(math.inf, 1.0)]).kept == []


def test_fewer_than_asked_are_all_kept():
    assert chosen("ifs", opinions(0.5, 0.2), keep=16).kept == [0, 1]


# ---- the judge ----------------------------------------------------------------------------------------------------


def adapters(bench, count):
    states = [bench.bank.initial(Stream(k)) for k in range(count)]
    for k, state in enumerate(states):
        for name in state:
            if ".lora_B." in name:
                state[name] = torch.randn(state[name].shape, generator=torch.Generator().manual_seed(k))
    return states


@torch.no_grad()
def direct(bench, adapter, item):
    """Mean token NLL by the model's own logits."""
    bench.bank.load([adapter])
    bench.bank.route(torch.zeros(1, dtype=torch.long))
    logits = bench.bank.model(input_ids=torch.tensor([item.ids])).logits[0, :-1]
    log_p = logits.log_softmax(-1)[torch.arange(len(item.ids) - 1), torch.tensor(item.ids[1:])]
    return float(-log_p[item.start - 1 :].mean())


def test_each_site_s_drafts_are_scored_by_its_own_adapter_with_and_without_the_prompt(llama, tokenizer):
    bench = runtime(llama, tokenizer)
    states, drafts = adapters(bench, 2), [records("kidney", 3), records("heart", 2)]
    found = judge(bench, states, drafts, "ifs")
    assert [len(own) for own in found] == [3, 2]
    for state, own, opinions in zip(states, drafts, found, strict=True):
        for draft, opinion in zip(own, opinions, strict=True):
            alone = tokenise_response(draft, bench.template, tokenizer, bench.max_length)
            assert opinion.given == pytest.approx(direct(bench, state, bench.reading.tokenise([draft])[0]), abs=1e-5)
            assert opinion.alone == pytest.approx(direct(bench, state, alone), abs=1e-5)


def test_more_sites_than_slots_are_judged_alike(llama, tokenizer):
    bench, drafts = runtime(llama, tokenizer), [records(topic, 2) for topic in ("kidney", "heart", "skin")]
    states = adapters(bench, 3)
    together = judge(bench, states, drafts, "ifs")
    bench.slots = 1
    apart = judge(bench, states, drafts, "ifs")
    for own, other in zip(together, apart, strict=True):
        assert [o.ratio for o in own] == pytest.approx([o.ratio for o in other], abs=1e-6)


def test_only_what_the_scorer_needs_is_computed(llama, tokenizer, monkeypatch):
    bench = runtime(llama, tokenizer)
    scored = []
    score = bench.score
    monkeypatch.setattr(bench, "score", lambda a, items, **k: scored.append(len(items)) or score(a, items, **k))
    for scorer in ("ifs", "ifd", "ppl", "random"):
        judge(bench, adapters(bench, 1), [records("skin", 3)], scorer)
    assert scored == [6, 6, 3, 0]


def test_a_draft_that_does_not_fit_has_no_opinion(llama, tokenizer):
    bench = runtime(llama, tokenizer)
    long = Instruction("explain the long letter", "", "word " * 400)
    [[none, some]] = judge(bench, adapters(bench, 1), [[long, records("skin", 1)[0]]], "ifs")
    assert none is None
    assert some.given > 0
