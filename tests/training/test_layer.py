"""The arithmetic of an adapted layer, and which slot each row of a batch goes to."""

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from murmura.errors import ModelError
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from murmura.training.layer import BankLayer, Routing, in_out_features
from tests.training.helpers import random_state

ROUTES = {
    "single": [1, 1, 1, 1],
    "grouped": [0, 0, 1, 1, 2, 2],
    "mixed": [2, 0, 0, 1, 2],
    "some": [0, 0, 2, 2],
    "in order, unequal": [0, 0, 0, 1, 2],
    "neighbours": [1, 1, 2, 2],
}


@pytest.mark.parametrize("rows", ROUTES.values(), ids=ROUTES)
def test_a_row_gets_the_same_wherever_it_stands(llama, rows):
    bank = Bank(llama, LoraSpec(rank=4, alpha=8, targets=("q_proj", "down_proj")))
    bank.load([random_state(bank, seed) for seed in range(3)])
    ids = torch.randint(10, 250, (len(rows), 9), generator=torch.Generator().manual_seed(0))
    bank.route(torch.tensor(rows))
    together = bank.model(input_ids=ids).logits
    for row, slot in enumerate(rows):
        bank.route(torch.tensor([slot]))
        alone = bank.model(input_ids=ids[row : row + 1]).logits
        torch.testing.assert_close(together[row : row + 1], alone, atol=1e-5, rtol=1e-4)
    bank.route(torch.tensor([(slot + 1) % 3 for slot in rows]))
    assert not torch.allclose(bank.model(input_ids=ids).logits, together, atol=1e-3)


SHAPES = {
    "one slot": ([1, 1], 1, None),
    "all slots": ([0, 0, 1, 1, 2, 2], None, slice(0, 3)),
    "neighbours": ([1, 1, 2, 2], None, slice(1, 3)),
    "unequal": ([0, 0, 1], None, None),
    "a gap": ([0, 2], None, None),
    "out of order": ([1, 1, 0, 0], None, None),
}


@pytest.mark.parametrize(("rows", "single", "span"), SHAPES.values(), ids=SHAPES)
def test_the_shape_of_a_routing(rows, single, span):
    routing = Routing()
    routing.set(torch.tensor(rows))
    assert (routing.single, routing.span) == (single, span)


def layer_of(base, wide_in, wide_out, *, dropout=0.0):
    layer = BankLayer(base, Routing(), scale=0.5, dropout=dropout)
    generator = torch.Generator().manual_seed(0)
    layer.A = torch.randn(2, 3, wide_in, generator=generator)
    layer.B = torch.randn(2, wide_out, 3, generator=generator)
    layer.routing.set(torch.tensor([1, 0]))
    return layer


def test_base_plus_scaled_product():
    for base in (nn.Linear(4, 6), Conv1D(6, 4)):
        layer, x = layer_of(base, 4, 6), torch.randn(2, 5, 4)
        delta = torch.stack([0.5 * x[0] @ (layer.B[1] @ layer.A[1]).T, 0.5 * x[1] @ (layer.B[0] @ layer.A[0]).T])
        torch.testing.assert_close(layer(x), base(x) + delta)
        flattened = layer(x.reshape(10, 4))  # as some architectures pass it
        torch.testing.assert_close(flattened, layer(x).reshape(10, 6))


def test_a_half_precision_base_keeps_its_dtype():
    layer, x = layer_of(nn.Linear(4, 6).to(torch.bfloat16), 4, 6), torch.randn(2, 5, 4, dtype=torch.bfloat16)
    assert layer(x).dtype == torch.bfloat16


def test_an_input_that_is_not_the_batch_is_refused():
    layer = layer_of(nn.Linear(4, 6), 4, 6)
    with pytest.raises(ModelError, match="got 1 of 2 rows of a batch"):
        layer(torch.randn(1, 8, 4))  # relative positions, say, shared by all rows


def test_some_tokens_of_a_batch_are_refused():
    """As an expert of a mixture gets them: four tokens could be any of the six, and are not two of each row."""
    layer = layer_of(nn.Linear(4, 6), 4, 6)
    layer.routing.length = 3
    assert layer(torch.ones(6, 4)).shape == (6, 6)
    with pytest.raises(ModelError, match="got 4 of 6 tokens of a batch"):
        layer(torch.ones(4, 4))


def test_dropout_masks_come_from_each_rows_own_generator():
    layer = layer_of(nn.Linear(4, 6), 4, 6, dropout=0.4)

    def masks(seeds, lengths, width):
        layer.routing.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        layer.routing.lengths = lengths
        return layer._mask(torch.ones(len(seeds), width, 4))

    mask = masks([7, 8], [500, 300], 500)
    assert mask[0].unique().tolist() == pytest.approx([0, 1 / 0.6])
    assert mask[0].mean() == pytest.approx(1, abs=0.05)  # so that nothing changes on average
    assert not mask[1, 300:].any()
    assert torch.equal(masks([8], [300], 310)[0, :300], mask[1, :300])


def test_dropout_only_while_generators_are_set():
    layer, x = layer_of(nn.Linear(4, 6), 4, 6, dropout=0.4), torch.randn(2, 5, 4)
    plain = layer(x)
    layer.routing.lengths, layer.routing.generators = [5, 5], [torch.Generator().manual_seed(k) for k in (0, 1)]
    assert not torch.allclose(layer(x), plain)
    layer.routing.generators = None
    assert torch.equal(layer(x), plain)


def test_features():
    assert in_out_features(nn.Linear(4, 6), "x") == (4, 6)
    assert in_out_features(Conv1D(6, 4), "x") == (4, 6)
    with pytest.raises(ModelError, match="target x is a Embedding"):
        in_out_features(nn.Embedding(4, 6), "x")
