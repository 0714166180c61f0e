"""Local training: each site as if alone, each optimiser as torch has it, and what stops it."""

import copy
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from murmura.streams import Stream
from murmura.training.adapter import crop, subtract
from murmura.training.bank import Bank
from murmura.training.batch import collate
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.loop import NonFiniteLoss, batches, drawn, steps_of, train
from tests.conftest import make_llama
from tests.training.helpers import (
    EPS,
    assert_close,
    assert_same,
    cloze_items,
    hf_batch,
    items,
    loss_and_gradients,
    random_residual,
    random_state,
)

SPEC = LoraSpec(rank=4, alpha=8)
STREAMS = [Stream(0) / f"site-{k}" for k in range(5)]
LR = 0.01


def run(bank, shards, training, lr=LR, seed=0, **options):
    starts = [random_state(bank, seed + k) for k in range(len(shards))]
    return train(bank, shards, starts, training, lr, STREAMS[: len(shards)], **options)


# ---- which records make a step ----------------------------------------------------------------------------------


@given(st.integers(0, 20), st.integers(1, 3), st.none() | st.integers(1, 9), st.integers(1, 6))
def test_batches(records, epochs, max_steps, batch_size):
    epochs = 1 if max_steps else epochs  # the one says what the other would
    training = LocalTraining(epochs=epochs, max_steps=max_steps, batch_size=batch_size)
    found = list(batches(records, training, Stream(0)))
    assert len(found) == steps_of(records, training)
    assert all(len(batch) == len(set(batch)) <= batch_size for batch in found)
    seen = [index for batch in found for index in batch]
    if max_steps is None:
        assert sorted(seen) == sorted(list(range(records)) * epochs) and drawn(records, training) == records
        return
    assert len(found) == (max_steps if records else 0)
    counts = [seen.count(index) for index in set(seen)]
    assert len(counts) == min(records, batch_size * max_steps) == drawn(records, training)
    assert not counts or max(counts) - min(counts) <= 1  # repeated epoch by epoch


def test_each_epoch_and_each_stream_has_its_own_order():
    training = LocalTraining(epochs=2, batch_size=50)
    first, second = batches(50, training, STREAMS[0])
    assert first != second
    assert [first, second] == list(batches(50, training, STREAMS[0]))
    assert [first, second] != list(batches(50, training, STREAMS[1]))


# ---- sites together as sites alone ------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_site_trains_the_same_in_any_company(tokenizer, llama, dropout):
    bank = Bank(llama, SPEC.model_copy(update={"dropout": dropout}))
    training = LocalTraining(epochs=2, batch_size=3, eps=EPS)
    shards = [items(size, seed=size) for size in (7, 2, 5)]
    together = run(bank, shards, training)
    assert [result.steps for result in together] == [6, 2, 4]
    for k, result in enumerate(together):
        starts = [random_state(bank, k)]
        alone = train(bank, [shards[k]], starts, training, LR, [STREAMS[k]])[0]
        assert_close(result.state, alone.state)
        assert result.loss == pytest.approx(alone.loss, abs=1e-5)


def test_dropout_is_seeded_and_does_something(llama):
    training, without = LocalTraining(batch_size=3), Bank(copy.deepcopy(llama), SPEC)
    bank = Bank(llama, SPEC.model_copy(update={"dropout": 0.3}))
    first, again = (run(bank, [items(6)], training)[0].state for _ in range(2))
    assert_same(first, again)
    plain = run(without, [items(6)], training)[0].state
    assert any(not torch.allclose(first[name], plain[name], atol=1e-4) for name in first)


def test_every_record_of_every_step_has_masks_of_its_own(llama, monkeypatch):
    bank = Bank(llama, SPEC.model_copy(update={"dropout": 0.3}))
    seeds, token_nll = [], bank.head.token_nll

    def watched(*batch):
        seeds.extend(generator.initial_seed() for generator in bank.routing.generators)
        return token_nll(*batch)

    monkeypatch.setattr(bank.head, "token_nll", watched)
    run(bank, [items(4, seed=1), items(3, seed=2)], LocalTraining(epochs=2, batch_size=2))
    assert len(set(seeds)) == len(seeds) == 2 * (4 + 3)


