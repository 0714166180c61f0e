"""Training on preferred answers, against TRL's numbers and a loop that is written out."""

import copy
import math
from functools import partial

import pytest
import torch

from murmura.errors import PrivacyError
from murmura.privacy.entropy import OSEntropy
from murmura.streams import Stream
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.loop import batches, train
from murmura.training.preference import Pair, PreferenceStep, Reference, dpo_losses
from murmura.training.private import Private
from tests.privacy.plans import RECORDS
from tests.training.helpers import Item, assert_close, items, margin, random_state

SPEC = LoraSpec(rank=4, alpha=8)
LR = 0.01
STREAMS = [Stream(0) / f"site-{k}" for k in range(3)]
TRAINING = LocalTraining(epochs=2, batch_size=3, optimizer="sgd", tokens_per_pass=60, dpo_beta=0.3)
TARGETS = {"llama": ("q_proj", "v_proj"), "gpt2": ("c_attn",)}

# TRL 1.16.0, DPOTrainer._compute_loss with loss_type "sigmoid" over PEFT 0.21.2, transformers 5.23.0, torch 2.13.0 on a
# CPU, of a Llama of two layers with the weights, adapter and pairs that ``golden`` makes: of each β the loss, and the
# norms of its gradients with respect to all A's and to all B's. The reference is the model without the adapter.
GOLDEN = {0.1: (0.69788617, 0.74028999, 0.92421573), 0.5: (0.92619348, 4.66642284, 5.45926332)}


def waves(shape, start, size):
    """Numbers that follow from a formula and look like noise."""
    count = math.prod(shape)
    found = torch.sin(start + 1.7 * torch.arange(1, count + 1, dtype=torch.float64).square().remainder(997.0))
    return (size * found).float().view(shape)


def golden():
    """A model, an adapter for the bank of ``SPEC`` by its names, and three pairs; the same on every machine."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    model = LlamaForCausalLM(LlamaConfig(**shape, **heads, tie_word_embeddings=False)).eval()
    with torch.no_grad():
        for place, parameter in enumerate(model.parameters()):
            if parameter.dim() > 1:
                parameter.copy_(waves(parameter.shape, place, 0.4))
    layers = [(layer, name) for layer in range(2) for name in ("q_proj", "v_proj")]
    adapter = {}
    for place, (layer, name) in enumerate(layers):
        base, out = f"base_model.model.model.layers.{layer}.self_attn.{name}", 32 if name == "q_proj" else 16
        adapter[f"{base}.lora_A.weight"] = waves((SPEC.rank, 32), place, 0.3)
        adapter[f"{base}.lora_B.weight"] = waves((out, SPEC.rank), 10 + place, 0.3)
    pairs = []
    for number, (prompt, chosen, rejected) in enumerate([(5, 4, 7), (3, 6, 2), (8, 5, 5)]):
        ids = [3 + (7 * k * k + 5 * number) % 60 for k in range(prompt + chosen + rejected)]
        head, first, second = ids[:prompt], ids[prompt : prompt + chosen], ids[prompt + chosen :]
        pairs.append(Pair(*(Item(head + own, [-100] * prompt + own) for own in (first, second))))
    return model, adapter, pairs


def pairs_of(count, seed=0):
    """Two answers of different lengths to each of some prompts."""
    made = []
    for one, other in zip(items(count, seed=seed), items(count, seed=seed + 100), strict=True):
        prompt = [token for token, label in zip(one.ids, one.labels, strict=True) if label < 0]
        answers = [[label for label in item.labels if label >= 0] for item in (one, other)]
        made.append(Pair(*(Item(prompt + own, [-100] * len(prompt) + own) for own in answers)))
    return made


@pytest.fixture(params=TARGETS)
def bank(request):
    return Bank(request.getfixturevalue(request.param), SPEC.model_copy(update={"targets": TARGETS[request.param]}))


def slow_loss(model, chosen, references, beta, weights=None):
    losses = [
        -weight * torch.log(torch.sigmoid(beta * (margin(model, pair) - reference)))
        for pair, reference, weight in zip(chosen, references, weights or [1.0] * len(chosen), strict=True)
    ]
    return torch.stack(losses).mean()


@torch.no_grad()
def references_of(bank, shard, state=None):
    bank.load([bank.untrained if state is None else state])
    bank.route(torch.tensor([0]))
    return [margin(bank.model, pair).item() for pair in shard]


def step_on(bank, shards, states, chosen, *, training=TRAINING, weights=None, reference=None):
    """One step's losses and gradients."""
    step = PreferenceStep(bank, shards, training, STREAMS, weights, reference=reference or Reference())
    bank.load(states)
    with bank.trainable():
        losses = step.gradients(chosen, 0)
        return losses, bank.grad.clone()


