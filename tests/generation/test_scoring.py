"""Losses and energies of given texts, many adapters in one batch."""

import math

import numpy as np
import pytest
import torch

from murmura.generation.sampling import Sampling, filtered
from murmura.generation.scoring import SUMS, TOKENS, closely, energy, score
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from tests.training.helpers import Item, cloze_items, hf_batch, items, random_state

RECORDS = items(7)
SLOTS = [0, 1, 2, 2, 1, 0, 0]


@pytest.fixture
def bank(llama):
    bank = Bank(llama, LoraSpec(rank=4, alpha=8))
    bank.load([random_state(bank, seed) for seed in range(3)])
    return bank


@pytest.mark.parametrize("tokens", [1, 60, 10_000])
def test_scores_are_the_models_own_losses(bank, tokens):
    found = score(SUMS, bank, RECORDS, SLOTS, tokens_per_pass=tokens)
    for record, slot, result in zip(RECORDS, SLOTS, found, strict=True):
        bank.route(torch.tensor([slot]))
        loss = bank.model(**hf_batch([record])).loss.item()
        assert result.mean == pytest.approx(loss, abs=1e-5)
        assert result.tokens == sum(label >= 0 for label in record.labels)
        assert result.nll == pytest.approx(loss * result.tokens, rel=1e-5)


def test_a_masked_model(bert, tokenizer):
    bank, records = Bank(bert, LoraSpec(rank=4, alpha=8, targets=("query",))), cloze_items(3, tokenizer)
    bank.load([random_state(bank, 0)])
    found = score(SUMS, bank, records, [0] * 3, tokens_per_pass=100)
    for record, result in zip(records, found, strict=True):
        bank.route(torch.tensor([0]))
        assert result.mean == pytest.approx(bank.model(**hf_batch([record])).loss.item(), abs=1e-5)


def test_nothing_to_score(bank):
    assert score(SUMS, bank, [], [], tokens_per_pass=100) == []
    found = score(SUMS, bank, [Item([5, 6], [-100, -100]), RECORDS[0]], [0, 0], tokens_per_pass=100)
    assert (found[0].nll, found[0].tokens, found[0].mean) == (0, 0, math.inf)
    assert found[1].tokens


@pytest.mark.parametrize("tokens", [1, 60, 10_000])
def test_tokens_have_the_models_own_losses_and_say_whether_they_are_the_likeliest(bank, tokens):
    bank.head.model.lm_head.weight.data[:] *= 20  # so that some are
    found = score(TOKENS, bank, RECORDS, SLOTS, tokens_per_pass=tokens)
    for record, slot, result in zip(RECORDS, SLOTS, found, strict=True):
        bank.route(torch.tensor([slot]))
        logits = bank.model(input_ids=torch.tensor([record.ids])).logits[0, :-1]
        wanted = torch.tensor(record.labels[1:])
        places = wanted >= 0
        losses = torch.nn.functional.cross_entropy(logits[places], wanted[places], reduction="none")
        assert result.nll.tolist() == pytest.approx(losses.tolist(), abs=1e-3)
        assert result.first.tolist() == (logits[places].argmax(-1) == wanted[places]).tolist()


def test_tokens_of_a_masked_model_and_of_no_record(bert, tokenizer):
    bank, records = Bank(bert, LoraSpec(rank=4, alpha=8, targets=("query",))), cloze_items(3, tokenizer)
    bank.load([random_state(bank, 0)])
    found = score(TOKENS, bank, records, [0] * 3, tokens_per_pass=100)
    whole = score(SUMS, bank, records, [0] * 3, tokens_per_pass=100)
    assert [one.nll.sum() for one in found] == pytest.approx([one.nll for one in whole], rel=1e-5)
    assert score(TOKENS, bank, [], [], tokens_per_pass=100) == []
    [empty] = score(TOKENS, bank, [Item([5, 6], [-100, -100])], [0], tokens_per_pass=100)
    assert len(empty.nll) == len(empty.first) == 0


def test_logits_exist_a_part_at_a_time(bank, monkeypatch):
    from murmura.training import head

    whole = score(TOKENS, bank, RECORDS, SLOTS, tokens_per_pass=10_000)
    sizes = []
    monkeypatch.setattr(head, "_CHUNK", 5)
    monkeypatch.setattr(head, "_BLOCK", {"cpu": 2 * bank.head.project.out_features})
    bank.head.project.register_forward_hook(lambda module, given, logits: sizes.append(len(logits)))
    parts = score(TOKENS, bank, RECORDS, SLOTS, tokens_per_pass=10_000)
    assert max(sizes) <= 5
    for one, other in zip(whole, parts, strict=True):
        assert one.nll.tolist() == pytest.approx(other.nll.tolist(), abs=1e-5)
        assert one.first.tolist() == other.first.tolist()


@pytest.mark.parametrize("tokens", [1, 10_000])
def test_energies(bank, tokens):
    found = score(energy(2.0), bank, RECORDS, SLOTS, tokens_per_pass=tokens)
    for record, slot, result in zip(RECORDS, SLOTS, found, strict=True):
        bank.route(torch.tensor([slot]))
        logits = bank.model(input_ids=torch.tensor([record.ids])).logits[0, :-1]
        chosen = logits[[label >= 0 for label in record.labels[1:]]]
        assert result == pytest.approx(-2 * (chosen / 2).logsumexp(-1).mean().item(), abs=1e-5)


# ---- a closer look ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.7, top_k=40), Sampling(top_p=0.5)])
def test_a_closer_look_is_the_whole_softmax(bank, sampling):
    found = score(closely(sampling), bank, RECORDS, SLOTS, tokens_per_pass=60)
    for record, slot, one in zip(RECORDS, SLOTS, found, strict=True):
        bank.route(torch.tensor([slot]))
        with torch.no_grad():
            logits = bank.model(input_ids=torch.tensor([record.ids])).logits[0, :-1]
        kept = [place for place, label in enumerate(record.labels[1:]) if label >= 0]
        tokens = torch.tensor([record.labels[place + 1] for place in kept])
        logs = logits[kept].double().log_softmax(-1)
        mean = (logs.exp() * logs).sum(-1)
        std = (logs.exp() * (logs - mean[:, None]) ** 2).sum(-1).sqrt()
        drawn = filtered(logits[kept], sampling).log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        assert torch.tensor(one.nll) == pytest.approx(-logs.gather(1, tokens[:, None])[:, 0].float(), abs=1e-4)
        assert torch.equal(torch.tensor(one.first), logs.argmax(-1) == tokens)
        assert torch.tensor(one.mean) == pytest.approx(mean.float(), abs=1e-4)
        assert torch.tensor(one.std) == pytest.approx(std.float(), abs=1e-4)
        assert np.allclose(one.drawn, drawn.numpy(), atol=1e-4)  # −∞ where it is never drawn


def test_tokens_that_a_model_rules_out_take_no_part(bank):
    from murmura.generation.scoring import _spread

    spread = _spread(torch.tensor([[0.0, 0.0, -torch.inf], [1000.0, 0.0, 0.0]]), torch.tensor([0, 0]))
    assert spread == pytest.approx(torch.tensor([[-math.log(2), 0.0], [0.0, 0.0]]))


def test_nothing_to_look_at_closely(bank):
    assert score(closely(Sampling()), bank, [], [], tokens_per_pass=100) == []
    [empty] = score(closely(Sampling()), bank, [Item([5, 6], [-100, -100])], [0], tokens_per_pass=100)
    assert [len(one) for one in (empty.nll, empty.first, empty.mean, empty.std, empty.drawn)] == [0] * 5