@pytest.mark.parametrize("tokens", [1, 50, 10_000])
def test_how_rows_are_grouped_changes_no_result(bank, tokens):
    shards = [items(7, seed=1), items(4, seed=2)]
    whole = run(bank, shards, LocalTraining(batch_size=4, tokens_per_pass=300, eps=EPS))
    parts = run(bank, shards, LocalTraining(batch_size=4, tokens_per_pass=tokens, eps=EPS))
    for ours, theirs in zip(parts, whole, strict=True):
        assert_close(ours.state, theirs.state)


def test_a_site_without_records_comes_back_as_it_started(bank):
    start = random_state(bank, 1)
    results = train(bank, [items(3), []], [random_state(bank, 0), start], LocalTraining(), LR, STREAMS[:2])
    assert (results[1].steps, results[1].loss) == (0, None)
    assert_same(results[1].state, start)
    assert train(bank, [], [], LocalTraining(), LR, []) == []


def test_what_training_reports(bank):
    shard = items(5)
    result = run(bank, [shard], LocalTraining(batch_size=5), lr=1e-12)[0]
    bank.load([result.state])
    bank.route(torch.zeros(5, dtype=torch.long))
    nll, _ = bank.head.token_nll(*collate(shard, bank.device))
    assert result.loss == pytest.approx(nll.mean().item(), abs=1e-5)


# ---- against plain torch ----------------------------------------------------------------------------------------


def plain(model, shard, training, stream, *, mu=0.0, correction=None):
    """The same training of all parameters, written out with torch's own optimisers and transformers' own loss."""
    model = copy.deepcopy(model).requires_grad_(True)
    named = dict(model.named_parameters())
    start = {name: tensor.detach().clone() for name, tensor in named.items()}
    decay = {"lr": LR, "weight_decay": training.weight_decay}
    if training.optimizer == "sgd":
        optimizer = torch.optim.SGD(named.values(), momentum=training.momentum, **decay)
    else:
        optimizer = torch.optim.AdamW(named.values(), betas=training.betas, eps=training.eps, **decay)
    for chosen in batches(len(shard), training, stream):
        loss = model(**hf_batch([shard[i] for i in chosen])).loss
        loss = loss + mu / 2 * sum((tensor - start[name]).square().sum() for name, tensor in named.items())
        optimizer.zero_grad()
        loss.backward()
        if training.clip:
            torch.nn.utils.clip_grad_norm_(named.values(), training.clip)
        optimizer.step()
        if correction is not None:
            with torch.no_grad():
                for name, tensor in named.items():
                    tensor -= LR * correction[name]
    return {name: tensor.detach() for name, tensor in named.items()}


