"""The arithmetic of an adapted layer, and which slot each row of a batch goes to."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DebertaV2Config, DebertaV2ForMaskedLM
from transformers.pytorch_utils import Conv1D

from murmura.errors import ModelError
from murmura.streams import Stream
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.layer import BankLayer, Routing, in_out_features
from murmura.training.loop import train
from tests.conftest import restless, sizes
from tests.generation.families import made
from tests.training.helpers import items, random_residual, random_state

ROUTES = {
    "single": [1, 1, 1, 1],
    "grouped": [0, 0, 1, 1, 2, 2],
    "mixed": [2, 0, 0, 1, 2],
    "some": [0, 0, 2, 2],
    "in order, unequal": [0, 0, 0, 1, 2],
    "neighbours": [1, 1, 2, 2],
}


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("rows", ROUTES.values(), ids=ROUTES)
def test_a_row_gets_the_same_wherever_it_stands(llama, rows, dora):
    bank = Bank(llama, LoraSpec(rank=4, alpha=8, targets=("q_proj", "down_proj"), dora=dora))
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


@pytest.fixture
def deberta(tokenizer):
    """A model whose layers look at positions too: 32 vectors, whatever a batch is."""
    kinds = {"pos_att_type": ["p2c", "c2p"], "relative_attention": True, "position_buckets": 16, "share_att_key": True}
    torch.manual_seed(0)
    return restless(DebertaV2ForMaskedLM(DebertaV2Config(**sizes(tokenizer, **kinds))).eval())


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_what_rows_of_one_slot_share_needs_no_owner(deberta, dora):
    bank = Bank(deberta, LoraSpec(rank=4, alpha=8, targets=("query_proj", "key_proj"), dora=dora))
    states = [random_state(bank, seed) for seed in range(2)]
    bank.load(states if dora else [states[0], states[1] | random_residual(bank, 2)])
    ids = torch.randint(10, 250, (3, 9), generator=torch.Generator().manual_seed(0))
    for slot in 0, 1:
        bank.route(torch.tensor([slot] * 3))
        together = bank.model(input_ids=ids).logits
        bank.route(torch.tensor([slot]))
        alone = torch.cat([bank.model(input_ids=row[None]).logits for row in ids])
        torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)
    bank.route(torch.tensor([0, 0, 1]))
    with pytest.raises(ModelError, match="got 1 of 3 rows of a batch"):
        bank.model(input_ids=ids)


@pytest.mark.parametrize("records", [1, 2])
def test_what_rows_share_has_no_masks_of_theirs(deberta, records):
    bank = Bank(deberta, LoraSpec(rank=4, alpha=8, targets=("query_proj", "key_proj"), dropout=0.5))
    with pytest.raises(ModelError, match="looks at something else than a batch's tokens") as error:
        train(bank, [items(records)], [random_state(bank, 0)], LocalTraining(), 0.1, [Stream(0)])
    assert "lora.dropout = 0" in error.value.fix


def test_a_model_that_passes_by_an_adapter_is_refused(tokenizer):
    """Mamba multiplies by the weight of dt_proj itself."""
    bank = Bank(made("mamba", tokenizer, state_size=4), LoraSpec(rank=4, targets=("all-linear",)))
    bank.load([bank.untrained])
    bank.route(torch.tensor([0]))
    with pytest.raises(ModelError, match=r"takes the weight \[64, 2\] out of a layer with an adapter"):
        bank.model(input_ids=torch.tensor([[11, 12]]))


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


class Written(TorchDispatchMode):
    """What has written to memory: a kernel each, on a GPU."""

    def __init__(self):
        super().__init__()
        self.by = []

    def __torch_dispatch__(self, function, types, given=(), options=None):
        if not function.is_view:
            self.by.append(str(function))
        return function(*given, **(options or {}))


@pytest.mark.parametrize("dropout", [0.05, 0.5, 1e-20])
@pytest.mark.parametrize("turned", [False, True])
def test_masks_are_drawn_in_one_kernel_a_row_and_are_those_of_each_row_by_itself(dropout, turned):
    layer, lengths, keep = layer_of(nn.Linear(5, 6), 5, 6, dropout=dropout), [4, 0, 23, 1, 17], 1.0 - dropout

    def generators():
        return [torch.Generator().manual_seed(seed) for seed in range(len(lengths))]

    x = torch.empty(len(lengths), 5, 23).mT if turned else torch.empty(len(lengths), 23, 5)
    expected = torch.zeros(x.shape)
    for row, (length, generator) in enumerate(zip(lengths, generators(), strict=True)):
        expected[row, :length] = (torch.rand(length, 5, generator=generator) < keep).float() / keep
    layer.routing.generators, layer.routing.lengths = generators(), lengths
    with Written() as written:
        found = layer._mask(x)
    assert torch.equal(found, expected) and found.dtype == x.dtype
    assert len(written.by) == len(lengths) + 3  # before: what is there at first; behind: kept or not, and by how much


def test_dropout_only_while_generators_are_set():
    layer, x = layer_of(nn.Linear(4, 6), 4, 6, dropout=0.4), torch.randn(2, 5, 4)
    plain = layer(x)
    layer.routing.lengths, layer.routing.generators = [5, 5], [torch.Generator().manual_seed(k) for k in (0, 1)]
    assert not torch.allclose(layer(x), plain)
    layer.routing.generators = None
    assert torch.equal(layer(x), plain)


def dora_layer_of(base):
    layer = layer_of(base, 4, 6)
    layer.m = torch.rand(2, 6, generator=torch.Generator().manual_seed(1)) + 0.5
    layer.measure()
    return layer


def turned(layer, slot, weight):
    """W' of a slot, dense (Liu et al. 2024, equation 5)."""
    whole = weight + layer.scale * layer.B[slot] @ layer.A[slot]
    return layer.m[slot, :, None] * whole / whole.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dora_gives_each_row_of_the_weight_its_magnitude(dtype):
    for base in (nn.Linear(4, 6).to(dtype), nn.Linear(4, 6, bias=False).to(dtype), Conv1D(6, 4).to(dtype)):
        layer, x = dora_layer_of(base), torch.randn(2, 5, 4).to(dtype)
        weight = base.weight.detach().float()
        weight = weight.T if isinstance(base, Conv1D) else weight
        bias = 0 if base.bias is None else base.bias.float()
        expected = torch.stack([x[row].float() @ turned(layer, 1 - row, weight).T + bias for row in range(2)])
        close = {"atol": 1e-5, "rtol": 1e-5} if dtype is torch.float32 else {"atol": 0.1, "rtol": 2**-6}
        torch.testing.assert_close(layer(x).float(), expected, **close)
        assert layer(x).dtype == dtype
        assert torch.equal(layer(x.reshape(10, 4)), layer(x).reshape(10, 6))


