"""Training on labels through cloze patterns, against transformers' full logits and a loop that is written out."""

import copy
import random
from functools import partial

import pytest
import torch

from murmura.data.cloze import Cloze
from murmura.errors import PrivacyError
from murmura.privacy.entropy import OSEntropy
from murmura.streams import Stream
from murmura.training.bank import Bank
from murmura.training.cloze import ClozeRecord, ClozeStep
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.loop import batches, train
from murmura.training.private import Private
from tests.conftest import WORDS
from tests.privacy.plans import RECORDS
from tests.training.helpers import assert_close, items_of, random_state

SPEC = LoraSpec(rank=4, alpha=8)
LR = 0.01
STREAMS = [Stream(0) / f"site-{k}" for k in range(3)]
ANYWHERE = ("please {blank} the {text}", "{text} it is {blank} for a visit", "the {text} the next {blank}")
AT_THE_END = ("{text} please call the {blank}", "the {text} it is {blank}")
VERBALISER = {"body": ("kidney", "heart", "skin"), "staff": ("doctor", "surgeon"), "other": ("letter",)}
MODELS = ("llama", "gpt2", "bert")
TARGETS = {"llama": ("q_proj", "v_proj"), "gpt2": ("c_attn",), "bert": ("query", "value", "output.dense")}
TRAINING = LocalTraining(epochs=2, batch_size=3, optimizer="sgd", tokens_per_pass=60)


@pytest.fixture(params=MODELS)
def named(request):
    """A tiny model and what it is called."""
    return request.param, request.getfixturevalue(request.param)


def make_cloze(name, tokenizer, **options):
    patterns = ANYWHERE if name == "bert" else AT_THE_END
    return Cloze(patterns, VERBALISER, tokenizer, 40, name == "bert", several_tokens="average", **options)


def make_bank(named, **options):
    name, model = named
    return Bank(model, SPEC.model_copy(update={"targets": TARGETS[name], **options}))


def records(cloze, count, seed=0):
    """Texts of different lengths; the first label is sure, others are not."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        parts = [1.0, 0.0, 0.0] if not made else [rng.random() for _ in VERBALISER]
        target = tuple(part / sum(parts) for part in parts)
        made.append(ClozeRecord(tuple(items_of(cloze, " ".join(rng.choices(WORDS, k=rng.randint(1, 12))))), target))
    return made


def scores_of(model, tokenizer, item, *, masked, reduction="mean"):
    """A row of transformers' own logits, and each label's words added up one by one."""
    logits = model(input_ids=torch.tensor([item.ids])).logits[0]
    blank = item.ids.index(tokenizer.mask_token_id) if masked else len(item.ids) - 2
    scores = []
    for words in VERBALISER.values():
        each = []
        for word in words:
            tokens = tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
            each.append(sum(logits[blank, token] for token in tokens) / len(tokens))
        scores.append(sum(each) / (len(each) if reduction == "mean" else 1))
    return torch.stack(scores)


def slow_loss(model, tokenizer, chosen, *, masked, weights=None, reduction="mean"):
    """Mean over records and patterns of the cross-entropy against soft targets, row by row."""
    losses = []
    for record, weight in zip(chosen, weights or [1.0] * len(chosen), strict=True):
        for item in record.items:
            scores = scores_of(model, tokenizer, item, masked=masked, reduction=reduction)
            target = torch.tensor([record.target])
            losses.append(weight * torch.nn.functional.cross_entropy(scores[None], target))
    return torch.stack(losses).mean()


def step_on(bank, shards, cloze, chosen, **options):
    """One step's losses and gradients, with the bank loaded already."""
    weights = options.pop("weights", None)
    step = ClozeStep(bank, shards, options.pop("training", TRAINING), STREAMS, weights, cloze=cloze, **options)
    with bank.trainable():
        losses = step.gradients(chosen, 0)
        return losses, bank.grad.clone()


# ---- one step -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_losses_and_gradients_are_those_of_full_logits(named, tokenizer, reduction):
    masked, cloze = named[0] == "bert", make_cloze(named[0], tokenizer, reduction=reduction)
    bank = make_bank(named)
    shards = [records(cloze, 5, seed=1), records(cloze, 4, seed=2)]
    states = [random_state(bank, k) for k in range(2)]
    bank.load(states)
    chosen = {0: [3, 0, 1], 1: [2, 3]}
    losses, gradients = step_on(bank, shards, cloze, chosen)
    for slot, indices in chosen.items():
        bank.route(torch.tensor([slot]))
        with bank.trainable():
            picked = [shards[slot][i] for i in indices]
            loss = slow_loss(bank.model, tokenizer, picked, masked=masked, reduction=reduction)
            loss.backward()
            assert losses[slot] == pytest.approx(loss.item(), rel=1e-5)
            torch.testing.assert_close(gradients[slot], bank.grad[slot], atol=1e-6, rtol=1e-4)
            assert bank.grad[slot].norm() > 1e-3