CASES = {
    "sgd": ({"optimizer": "sgd", "clip": 0}, {}),
    "sgd, clipped": ({"optimizer": "sgd", "clip": 0.5}, {}),
    "sgd, momentum, decay": ({"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1}, {}),
    "adamw": ({"betas": (0.8, 0.99), "eps": EPS, "weight_decay": 0.1}, {}),
    "proximal": ({"optimizer": "sgd"}, {"mu": 5.0}),
    "corrected": ({"optimizer": "sgd"}, {"correction": True}),
}


@pytest.mark.parametrize(("options", "extra"), CASES.values(), ids=CASES)
def test_all_parameters_train_as_in_plain_torch(tokenizer, llama, options, extra):
    training = LocalTraining(epochs=2, batch_size=3, tokens_per_pass=40, **options)
    model, shard = copy.deepcopy(llama), items(5)
    bank = Bank(llama, None)
    start = bank.initial(Stream(0))
    correction = random_state(bank, 5, scale=0.01) if extra.get("correction") else None
    more = {"prox": extra.get("mu", 0.0), "corrections": [correction] if correction else None}
    result = train(bank, [shard], [start], training, LR, [STREAMS[0]], **more)[0]
    extra = {**extra, "correction": correction} if correction else extra
    assert_close(result.state, plain(model, shard, training, STREAMS[0], **extra))


def test_all_parameters_of_a_masked_model_train_as_in_plain_torch(tokenizer, bert):
    training = LocalTraining(epochs=2, batch_size=3, eps=EPS)
    model, shard = copy.deepcopy(bert), cloze_items(5, tokenizer)
    bank = Bank(bert, None)
    result = train(bank, [shard], [bank.initial(Stream(0))], training, LR, [STREAMS[0]])[0]
    expected = plain(model, shard, training, STREAMS[0])
    assert_close(result.state, {name: expected[name] for name in result.state})


# ---- terms of the loss and of the step, on adapters -----------------------------------------------------------------


def gradient_steps(bank, shard, training, start, term):
    """Plain gradient descent written out: ``w ← w − lr·(∇ℓ + term(w))``."""
    state = {name: tensor.clone() for name, tensor in start.items()}
    for chosen in batches(len(shard), training, STREAMS[0]):
        _, gradient = loss_and_gradients(bank, state, [shard[i] for i in chosen])
        state = {n: w - LR * (gradient[n] + term(n, w)) for n, w in state.items()}
    return state


def test_the_proximal_term_pulls_to_the_start(bank):
    training, shard = LocalTraining(optimizer="sgd", clip=0, batch_size=2), items(6)
    start = random_state(bank, 0)
    expected = gradient_steps(bank, shard, training, start, lambda name, w: 3.0 * (w - start[name]))
    assert_close(run(bank, [shard], training, prox=3.0)[0].state, expected)


def test_the_proximal_term_pulls_elsewhere_where_a_site_starts_elsewhere(bank):
    training, shard = LocalTraining(optimizer="sgd", clip=0, batch_size=2), items(6)
    start, anchor = random_state(bank, 0), random_state(bank, 9)
    expected = gradient_steps(bank, shard, training, start, lambda name, w: 3.0 * (w - anchor[name]))
    assert_close(run(bank, [shard], training, prox=3.0, anchors=[anchor])[0].state, expected)


def test_the_correction_comes_after_every_step_and_each_site_has_its_own(bank):
    training, shard = LocalTraining(optimizer="sgd", clip=0, batch_size=2), items(6)
    shifts = [random_state(bank, 7), random_state(bank, 8)]
    expected = gradient_steps(bank, shard, training, random_state(bank, 0), lambda name, w: shifts[0][name])
    results = run(bank, [shard, items(3)], training, corrections=shifts)
    assert_close(results[0].state, expected)


def test_clipping_is_per_site(bank):
    """One site's large gradient must not shorten another's step."""
    training = LocalTraining(optimizer="sgd", batch_size=4, clip=0.05)
    shards = [items(4, seed=1), items(4, seed=2)]
    weights = [[1.0] * 4, [1000.0] * 4]
    together = run(bank, shards, training, weights=weights)
    start = [random_state(bank, k) for k in (0, 1)]
    lengths = [
        torch.cat([(result.state[name] - begin[name]).flatten() for name in begin]).norm().item()
        for result, begin in zip(together, start, strict=True)
    ]
    assert lengths == pytest.approx([LR * 0.05] * 2, rel=1e-3)
    assert_close(together[0].state, run(bank, shards[:1], training)[0].state)


def test_weights_of_records(bank):
    training, shard = LocalTraining(optimizer="sgd", clip=0, batch_size=6), items(6)
    start = random_state(bank, 0)

    def moved(weights):
        state = run(bank, [shard], training, weights=[weights])[0].state
        return {name: state[name] - start[name] for name in start}

    ones, twos = moved([1.0] * 6), moved([2.0] * 6)
    assert_close(twos, {name: 2 * tensor for name, tensor in ones.items()}, atol=1e-6)
    first, rest = moved([1.0] + [0.0] * 5), moved([0.0] + [1.0] * 5)
    assert_close({name: first[name] + rest[name] for name in first}, ones, atol=1e-6)


@pytest.mark.parametrize(("frozen", "other"), [("A", "B"), ("B", "A")])
def test_a_frozen_factor_stays_bit_for_bit_and_counts_for_nothing(bank, frozen, other):
    start, shard = random_state(bank, 0), items(4)
    training = LocalTraining(epochs=2, weight_decay=0.1)
    options = {"prox": 1.0, "corrections": [random_state(bank, 5)]}
    state = run(bank, [shard], training, frozen=frozen, **options)[0].state
    for name in state:
        assert torch.equal(state[name], start[name]) == (f"lora_{frozen}" in name)
    clipped = LocalTraining(optimizer="sgd", batch_size=4, clip=0.01)
    state = run(bank, [shard], clipped, frozen=frozen)[0].state
    length = torch.cat([(state[name] - start[name]).flatten() for name in state if f"lora_{other}" in name]).norm()
    assert length.item() == pytest.approx(LR * 0.01, rel=1e-2)


def test_a_smaller_rank_trains_as_in_a_bank_of_that_rank(bank, tokenizer):
    """Zeros that pad a rank stay zeros, whatever trains beside them."""
    training, shard = LocalTraining(epochs=2, batch_size=2, weight_decay=0.1, eps=EPS), items(4)
    starts = [crop(random_state(bank, 0), 2), random_state(bank, 1)]
    both = train(bank, [shard] * 2, starts, training, LR, STREAMS[:2])
    small = Bank(make_llama(tokenizer), LoraSpec(rank=2, alpha=SPEC.scale * 2))
    alone = train(small, [shard], starts[:1], training, LR, STREAMS[:1])[0]
    assert_close(both[0].state, alone.state)
    assert_close(both[1].state, train(bank, [shard], starts[1:], training, LR, STREAMS[1:2])[0].state)


def test_a_residual_is_trained_on_top_of_and_not_returned(bank, tokenizer):
    training, shard, start = LocalTraining(batch_size=2), items(4), random_state(bank, 0)
    residual = random_residual(bank, 1)
    results = train(bank, [shard, []], [start | residual] * 2, training, LR, STREAMS[:2])
    plain = train(bank, [shard], [start], training, LR, STREAMS[:1])[0]
    assert results[0].loss != pytest.approx(plain.loss, rel=1e-3)
    assert results[0].state.keys() == start.keys()
    assert_same(results[1].state, start)


def test_around_every_step(bank):
    seen = []

    @contextmanager
    def doubled(which):
        assert not which.grad.any()
        yield
        seen.append(which.grad.abs().sum().item())
        which.grad.mul_(2)

    training, start = LocalTraining(optimizer="sgd", clip=0, batch_size=4), random_state(bank, 0)
    plain, twice = (run(bank, [items(4)], training, around=how)[0].state for how in (None, doubled))
    assert len(seen) == 1 and seen[0] > 0
    assert_close(subtract(twice, start), {n: 2 * t for n, t in subtract(plain, start).items()}, atol=1e-6)


def test_bfloat16_stays_close(bank):
    training = LocalTraining(batch_size=3, eps=EPS)
    exact = run(bank, [items(6), items(4)], training)
    half = run(bank, [items(6), items(4)], training.model_copy(update={"precision": "bfloat16"}))
    for ours, theirs in zip(half, exact, strict=True):
        assert ours.loss == pytest.approx(theirs.loss, rel=0.01)
        assert all(tensor.dtype == torch.float32 for tensor in ours.state.values())
        assert_close(ours.state, theirs.state, atol=3 * LR)
        assert any(not torch.equal(ours.state[name], theirs.state[name]) for name in ours.state)


# ---- what is not finite -------------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_names_slot_and_step(bank):
    shards, training = [items(4, seed=k) for k in range(3)], LocalTraining(optimizer="sgd", clip=0, batch_size=2)
    weights = [[1.0] * 4, [1.0] * 4, [1.0] * 4]
    late = list(batches(4, training, STREAMS[1]))[1][0]  # a record of site 1's second step
    weights[1][late] = float("nan")
    with pytest.raises(NonFiniteLoss) as error:
        run(bank, shards, training, weights=weights)
    assert (error.value.slot, error.value.step) == (1, 2)


def test_a_step_that_leaves_nothing_finite_is_no_result(bank):
    shards, training = [items(4), items(4)], LocalTraining(optimizer="sgd", clip=0, batch_size=4)
    broken = {name: torch.full_like(tensor, 3e38) for name, tensor in random_state(bank, 0).items()}
    nothing = {name: torch.zeros_like(tensor) for name, tensor in broken.items()}
    with pytest.raises(NonFiniteLoss) as error:
        train(bank, shards, [nothing] * 2, training, 10.0, STREAMS[:2], corrections=[nothing, broken])
    assert (error.value.slot, error.value.step) == (1, 1)
