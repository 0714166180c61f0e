"""Attention of short texts in bfloat16: as exact as in float32, and of long ones as it was."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from murmura.training.attention import short_in_float32

CPU = torch.device("cpu")


class Layer(torch.nn.Module):
    is_causal, num_key_value_groups = True, 2


def attended(tokens, dtype, mask=None, *, learns=True):
    """What comes out, and the gradient of what went in."""
    stream = torch.Generator().manual_seed(0)
    sizes = ((2, 4, tokens, 8), (2, 2, tokens, 8), (2, 2, tokens, 8))
    three = [torch.randn(size, generator=stream).bfloat16().to(dtype).requires_grad_(learns) for size in sizes]
    found, _ = ALL_ATTENTION_FUNCTIONS["sdpa"](Layer(), *three, mask)
    if learns:
        found.float().square().sum().backward()
    return found, [one.grad for one in three]


@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize("autocast", [False, True])
def test_short_texts_are_attended_to_as_in_float32(mask, autocast):
    seen = torch.ones(9, 9, dtype=torch.bool).tril()[None, None].expand(2, 1, 9, 9)
    masks = {None: (None, None), "bool": (seen, seen)}
    low = torch.zeros(2, 1, 9, 9).masked_fill(~seen, -1e30)
    masks["float"] = low.bfloat16(), low
    given, exact = masks[mask]
    expected, gradients = attended(9, torch.float32, exact)
    with short_in_float32(CPU), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found, own = attended(9, torch.bfloat16, given)
    assert found.dtype == torch.bfloat16 and torch.equal(found, expected.bfloat16())
    for ours, theirs in zip(own, gradients, strict=True):  # what comes back is rounded before it goes on
        torch.testing.assert_close(ours.float(), theirs, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("tokens", "dtype", "learns"), [(192, "bfloat16", True), (9, "bfloat16", False), (9, "float32", True)]
)
def test_all_else_is_as_it_was(monkeypatch, tokens, dtype, learns):
    seen = []

    def watched(query, *args, **options):
        seen.append(query.dtype)
        return scaled_dot_product_attention(query, *args, **options)

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", watched)
    with short_in_float32(CPU):
        attended(tokens, getattr(torch, dtype), learns=learns)
    assert seen == [getattr(torch, dtype)]


def test_of_blocks_that_overlap_nothing_stays_either():
    """Sites that train in threads of one process end in any order."""
    first, second = short_in_float32(CPU), short_in_float32(CPU)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is not sdpa_attention_forward  # for the other block
    second.__exit__(None, None, None)
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is sdpa_attention_forward


def test_nothing_stays_of_it():
    with pytest.raises(ValueError, match="within"), short_in_float32(CPU):
        assert ALL_ATTENTION_FUNCTIONS["sdpa"] is not sdpa_attention_forward
        raise ValueError("within")
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is sdpa_attention_forward
    with short_in_float32(torch.device("cuda")):
        assert ALL_ATTENTION_FUNCTIONS["sdpa"] is sdpa_attention_forward
