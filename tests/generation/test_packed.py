"""Products with packed weights against the layers' own."""

import pytest
import torch
from torch import nn

from murmura.generation import packed
from murmura.generation.packed import available, products_in
from tests.conftest import make_gpt2, make_llama

# Without oneDNN a model keeps its own products, and must write the same.


@torch.no_grad()
@pytest.mark.parametrize("make", [make_llama, make_gpt2])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_logits_are_the_models_own(make, tokenizer, bfloat16, monkeypatch):
    model, ids = make(tokenizer), torch.randint(3, 250, (3, 17), generator=torch.Generator().manual_seed(0))
    before, calls = model(input_ids=ids).logits, []
    product = packed._product
    monkeypatch.setattr(packed, "_product", lambda *inputs: calls.append(inputs) or product(*inputs))
    with products_in(model, torch.bfloat16 if bfloat16 else None):
        found = model(input_ids=ids).logits
    assert (len(calls) > 8) == (available() and (packed.multiplies_bfloat16() or not bfloat16))
    tolerance = 0.02 if bfloat16 else 1e-5
    torch.testing.assert_close(found.float(), before, atol=tolerance * float(before.abs().max()), rtol=0)
    assert torch.equal(found, before) is False or not bfloat16
    assert torch.equal(model(input_ids=ids).logits, before)  # as it was
    assert not any("forward" in vars(module) for module in model.modules())


@torch.no_grad()
@pytest.mark.parametrize(("weights", "dtype"), [(torch.float32, torch.bfloat16), (torch.bfloat16, None)])
def test_a_processor_whose_operations_take_no_bfloat16_is_not_asked_for_them(weights, dtype, monkeypatch):
    """As without AVX-512, where they raise an error."""
    monkeypatch.setattr(packed, "multiplies_bfloat16", lambda: False)
    layer = nn.Linear(24, 8, dtype=weights)
    x = torch.randn(3, 24, dtype=weights)
    expected = layer(x)
    with products_in(nn.Sequential(layer), dtype):
        assert "forward" not in vars(layer)
        found = layer(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected.float(), atol=0.05, rtol=0.05)


@torch.no_grad()
def test_weights_in_float16_are_multiplied_in_bfloat16_where_that_is_asked_for():
    if not packed.multiplies_bfloat16():
        pytest.skip("this processor's operations take no bfloat16")
    layer, x = nn.Linear(24, 8, dtype=torch.float16), torch.randn(3, 24, dtype=torch.float16)
    expected = layer.float()(x.float())
    layer.half()
    with products_in(nn.Sequential(layer)):
        assert "forward" not in vars(layer)
    with products_in(nn.Sequential(layer), torch.bfloat16):
        assert "forward" in vars(layer)
        torch.testing.assert_close(layer(x).float(), expected, atol=0.05, rtol=0.05)


@torch.no_grad()
def test_any_shape_of_input_and_a_bias():
    layer = nn.Linear(24, 8)
    inputs = [torch.randn(24), torch.randn(3, 24), torch.randn(2, 5, 24), torch.randn(5, 2, 24).transpose(0, 1)]
    expected = [layer(x) for x in inputs]
    with products_in(nn.Sequential(layer)):
        for x, y in zip(inputs, expected, strict=True):
            torch.testing.assert_close(layer(x), y, atol=1e-5, rtol=1e-5)


def test_layers_of_other_kinds_stay_as_they_are():
    class Own(nn.Linear):
        pass

    model = nn.Sequential(Own(4, 4), nn.Linear(4, 4, dtype=torch.float64), nn.LayerNorm(4))
    with products_in(model):
        assert not any("forward" in vars(module) for module in model.modules())


def test_an_error_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(ZeroDivisionError), products_in(model):
        raise ZeroDivisionError
    assert "forward" not in vars(model[0])


def test_weights_are_packed_once_for_blocks_within_a_block():
    model = nn.Sequential(nn.Linear(4, 4))
    with products_in(model):
        packed_once = vars(model[0])["forward"]
        with products_in(model):
            assert vars(model[0])["forward"] is packed_once
        assert vars(model[0])["forward"] is packed_once
    assert "forward" not in vars(model[0])


@torch.no_grad()
def test_without_the_operations_bfloat16_is_autocast(llama, monkeypatch):
    monkeypatch.setattr(packed, "available", lambda: False)
    ids = torch.arange(10, 20)[None]
    with products_in(llama):
        assert llama(input_ids=ids).logits.dtype == torch.float32
    with products_in(llama, torch.bfloat16):
        assert llama(input_ids=ids).logits.dtype == torch.bfloat16