# ---- one step -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", GOLDEN)
def test_loss_and_gradients_are_those_of_trl(beta):
    model, adapter, pairs = golden()
    bank = Bank(model, SPEC)
    training = TRAINING.model_copy(update={"dpo_beta": beta})
    losses, gradients = step_on(bank, [pairs], [adapter], {0: [0, 1, 2]}, training=training)
    norms = [gradients[0, bank.columns(frozen)].norm().item() for frozen in ("B", "A")]
    assert (losses[0], *norms) == pytest.approx(GOLDEN[beta], rel=1e-4)


@pytest.mark.parametrize("from_adapter", [False, True])
def test_losses_and_gradients_are_those_of_full_logits(bank, from_adapter):
    shards, states = [pairs_of(5, 1), pairs_of(4, 2)], [random_state(bank, k) for k in range(2)]
    origin = random_state(bank, 7) if from_adapter else None
    chosen = {0: [3, 0, 1], 1: [2, 3]}
    losses, gradients = step_on(bank, shards, states, chosen, reference=Reference(origin))
    for slot, indices in chosen.items():
        picked = [shards[slot][i] for i in indices]
        known = references_of(bank, picked, origin)
        bank.load([states[slot]])
        bank.route(torch.tensor([0]))
        with bank.trainable():
            loss = slow_loss(bank.model, picked, known, TRAINING.dpo_beta)
            loss.backward()
            assert losses[slot] == pytest.approx(loss.item(), rel=1e-5)
            assert abs(loss.item() - math.log(2)) > 1e-3  # not where training begins
            torch.testing.assert_close(gradients[slot], bank.grad[0], atol=1e-6, rtol=1e-4)
            assert bank.grad.norm() > 1e-3


def test_a_weight_is_on_the_loss_of_its_pair(llama):
    bank = Bank(llama, SPEC)
    shard, weights, state = pairs_of(4), [0.5, 2.0, 0.0, 1.0], random_state(bank, 0)
    losses, gradients = step_on(bank, [shard], [state], {0: [0, 1, 2]}, weights=[weights])
    known = references_of(bank, shard[:3])
    bank.load([state])
    bank.route(torch.tensor([0]))
    with bank.trainable():
        loss = slow_loss(bank.model, shard[:3], known, TRAINING.dpo_beta, weights[:3])
        loss.backward()
        torch.testing.assert_close(gradients, bank.grad, atol=1e-6, rtol=1e-4)
    assert losses[0] == pytest.approx(loss.item(), rel=1e-5)


def test_what_has_not_departed_from_the_reference_prefers_nothing(bank):
    """Whatever the model finds likely: the loss is ln 2."""
    state = random_state(bank, 3)
    losses, _ = step_on(bank, [pairs_of(6)], [state], {0: [0, 4, 5]}, reference=Reference(state))
    assert losses[0] == pytest.approx(math.log(2), abs=1e-6)


def test_the_reference_is_read_once(bank, monkeypatch):
    reference, shard, read = Reference(), pairs_of(4), []
    token_nll = bank.head.token_nll
    monkeypatch.setattr(bank.head, "token_nll", lambda ids, *rest: read.append(len(ids)) or token_nll(ids, *rest))
    reference.read(bank, [*shard, shard[0]], TRAINING)
    assert sum(read) == 8
    reference.read(bank, shard, TRAINING)
    assert sum(read) == 8
    assert [reference[pair] for pair in shard] == pytest.approx(references_of(bank, shard), abs=1e-4)


def test_the_loss_of_a_pair_that_is_far_from_the_reference_is_finite():
    margins = torch.tensor([1e4, -1e4, 0.0])
    assert dpo_losses(margins, torch.zeros(3), 1.0).tolist() == pytest.approx([0.0, 1e4, math.log(2)])