def test_gradients_of_all_parameters_are_those_of_plain_torch(named, tokenizer):
    name, model = named
    cloze, plain = make_cloze(name, tokenizer), copy.deepcopy(named[1]).requires_grad_(True)
    bank = Bank(model, None)
    shard = records(cloze, 4)
    bank.load([bank.initial(Stream(0))])
    losses, gradients = step_on(bank, [shard], cloze, {0: [0, 1, 2, 3]})
    loss = slow_loss(plain, tokenizer, shard, masked=name == "bert")
    loss.backward()
    assert losses[0] == pytest.approx(loss.item(), rel=1e-5)
    # a parameter that the scores do not depend on has no gradient at all in plain torch
    expected = {
        key: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        for key, tensor in plain.named_parameters()
    }
    assert_close(bank.unpack(gradients[0]), {entry.name: expected[entry.name] for entry in bank.manifest}, atol=1e-6)


def test_a_weight_is_on_all_patterns_of_its_record(llama, tokenizer):
    cloze, bank = make_cloze("llama", tokenizer), Bank(llama, SPEC)
    shard, weights = records(cloze, 4), [0.5, 2.0, 0.0, 1.0]
    bank.load([random_state(bank, 0)])
    losses, gradients = step_on(bank, [shard], cloze, {0: [0, 1, 2]}, weights=[weights])
    bank.route(torch.tensor([0]))
    with bank.trainable():
        loss = slow_loss(bank.model, tokenizer, shard[:3], masked=False, weights=weights[:3])
        loss.backward()
        torch.testing.assert_close(gradients, bank.grad, atol=1e-6, rtol=1e-4)
    assert losses[0] == pytest.approx(loss.item(), rel=1e-5)


def test_a_sure_label_is_ordinary_cross_entropy(llama, tokenizer):
    cloze, bank = make_cloze("llama", tokenizer), Bank(llama, SPEC)
    shard = records(cloze, 1)
    assert shard[0].target == (1, 0, 0)
    bank.load([random_state(bank, 0)])
    losses, _ = step_on(bank, [shard], cloze, {0: [0]})
    bank.route(torch.tensor([0]))
    own = [scores_of(bank.model, tokenizer, item, masked=False) for item in shard[0].items]
    assert losses[0] == pytest.approx(
        torch.stack([-scores.log_softmax(0)[0] for scores in own]).mean().item(), rel=1e-5
    )


def test_one_pattern_of_each_record_in_each_step(llama, tokenizer):
    cloze, bank = make_cloze("llama", tokenizer), Bank(llama, SPEC)
    shard = records(cloze, 6)
    bank.load([random_state(bank, 0)])
    step = ClozeStep(bank, [shard], TRAINING, STREAMS, None, cloze=cloze, sample_pattern=True)
    drawn = [[item.pattern for item in step.rows({0: [0, 2, 5]}, k).items] for k in range(40)]
    assert drawn == [[item.pattern for item in step.rows({0: [0, 2, 5]}, k).items] for k in range(40)]
    assert {len(one) for one in drawn} == {3}
    for place in range(3):
        assert 8 <= sum(one[place] for one in drawn) <= 32  # of patterns 0 and 1; 20 expected, σ = 3.2
    assert len({tuple(one) for one in drawn}) == 8  # records do not draw together
    with bank.trainable():
        losses = step.gradients({0: [0, 2, 5]}, 7)
    bank.route(torch.tensor([0]))
    alone = [
        ClozeRecord((shard[i].items[pattern],), shard[i].target) for i, pattern in zip((0, 2, 5), drawn[7], strict=True)
    ]
    assert losses[0] == pytest.approx(slow_loss(bank.model, tokenizer, alone, masked=False).item(), rel=1e-5)


def test_targets_must_be_of_the_labels(llama, tokenizer):
    cloze, bank = make_cloze("llama", tokenizer), Bank(llama, SPEC)
    bank.load([random_state(bank, 0)])
    with pytest.raises(RuntimeError, match="target"):
        step_on(bank, [[ClozeRecord(tuple(items_of(cloze, "the rash")), (1.0,))]], cloze, {0: [0]})


def test_bfloat16_rounds_no_scores(llama, tokenizer, monkeypatch):
    cloze, bank = make_cloze("llama", tokenizer), Bank(llama, SPEC)
    shard, found, logits_at = records(cloze, 1), [], bank.head.logits_at
    monkeypatch.setattr(bank.head, "logits_at", lambda *batch: found.append(logits_at(*batch)) or found[-1])
    bank.load([random_state(bank, 0)])
    half = TRAINING.model_copy(update={"precision": "bfloat16"})
    losses = [step_on(bank, [shard], cloze, {0: [0]}, training=training)[0][0] for training in (TRAINING, half)]
    assert losses[0] != losses[1]  # the model's own products are rounded
    for loss, (logits, _) in zip(losses, found, strict=True):
        scores = logits.double() @ torch.tensor(cloze.weights, dtype=torch.float64).T
        assert loss == pytest.approx(-scores.log_softmax(1)[:, 0].mean().item(), rel=1e-6)


