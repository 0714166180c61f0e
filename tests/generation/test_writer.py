"""Writing against transformers' own, what ends a continuation, and what changes nothing: company, order, memory."""

import random

import pytest
import torch

from murmura.generation import decoder
from murmura.generation.ending import end_tokens
from murmura.generation.sampling import Sampling
from murmura.generation.writer import complete
from murmura.streams import Stream
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from tests.conftest import make_gpt2, make_llama, restless
from tests.generation.families import FAMILIES, LIMIT, PROMPTS, SLOTS
from tests.training.helpers import peft_of, random_state


@pytest.fixture(params=FAMILIES)
def family(request, tokenizer):
    """A bank with three slots, and PEFT's model of each slot."""
    make, targets = FAMILIES[request.param]
    spec = LoraSpec(rank=4, alpha=8, targets=targets, dora=request.param.endswith("dora"))
    bank = Bank(restless(make(tokenizer)), spec)
    states = [random_state(bank, seed, scale=0.2) for seed in range(3)]
    bank.load(states)
    transposed = make is make_gpt2
    return bank, [peft_of(restless(make(tokenizer)), spec, state, transposed=transposed) for state in states]


@pytest.fixture
def bank(tokenizer):
    bank = Bank(restless(make_llama(tokenizer)), LoraSpec(rank=4, alpha=8, targets=FAMILIES["llama"][1]))
    bank.load([random_state(bank, seed, scale=0.2) for seed in range(3)])
    return bank


def generate(model, prompt, ends, pad, **more):
    """What transformers writes, without the end and what follows it, and whether it came to an end."""
    given = {"input_ids": torch.tensor([prompt]), "attention_mask": torch.ones(1, len(prompt))}
    out = model.generate(**given, max_new_tokens=LIMIT, do_sample=False, eos_token_id=ends, pad_token_id=pad, **more)
    row = out[0, len(prompt) :].tolist()
    stops = [place for place, token in enumerate(row) if token in ends]
    return (row[: stops[0]], True) if stops else (row, False)


def test_token_for_token_what_transformers_writes(family, tokenizer):
    bank, models = family
    free = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6)
    assert len({tuple(text.ids) for text in free}) == 6
    # Two tokens that the models do write become ends, each of another row.
    named = [free[1].ids[4], free[4].ids[-2]]
    bank.model.generation_config.eos_token_id = named
    ends = end_tokens(bank.model, tokenizer)
    assert ends == {tokenizer.eos_token_id, *named}
    ours = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6)
    assert {text.finished for text in ours} == {True, False}
    for slot, model in enumerate(models):
        rows = [row for row, other in enumerate(SLOTS) if other == slot]
        theirs = [generate(model, PROMPTS[row], sorted(ends), tokenizer.pad_token_id) for row in rows]
        assert [(ours[row].ids, ours[row].finished) for row in rows] == theirs
    assert [text.text for text in ours] == [tokenizer.decode(text.ids, skip_special_tokens=True) for text in ours]


@pytest.mark.parametrize("family", ["llama", "mamba"], indirect=True)
def test_nonempty_texts_are_those_of_transformers_with_a_token_at_least(family, tokenizer):
    bank, models = family
    free = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6)
    bank.model.generation_config.eos_token_id = [text.ids[0] for text in free[:3]]  # these would end at once
    ends = sorted(end_tokens(bank.model, tokenizer))
    assert [text.ids for text in complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6)][:3] == [[], [], []]
    ours = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6, nonempty=True, rows=2)
    assert all(text.ids for text in ours)
    for text, slot, prompt in zip(ours, SLOTS, PROMPTS, strict=True):
        theirs = generate(models[slot], prompt, ends, tokenizer.pad_token_id, min_new_tokens=1)
        assert (text.ids, text.finished) == theirs


def test_limits_are_each_rows_own(bank, tokenizer):
    full = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6)
    limits = [3, 0, 12, 1, 7, 5]
    cut = complete(bank, tokenizer, PROMPTS, SLOTS, limits)
    assert [text.ids for text in cut] == [text.ids[:limit] for text, limit in zip(full, limits, strict=True)]
    assert not any(text.finished for text in cut)
    assert cut[1].text == ""


def test_nothing_to_write(bank, tokenizer):
    assert complete(bank, tokenizer, [], [], []) == []
    assert [text.ids for text in complete(bank, tokenizer, PROMPTS[:2], [0, 1], [0, 0])] == [[], []]