def test_bfloat16_rounds_no_reward(llama):
    bank = Bank(llama, SPEC)
    shard, state = pairs_of(1), random_state(bank, 0)
    half = TRAINING.model_copy(update={"precision": "bfloat16"})
    whole, rounded = (step_on(bank, [shard], [state], {0: [0]}, training=one)[0][0] for one in (TRAINING, half))
    assert whole != rounded and rounded == pytest.approx(whole, abs=0.05)


# ---- whole runs -----------------------------------------------------------------------------------------------------


def run(bank, shards, training=TRAINING, first=0):
    starts = [random_state(bank, first + k) for k in range(len(shards))]
    step = partial(PreferenceStep, reference=Reference())
    return train(bank, shards, starts, training, LR, STREAMS[first : first + len(shards)], step=step)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", TARGETS)
def test_a_site_trains_the_same_in_any_company(request, name, dropout):
    spec = SPEC.model_copy(update={"targets": TARGETS[name], "dropout": dropout})
    bank = Bank(request.getfixturevalue(name), spec)
    shards = [pairs_of(size, seed=size) for size in (7, 2, 5)]
    together = run(bank, shards)
    assert [result.steps for result in together] == [6, 2, 4]
    for k, result in enumerate(together):
        [alone] = run(bank, shards[k : k + 1], first=k)
        assert_close(result.state, alone.state, atol=2e-5)
        assert result.loss == pytest.approx(alone.loss, abs=1e-5)


@pytest.mark.parametrize("tokens", [1, 45, 10_000])
def test_how_pairs_are_grouped_changes_no_result(llama, tokens):
    bank = Bank(llama, SPEC.model_copy(update={"dropout": 0.2}))
    shards = [pairs_of(5, 1), pairs_of(3, 2)]
    whole = run(bank, shards)
    parts = run(bank, shards, TRAINING.model_copy(update={"tokens_per_pass": tokens}))
    for ours, theirs in zip(parts, whole, strict=True):
        assert_close(ours.state, theirs.state)


def test_both_answers_of_a_pair_have_masks_of_their_own(llama, monkeypatch):
    bank = Bank(llama, SPEC.model_copy(update={"dropout": 0.3}))
    seeds, token_nll = [], bank.head.token_nll

    def watched(*batch):
        seeds.extend(generator.initial_seed() for generator in bank.routing.generators or ())
        return token_nll(*batch)

    monkeypatch.setattr(bank.head, "token_nll", watched)
    run(bank, [pairs_of(4, 1), pairs_of(3, 2)])
    assert len(set(seeds)) == len(seeds) == 2 * (4 + 3) * 2  # and none where the reference is read


def test_all_parameters_train_as_in_plain_torch(llama):
    plain, bank, shard = copy.deepcopy(llama).requires_grad_(True), Bank(llama, None), pairs_of(5)
    step = partial(PreferenceStep, reference=Reference())
    [result] = train(bank, [shard], [bank.initial(Stream(0))], TRAINING, LR, STREAMS[:1], step=step)
    with torch.no_grad():
        known = [margin(plain, pair).item() for pair in shard]
    optimizer = torch.optim.SGD(plain.parameters(), lr=LR)
    for chosen in batches(len(shard), TRAINING, STREAMS[0]):
        optimizer.zero_grad()
        slow_loss(plain, [shard[i] for i in chosen], [known[i] for i in chosen], TRAINING.dpo_beta).backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), TRAINING.clip)
        optimizer.step()
    expected = dict(plain.named_parameters())
    assert_close(result.state, {name: expected[name].detach() for name in result.state})


def test_it_learns_what_is_preferred(bank):
    shard = pairs_of(6)
    before = references_of(bank, shard)
    training = LocalTraining(epochs=40, batch_size=6)
    step = partial(PreferenceStep, reference=Reference())
    [result] = train(bank, [shard], [bank.initial(Stream(0))], training, LR, STREAMS[:1], step=step)
    after = references_of(bank, shard, result.state)
    assert result.loss < math.log(2) - 0.01 and all(now > then for now, then in zip(after, before, strict=True))


def test_record_level_privacy_is_refused(llama):
    bank, step = Bank(llama, SPEC), partial(PreferenceStep, reference=Reference())
    privacy = Private([RECORDS], [OSEntropy()])
    with pytest.raises(PrivacyError, match=r"for losses on tokens only\. Train without it, or protect whole sites"):
        train(bank, [pairs_of(4)], [random_state(bank, 0)], TRAINING, LR, STREAMS[:1], privacy=privacy, step=step)
