"""Min-K%++ against the definition, from the model's whole softmax."""

import numpy as np
import pytest
import torch

from murmura.audit import membership
from murmura.audit.membership import min_k
from murmura.generation.sampling import Sampling
from murmura.generation.scoring import CloseScores, closely, score
from murmura.measure.attacks import Passes
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from tests.training.helpers import items, random_state


def by_hand(logits, tokens, share):
    """In float64, from logits [n, V] and the tokens that followed [n]."""
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    logs = np.log(shares)
    mean = (shares * logs).sum(1)
    std = np.sqrt((shares * (logs - mean[:, None]) ** 2).sum(1))
    each = (logs[np.arange(len(tokens)), tokens] - mean) / std
    return np.sort(each)[: max(1, int(share * len(tokens)))].mean()


@pytest.mark.parametrize("share", [0.2, 0.6, 1.0])
def test_it_is_its_definition(llama, share, monkeypatch):
    monkeypatch.setattr(membership, "_SHARE", share)
    bank = Bank(llama, LoraSpec(rank=4, alpha=8))
    bank.load([random_state(bank, seed) for seed in range(2)])
    records, slots = items(5), [0, 1, 1, 0, 0]
    found = score(closely(Sampling()), bank, records, slots, tokens_per_pass=50)
    for record, slot, one in zip(records, slots, found, strict=True):
        bank.route(torch.tensor([slot]))
        with torch.no_grad():
            logits = bank.model(input_ids=torch.tensor([record.ids])).logits[0, :-1].double().numpy()
        kept = [place for place, label in enumerate(record.labels[1:]) if label >= 0]
        tokens = [record.labels[place + 1] for place in kept]
        assert min_k(Passes(one, one)) == pytest.approx(by_hand(logits[kept], tokens, share), abs=1e-3)


def test_one_token_is_enough_and_certainty_gives_a_finite_score():
    sure = CloseScores(*(np.array([x], dtype=np.float32) for x in (0.0, 1, 0.0, 0.0, 0.0)))
    assert min_k(Passes(sure, sure)) == 0.0
    wrong = CloseScores(*(np.array([x], dtype=np.float32) for x in (30.0, 0, 0.0, 0.0, 0.0)))
    found = min_k(Passes(wrong, wrong))
    assert np.isfinite(found) and found < -1e6