# ---- whole runs -----------------------------------------------------------------------------------------------------


def run(bank, shards, cloze, training=TRAINING, first=0, **options):
    starts = [random_state(bank, first + k) for k in range(len(shards))]
    streams = STREAMS[first : first + len(shards)]
    return train(bank, shards, starts, training, LR, streams, step=partial(ClozeStep, cloze=cloze, **options))


@pytest.mark.parametrize("sample_pattern", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_site_trains_the_same_in_any_company(named, tokenizer, dropout, sample_pattern):
    cloze, bank = make_cloze(named[0], tokenizer), make_bank(named, dropout=dropout)
    shards = [records(cloze, size, seed=size) for size in (7, 2, 5)]
    together = run(bank, shards, cloze, sample_pattern=sample_pattern)
    assert [result.steps for result in together] == [6, 2, 4]
    for k, result in enumerate(together):
        alone = run(bank, shards[k : k + 1], cloze, first=k, sample_pattern=sample_pattern)[0]
        assert_close(result.state, alone.state, atol=2e-5)
        assert result.loss == pytest.approx(alone.loss, abs=1e-5)


@pytest.mark.parametrize("tokens", [1, 45, 10_000])
def test_how_rows_are_grouped_changes_no_result(named, tokenizer, tokens):
    cloze, bank = make_cloze(named[0], tokenizer), make_bank(named, dropout=0.2)
    shards = [records(cloze, 5, seed=1), records(cloze, 3, seed=2)]
    whole = run(bank, shards, cloze)
    parts = run(bank, shards, cloze, TRAINING.model_copy(update={"tokens_per_pass": tokens}))
    for ours, theirs in zip(parts, whole, strict=True):
        assert_close(ours.state, theirs.state)


def test_every_pattern_of_every_record_has_masks_of_its_own(llama, tokenizer, monkeypatch):
    cloze, bank = make_cloze("llama", tokenizer), Bank(llama, SPEC.model_copy(update={"dropout": 0.3}))
    seeds, logits_at = [], bank.head.logits_at

    def watched(*batch):
        seeds.extend(generator.initial_seed() for generator in bank.routing.generators)
        return logits_at(*batch)

    monkeypatch.setattr(bank.head, "logits_at", watched)
    run(bank, [records(cloze, 4, seed=1), records(cloze, 3, seed=2)], cloze)
    assert len(set(seeds)) == len(seeds) == 2 * (4 + 3) * len(AT_THE_END)


def test_all_parameters_train_as_in_plain_torch(named, tokenizer):
    name, model = named
    cloze, plain = make_cloze(name, tokenizer), copy.deepcopy(model).requires_grad_(True)
    bank, shard = Bank(model, None), records(cloze, 5)
    start = bank.initial(Stream(0))
    step = partial(ClozeStep, cloze=cloze)
    result = train(bank, [shard], [start], TRAINING, LR, STREAMS[:1], step=step)[0]
    optimizer = torch.optim.SGD(plain.parameters(), lr=LR)
    for chosen in batches(len(shard), TRAINING, STREAMS[0]):
        optimizer.zero_grad()
        slow_loss(plain, tokenizer, [shard[i] for i in chosen], masked=name == "bert").backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), TRAINING.clip)
        optimizer.step()
    expected = dict(plain.named_parameters())
    assert_close(result.state, {name: expected[name].detach() for name in result.state})


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_it_learns_the_labels(request, tokenizer, name):
    named = name, request.getfixturevalue(name)
    cloze, bank = make_cloze(name, tokenizer), make_bank(named)
    texts = {"fever child skin": (1.0, 0.0, 0.0), "reply note draft": (0.0, 0.0, 1.0)}
    shard = [ClozeRecord(tuple(items_of(cloze, text)), target) for text, target in texts.items()] * 4
    training = LocalTraining(epochs=20, batch_size=4)
    state = run(bank, [shard], cloze, training)[0].state
    bank.load([state])
    bank.route(torch.tensor([0]))
    for record in shard[:2]:
        for item in record.items:
            scores = scores_of(bank.model, tokenizer, item, masked=name == "bert")
            assert scores.argmax() == record.target.index(1)


def test_record_level_privacy_is_refused(llama, tokenizer):
    cloze, bank = make_cloze("llama", tokenizer), Bank(llama, SPEC)
    shard, privacy = records(cloze, 4), Private([RECORDS], [OSEntropy()])
    with pytest.raises(PrivacyError, match=r"for losses on tokens only\. Train without it, or protect whole sites"):
        step = partial(ClozeStep, cloze=cloze)
        train(bank, [shard], [random_state(bank, 0)], TRAINING, LR, STREAMS[:1], privacy=privacy, step=step)