def test_how_many_are_written_at_once_changes_nothing(bank, tokenizer):
    limits = [3, 9, 12, 1, 7, 5]
    together = complete(bank, tokenizer, PROMPTS, SLOTS, limits)
    for rows in (1, 2, 5):
        assert complete(bank, tokenizer, PROMPTS, SLOTS, limits, rows=rows) == together, rows


def counted(bank, monkeypatch):
    """Sizes [rows, length] of all that goes through the model, as it goes."""
    sizes, logits_behind = [], bank.head.logits_behind

    def counting(ids, places, **options):
        sizes.append(tuple(ids.shape))
        return logits_behind(ids, places, **options)

    monkeypatch.setattr(bank.head, "logits_behind", counting)
    return sizes


def test_a_finished_row_leaves_the_batch(bank, tokenizer, monkeypatch):
    sizes = counted(bank, monkeypatch)
    complete(bank, tokenizer, PROMPTS, SLOTS, [1, 2, 2, 4, 4, 4])
    assert [rows for rows, length in sizes if length == 1 and rows > 1] == [5, 3, 3]


def test_a_waiting_text_takes_a_finished_ones_place(bank, tokenizer, monkeypatch):
    sizes = counted(bank, monkeypatch)
    complete(bank, tokenizer, PROMPTS[1:3] + PROMPTS[4:], [0] * 4, [3, 6, 2, 3], rows=2)
    # The longest goes on beside three others; nobody waits while there is room.
    assert [rows for rows, length in sizes if length == 1] == [2, 2, 2, 2, 2]
    assert sorted(length for _, length in sizes if length > 1) == [5, 8, 11, 17]


def test_prompts_are_read_without_padding_and_beginnings_once(bank, tokenizer, monkeypatch):
    sizes = counted(bank, monkeypatch)
    head = list(range(30, 60))
    prompts = [[*head, *prompt] for prompt in PROMPTS]
    written = complete(bank, tokenizer, prompts, [0] * 6, [2] * 6)
    read = sum(rows * length for rows, length in sizes[:-1])
    assert len(head) + sum(map(len, PROMPTS)) <= read < 1.15 * (len(head) + sum(map(len, PROMPTS)))
    alone = [complete(bank, tokenizer, [prompt], [0], [2])[0] for prompt in prompts]
    assert written == alone


# An adapter's DoRA and a model's norms of queries and keys are before the caches that share beginnings.
@pytest.mark.parametrize("family", [one for one in FAMILIES if one != "qwen3" and "dora" not in one], indirect=True)
def test_shared_beginnings_change_nothing(family, tokenizer):
    """With a header for all, a longer one for some, and one prompt three times, under two adapters in turn."""
    bank, models = family
    head, more = list(range(30, 45)), list(range(60, 75))
    prompts = [
        [*head, *PROMPTS[1]],
        [*head, *more, *PROMPTS[2]],
        [*head, *more, *PROMPTS[4]],
        *[[*head, *PROMPTS[5]]] * 3,
    ]
    for slot, model in enumerate(models[:2]):
        ends = sorted(end_tokens(bank.model, tokenizer))
        alone = {
            prompt: generate(model, list(prompt), ends, tokenizer.pad_token_id) for prompt in set(map(tuple, prompts))
        }
        theirs = [alone[tuple(prompt)] for prompt in prompts]
        for rows in (2, 32)[slot:]:  # a few at a time once
            ours = complete(bank, tokenizer, prompts, [slot] * 6, [LIMIT] * 6, rows=rows)
            assert [(text.ids, text.finished) for text in ours] == theirs


def test_many_texts_one_after_the_other_stay_in_place(bank, tokenizer, monkeypatch):
    """More columns are written than there are, again and again."""
    monkeypatch.setattr(decoder, "_SLACK", 3)
    shifts = []
    shift = decoder.Columns.shift
    monkeypatch.setattr(decoder.Columns, "shift", lambda *given: shifts.append(given) or shift(*given))
    rng = random.Random(1)
    prompts = [[rng.randrange(10, 250) for _ in range(rng.randint(1, 20))] for _ in range(24)]
    limits = [rng.randint(1, 15) for _ in prompts]
    alone = [
        complete(bank, tokenizer, [p], [i % 3], [n])[0] for i, (p, n) in enumerate(zip(prompts, limits, strict=True))
    ]
    shifts.clear()
    assert complete(bank, tokenizer, prompts, [i % 3 for i in range(24)], limits, rows=3) == alone
    assert len(shifts) > 3


