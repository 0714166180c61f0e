import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attention

from murmura.errors import ModelError
from murmura.training import by_example
from murmura.training.bank import Bank
from murmura.training.by_example import at_once, example_gradients
from murmura.training.config import LocalTraining, LoraSpec
from tests.training.helpers import Item, hf_batch, items, random_state

TRAINING = LocalTraining()


def one_by_one(bank, records):
    """What autograd gives for the loss that transformers itself computes of each record alone."""
    found = []
    for record in records:
        bank.route(torch.tensor([0]))
        with bank.trainable():
            bank.model(**hf_batch([record])).loss.backward()
            found.append(bank.grad[0].clone())
    return torch.stack(found)


@pytest.fixture(params=[False, True], ids=["lora", "dora"])
def bank(llama, request):
    bank = Bank(llama, LoraSpec(rank=4, alpha=8, dropout=0.5, dora=request.param))
    bank.load([random_state(bank, 0), random_state(bank, 1)])
    return bank


def test_each_record_has_the_gradient_that_it_has_alone(bank):
    records = items(6)
    found = example_gradients(bank, records, 0, TRAINING)
    torch.testing.assert_close(found, one_by_one(bank, records), atol=1e-6, rtol=1e-4)
    assert found.shape == (6, bank.size)
    assert not torch.allclose(found, example_gradients(bank, records, 1, TRAINING), atol=1e-3)


def test_attention_of_short_records_is_that_of_training(bank, monkeypatch):
    seen = set()

    def watched(query, *args, **options):
        seen.add(query.dtype)
        return attention(query, *args, **options)

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", watched)
    example_gradients(bank, items(2), 0, LocalTraining(precision="bfloat16"))
    assert seen == {torch.float32}


def test_the_first_token_of_a_record_counts_where_a_masked_model_predicts_it(bert):
    bank = Bank(bert, LoraSpec(rank=4, alpha=8, targets=("query", "value")))
    bank.load([random_state(bank, 0)])
    records = [Item([11, 12, 13], [14, -100, 15]), Item([11, 12], [14, -100])]
    found = example_gradients(bank, records, 0, TRAINING)
    torch.testing.assert_close(found, one_by_one(bank, records), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("tokens", "most"), [(1, 2**26), (60, 2**26), (1024, 1), (1024, 3 * 896)])
def test_memory_is_bounded_and_how_records_are_grouped_changes_nothing(bank, monkeypatch, tokens, most):
    records, passes, nll = items(6), [], bank.head.token_nll
    whole = example_gradients(bank, records, 0, TRAINING)
    monkeypatch.setattr(by_example, "GRADIENTS", most)
    monkeypatch.setattr(bank.head, "token_nll", lambda ids, *rest: passes.append(ids.shape) or nll(ids, *rest))
    parts = example_gradients(bank, records, 0, LocalTraining(tokens_per_pass=tokens))
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=1e-4)
    assert all(rows == 1 or rows * length <= tokens for rows, length in passes)
    assert max(rows for rows, _ in passes) <= max(most // bank.size, 1)
    assert at_once(bank) == by_example.HELD["cpu"] // bank.size


def test_without_an_adapter_there_are_none(llama):
    bank = Bank(llama, None)
    bank.load([bank.untrained])
    with pytest.raises(ModelError, match="adapters"):
        example_gradients(bank, items(1), 0, TRAINING)