def test_dropout_goes_to_all_of_a_turned_weight_s_own_part():
    """The base's output stays whole, and what DoRA adds to it is that of the input with zeros in it."""
    base = nn.Linear(4, 6)
    layer, x = dora_layer_of(base), torch.randn(2, 5, 4)
    layer.dropout = 0.4
    layer.routing.lengths, layer.routing.generators = [5, 5], [torch.Generator().manual_seed(k) for k in (0, 1)]
    mask = layer._mask(x)
    layer.routing.generators = [torch.Generator().manual_seed(k) for k in (0, 1)]
    weight = base.weight.detach()
    added = [(x[row] * mask[row]) @ (turned(layer, 1 - row, weight) - weight).T for row in range(2)]
    torch.testing.assert_close(layer(x), base(x) + torch.stack(added))


def test_a_row_of_zeros_stays_one():
    base = nn.Linear(4, 6, bias=False)
    base.weight.data[2] = 0
    layer = dora_layer_of(base)
    layer.B[:, 2], layer.m[:, 2] = 0, layer.base_squares[2].sqrt()
    layer.measure()
    assert not layer(torch.randn(2, 5, 4))[..., 2].any()


class Quantised(nn.Module):
    """A weight that is kept as codes, with PEFT's way to read it (here HQQ's) or none."""

    def __init__(self, weight, readable):
        super().__init__()
        self.in_features, self.out_features, self.codes = 4, 6, (weight * 64).round().to(torch.int8)
        if readable:
            self.W_q, self.dequantize = self.codes, lambda: self.codes / 64
        else:
            self.weight = nn.Parameter(self.codes.T, requires_grad=False)

    def forward(self, x):
        return x @ (self.codes / 64).T


def test_the_rows_of_a_quantised_weight_are_those_that_it_computes_with():
    base, x = Quantised(torch.randn(6, 4), readable=True), torch.randn(2, 5, 4)
    layer = dora_layer_of(base)
    expected = torch.stack([x[row] @ turned(layer, 1 - row, base.codes / 64).T for row in range(2)])
    torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(ModelError, match="of a Quantised cannot be read out"):
        dora_layer_of(Quantised(torch.randn(6, 4), readable=False))


def test_features():
    assert in_out_features(nn.Linear(4, 6), "x") == (4, 6)
    assert in_out_features(Conv1D(6, 4), "x") == (4, 6)
    with pytest.raises(ModelError, match="target x is a Embedding"):
        in_out_features(nn.Embedding(4, 6), "x")