@pytest.mark.parametrize("how", [None, Sampling(), Sampling(0.9, 0.95, 40)])
def test_a_slot_that_is_no_number_spoils_no_other(bank, tokenizer, how):
    drawn = {"sampling": how, "streams": [Stream(0) / i for i in range(6)]} if how else {}
    whole = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6, rows=2, **drawn)
    bank.flat[1] = float("nan")
    found = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6, rows=2, **drawn)
    assert [text for text, slot in zip(found, SLOTS, strict=True) if slot != 1] == [
        text for text, slot in zip(whole, SLOTS, strict=True) if slot != 1
    ]


def test_what_is_drawn_depends_on_the_texts_own_stream_only(bank, tokenizer):
    streams = [Stream(0) / "text" / i for i in range(6)]
    how = {"sampling": Sampling(0.9, 0.95, 40)}
    limits = [3, 9, 12, 1, 7, 5]
    together = complete(bank, tokenizer, PROMPTS, SLOTS, limits, streams=streams, **how)
    order = [4, 0, 5, 2, 1, 3]
    *columns, own = ([column[i] for i in order] for column in (PROMPTS, SLOTS, limits, streams))
    for rows in (1, 4, 32):
        assert complete(bank, tokenizer, PROMPTS, SLOTS, limits, streams=streams, rows=rows, **how) == together, rows
        shuffled = complete(bank, tokenizer, *columns, streams=own, rows=rows, **how)
        assert [shuffled[order.index(i)] for i in range(6)] == together, rows
    longer = complete(bank, tokenizer, PROMPTS, SLOTS, [12] * 6, streams=streams, **how)
    assert [text.ids[:n] for text, n in zip(longer, limits, strict=True)] == [text.ids for text in together]
    others = complete(bank, tokenizer, PROMPTS, SLOTS, limits, streams=[s / "other" for s in streams], **how)
    assert others != together
    assert complete(bank, tokenizer, PROMPTS, SLOTS, limits) != together


def test_continuations_of_one_prompt_differ(bank, tokenizer):
    streams = [Stream(0) / i for i in range(8)]
    found = complete(bank, tokenizer, [PROMPTS[1]] * 8, [0] * 8, [6] * 8, sampling=Sampling(), streams=streams)
    assert len({tuple(text.ids) for text in found}) == 8


def test_bfloat16_products_write_about_the_same(bank, tokenizer):
    exact = complete(bank, tokenizer, PROMPTS, SLOTS, [1] * 6)
    rounded = complete(bank, tokenizer, PROMPTS, SLOTS, [1] * 6, bfloat16=True)
    assert sum(a == b for a, b in zip(exact, rounded, strict=True)) >= 4


def test_a_stop_string_ends_the_text_before_it(bank, tokenizer):
    free = complete(bank, tokenizer, PROMPTS, SLOTS, [40] * 6)
    stop = free[2].text[10:14]
    found = complete(bank, tokenizer, PROMPTS, SLOTS, [40] * 6, stop=[stop, "never written"])
    for text, whole in zip(found, free, strict=True):
        head, written, _ = whole.text.partition(stop)
        assert text.text == head
        assert text.finished == bool(written)
        assert text.ids == whole.ids[: len(text.ids)]
    assert len(found[2].ids) < 40
    assert stop in tokenizer.decode(found[2].ids)
    assert stop not in tokenizer.decode(found[2].ids[:-1])  # not a token more than needed


def test_a_long_stop_string_is_seen(bank, tokenizer):
    free = complete(bank, tokenizer, PROMPTS[:1], [0], [60])[0]
    stop = tokenizer.decode(free.ids[5:45])
    found = complete(bank, tokenizer, PROMPTS[:1], [0], [60], stop=[stop])[0]
    assert found.finished
    assert len(found.ids) <= 45
    assert found.text == free.text[: free.text.index(stop)]


def test_a_text_that_gets_nowhere_is_cut_off(bank, tokenizer):
    free = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6)
    found = complete(bank, tokenizer, PROMPTS, SLOTS, [LIMIT] * 6, halt=lambda text: len(text) >= 10)
    for text, whole in zip(found, free, strict=True):
        assert not text.finished
        assert text.ids == whole.ids[: len(text.ids)]
        assert len(text.ids) == LIMIT or len(text.text) >= 10
    assert any(len(text.ids) < LIMIT for text in found)


def test_no_gradient_is_kept(bank, tokenizer):
    with bank.trainable():
        complete(bank, tokenizer, PROMPTS[:2], [0, 1], [2, 2])
        assert not bank.grad.any()
