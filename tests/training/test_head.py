"""Losses at label positions: the short way through the head, and when it must not be taken."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import CohereConfig, CohereForCausalLM, Gemma2Config, Gemma2ForCausalLM, PhiConfig, PhiForCausalLM

from murmura.training import head as head_module
from murmura.training.bank import Bank
from murmura.training.batch import collate
from murmura.training.config import LoraSpec
from murmura.training.head import Head, _FrozenHeadLoss
from tests.conftest import make_gpt2, make_llama
from tests.training.helpers import CPU, cloze_items, hf_batch, items, peft_of, random_state

SMALL = dict(vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
SMALL |= dict(num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0)


def gemma2():
    """Its soft cap hardly changes the small logits of an untrained model."""
    return Gemma2ForCausalLM(Gemma2Config(**SMALL, head_dim=8, final_logit_softcapping=30.0))


def cohere():
    return CohereForCausalLM(CohereConfig(**SMALL, logit_scale=0.25))


def phi():
    """Its head has a bias."""
    model = PhiForCausalLM(PhiConfig(**SMALL))
    nn.init.normal_(model.lm_head.bias)
    return model


def built(make):
    torch.manual_seed(0)
    return make().eval()


@pytest.fixture
def in_chunks_of_three(monkeypatch):
    monkeypatch.setattr(head_module, "_CHUNK", 3)
    monkeypatch.setitem(head_module._BLOCK, "cpu", 40)  # logits; two rows of the smallest head here


def loss_and_gradient(function, hidden):
    hidden = hidden.clone().requires_grad_()
    losses = function(hidden)
    (losses * torch.linspace(-1, 2, len(losses))).sum().backward()  # every token's gradient with a factor of its own
    return losses.detach(), hidden.grad


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tokens", [0, 2, 3, 10])
def test_frozen_head_loss_is_cross_entropy(in_chunks_of_three, bias, tokens):
    torch.manual_seed(0)
    head = nn.Linear(8, 20, bias=bias).requires_grad_(False)
    hidden, targets = torch.randn(tokens, 8), torch.randint(0, 20, (tokens,))
    ours, our_gradient = loss_and_gradient(lambda h: _FrozenHeadLoss.apply(h, head, targets), hidden)
    theirs, their_gradient = loss_and_gradient(lambda h: F.cross_entropy(head(h), targets, reduction="none"), hidden)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(our_gradient, their_gradient)


def test_weighted_losses(in_chunks_of_three):
    torch.manual_seed(0)
    head = nn.Linear(8, 20).requires_grad_(False)
    hidden, targets, weights = torch.randn(10, 8), torch.randint(0, 20, (10,)), torch.rand(10)
    ours = loss_and_gradient(lambda h: _FrozenHeadLoss.apply(h, head, targets, weights), hidden)
    theirs = loss_and_gradient(lambda h: weights * F.cross_entropy(head(h), targets, reduction="none"), hidden)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("make", [gemma2, phi])
def test_weights_of_rows(make):
    model, (ids, labels), weights = built(make), collate(items(3), CPU), torch.tensor([0.0, 1.0, 2.5])
    plain, rows = Head(model).token_nll(ids, labels)
    weighted, same = Head(model).token_nll(ids, labels, weights)
    assert torch.equal(same, rows)
    torch.testing.assert_close(weighted, plain * weights[rows])


def test_frozen_head_loss_of_a_half_precision_head():
    torch.manual_seed(0)
    head = nn.Linear(8, 20).requires_grad_(False).to(torch.bfloat16)
    hidden, targets = torch.randn(5, 8, dtype=torch.bfloat16), torch.randint(0, 20, (5,))
    losses, gradient = loss_and_gradient(lambda h: _FrozenHeadLoss.apply(h, head, targets), hidden)
    theirs, expected = loss_and_gradient(lambda h: F.cross_entropy(head(h).float(), targets, reduction="none"), hidden)
    assert (losses.dtype, gradient.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(losses, theirs)
    torch.testing.assert_close(gradient, expected, atol=2e-2, rtol=2e-2)


def mean_loss(model, chosen):
    nll, _ = Head(model).token_nll(*collate(chosen, CPU))
    return nll.mean().item()


@pytest.mark.parametrize("make", [gemma2, cohere])
def test_a_head_that_does_more_than_project_takes_the_long_way(make):
    model, chosen = built(make), items(4)
    assert not Head(model).is_direct
    assert mean_loss(model, chosen) == pytest.approx(model(**hf_batch(chosen)).loss.item(), abs=1e-5)


@pytest.mark.parametrize("make", [gemma2, cohere])
def test_the_long_way_makes_logits_where_they_are_asked_for_alone(make):
    model, (ids, labels) = built(make), collate(items(4), CPU)
    head, places = Head(model), torch.tensor([2, 5, 5, 3])
    whole, seen = model(input_ids=ids).logits, []
    model.lm_head.register_forward_hook(lambda _, given, __: seen.append(given[0].shape[1]))
    found = head.logits_behind(ids, places)
    torch.testing.assert_close(found, whole[torch.arange(4), places])
    head.token_nll(ids, labels)
    assert seen == [3, int((labels[:, 1:] >= 0).any(0).sum())] and seen[1] < ids.shape[1]


def test_plain_heads_take_the_short_way(in_chunks_of_three, llama, gpt2):
    chosen = items(4)
    for model in (llama, gpt2, built(phi)):
        assert Head(model).is_direct
        assert mean_loss(model, chosen) == pytest.approx(model(**hf_batch(chosen)).loss.item(), abs=1e-5)


def test_a_masked_model_predicts_at_the_masks(bert, tokenizer):
    chosen = cloze_items(4, tokenizer)
    assert not Head(bert).is_decoder
    assert Head(bert).is_direct
    assert mean_loss(bert, chosen) == pytest.approx(bert(**hf_batch(chosen)).loss.item(), abs=1e-5)


@pytest.mark.parametrize("make", [lambda t: make_llama(t), lambda t: make_gpt2(t)])
def test_the_short_way_is_tried_in_one_pass_through_the_model(tokenizer, make):
    model, passes = make(tokenizer), []
    model.base_model.register_forward_hook(lambda *_: passes.append(1))
    assert Head(model).is_direct
    assert len(passes) == 1


def test_a_backbone_that_is_given_more_than_tokens_is_tried_with_tokens_alone(tokenizer):
    model = make_llama(tokenizer)
    plain = model.forward

    def forward(input_ids, **options):
        """As some models do: the backbone gets vectors made of the tokens, and here not the tokens' own."""
        return plain(inputs_embeds=2 * model.get_input_embeddings()(input_ids), **options)

    model.forward = forward
    assert not Head(model).is_direct


def test_rows_of_the_losses(llama):
    chosen = items(3)
    nll, rows = Head(llama).token_nll(*collate(chosen, CPU))
    assert rows.tolist() == [row for row, item in enumerate(chosen) for label in item.labels if label >= 0]
    each = [mean_loss(llama, [item]) for item in chosen]
    assert [nll[rows == row].mean().item() for row in range(3)] == pytest.approx(each, abs=1e-5)


def test_nothing_to_predict(llama):
    ids, labels = collate(items(2), CPU)
    nll, rows = Head(llama).token_nll(ids, torch.full_like(labels, -100))
    assert nll.shape == rows.shape == (0,)


CASES = {"lm_head": ("llama", ("q_proj", "lm_head")), "inside the head": ("bert", ("query", "dense"))}


@pytest.mark.parametrize(("fixture", "targets"), CASES.values(), ids=CASES)
def test_adapters_on_the_head_count(request, tokenizer, fixture, targets):
    model = request.getfixturevalue(fixture)
    chosen = cloze_items(3, tokenizer) if fixture == "bert" else items(3)
    spec = LoraSpec(rank=4, alpha=8, targets=targets)
    state = random_state(Bank(type(model)(model.config).eval(), spec), 0)
    peft = peft_of(model, spec, state)
    expected = peft(**hf_batch(chosen)).loss.item()
    bank = Bank(peft.unload().eval(), spec)
    bank.load([random_state(bank, 9), state])
    bank.route(torch.tensor([1, 1, 1]))
    nll, _ = bank.head.token_nll(*collate(chosen, CPU))
    assert nll.mean().item() == pytest.approx(expected, abs=1e-5)
    bank.route(torch.tensor([0, 1, 1]))
    mixed, rows = bank.head.token_nll(*collate(chosen, CPU))
    torch.testing.assert_close(mixed[rows > 0], nll[rows > 0], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(mixed[rows == 0], nll[rows == 0], atol=1e-3)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_measures_are_handed_the_models_own_logits(in_chunks_of_three, request, name):
    model = built(gemma2) if name == "gemma2" else request.getfixturevalue(name)
    ids, labels = collate(items(3), CPU)
    (sums, targets), rows = Head(model).measured(ids, labels, [lambda z, _: z.logsumexp(-1), lambda _, target: target])
    wanted = labels[:, 1:] >= 0
    torch.testing.assert_close(sums, model(input_ids=ids).logits[:, :-1][wanted].logsumexp(-1), atol=1e-5, rtol=1e-5)
    assert targets.tolist() == labels[:, 1:][wanted].tolist()
    assert rows.tolist() == Head(model).token_nll(ids, labels)[1].tolist()


def all_logits(model, ids, labels, is_decoder):
    """Transformers' own logits at the places that predict a label."""
    logits = model(input_ids=ids, attention_mask=(labels != -1).long()).logits
    return logits[:, :-1][labels[:, 1:] >= 0] if is_decoder else logits[labels >= 0]


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "phi", "gemma2"])  # linear, masked, biased, not direct
def test_logits_of_a_few_tokens(request, tokenizer, name):
    model = built({"phi": phi, "gemma2": gemma2}[name]) if name in ("phi", "gemma2") else request.getfixturevalue(name)
    ids, labels = collate(cloze_items(4, tokenizer) if name == "bert" else items(4), CPU)
    tokens = torch.tensor([7, 250, 7, 31])
    found, rows = Head(model).logits_at(ids, labels, tokens)
    expected = all_logits(model, ids, labels, name != "bert")[:, tokens]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert rows.tolist() == Head(model).token_nll(ids, labels)[1].tolist()
    # All parameters train, the head's too: every gradient is the one through all logits.
    parameters = list(model.parameters())
    factors = torch.linspace(-1, 2, found.numel()).view_as(found)
    ours, theirs = (
        torch.autograd.grad((factors * logits).sum(), parameters, allow_unused=True, materialize_grads=True)
        for logits in (found, expected)
    )
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-5, rtol=1e-4)


def test_few_logits_are_float32_whatever_the_model_is(llama):
    ids, labels = collate(items(2), CPU)
    found, _ = Head(llama.to(torch.bfloat16)).logits_at(ids, labels, torch.tensor([3, 5]))
    assert found.dtype == torch.float32


def test_only_the_columns_asked_for_are_made(llama, monkeypatch):
    head = Head(llama)
    monkeypatch.setattr(llama.lm_head, "forward", lambda hidden: pytest.fail("all logits were made"))
    found, _ = head.logits_at(*collate(items(2), CPU), torch.tensor([3, 5]))
    assert found.shape[1] == 2
