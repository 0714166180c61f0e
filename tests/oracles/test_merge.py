"""What aggregation means to PEFT: adapter and residual, saved as one plain adapter and merged into the weights.

GPT-2's layers store their weight as [in, out] and Llama's as [out, in]; adapters are A [r, in] and B [out, r] in both.
"""

import pytest
import torch
from peft import PeftModel

from murmura.aggregation.choosing import rule
from murmura.aggregation.config import AggregationConfig
from murmura.streams import Stream
from murmura.training.adapter import MAGNITUDE, PEFT_PREFIX, crop, fold, rank_of, save_peft
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from tests.conftest import make_gpt2, make_llama
from tests.training.helpers import random_state

CASES = {
    "gpt2": (make_gpt2, LoraSpec(rank=4, alpha=6, targets=("c_attn", "c_proj"))),
    "gpt2-rslora": (make_gpt2, LoraSpec(rank=4, alpha=6, targets=("c_fc",), rslora=True)),
    "llama": (make_llama, LoraSpec(rank=4, alpha=6, targets=("q_proj", "down_proj"))),
}


@pytest.mark.parametrize("name", ["fedex", "flora", "flexlora"])
@pytest.mark.parametrize("case", CASES)
def test_merged_weights_are_the_base_plus_every_site_s_change(case, name, tokenizer, tmp_path):
    make, spec = CASES[case]
    bank = Bank(make(tokenizer), spec)
    sites = [(crop(random_state(bank, 0), 2), 1.0), (crop(random_state(bank, 1), 1), 3.0)]  # rank 3 suits FlexLoRA
    after = rule(AggregationConfig(rule=name)).step(
        bank.initial(Stream(0)), sites, scale=spec.scale, round=1, stream=Stream(1)
    )
    plain, wider = fold(after, spec)
    assert rank_of(plain) == wider.rank == 4 + {"fedex": 2, "flora": 3, "flexlora": 0}[name]
    assert wider.scale == pytest.approx(spec.scale)
    save_peft(tmp_path, plain, wider, "tiny", fan_in_fan_out=bank.fan_in_fan_out)
    merged = dict(PeftModel.from_pretrained(make(tokenizer), tmp_path).merge_and_unload().named_parameters())
    for weight, base in make(tokenizer).named_parameters():
        name_a = f"{PEFT_PREFIX}{weight.removesuffix('.weight')}.lora_A.weight"
        change = torch.zeros_like(base)
        if name_a in after:
            name_b = name_a.replace("lora_A", "lora_B")
            whole = sum(share / 4 * spec.scale * site[name_b] @ site[name_a] for site, share in sites)
            change = whole.T if bank.fan_in_fan_out else whole
            assert change.abs().max() > 1e-3
        torch.testing.assert_close(merged[weight], base + change, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_dora_is_merged_as_the_bank_computes_it(case, tokenizer, tmp_path):
    """m ∘ (W + s·B·A) / ‖W + s·B·A‖, row by row (Liu et al. 2024, equation 5)."""
    make, plain = CASES[case]
    spec = plain.model_copy(update={"dora": True})
    bank = Bank(make(tokenizer), spec)
    state, ids = random_state(bank, 0), torch.tensor([[11, 12, 13, 14]])
    save_peft(tmp_path, state, spec, "tiny", fan_in_fan_out=bank.fan_in_fan_out)
    merged = PeftModel.from_pretrained(make(tokenizer), tmp_path).merge_and_unload()
    weights, turned = dict(merged.named_parameters()), 0
    for weight, base in make(tokenizer).named_parameters():
        module = f"{PEFT_PREFIX}{weight.removesuffix('.weight')}"
        if f"{module}.lora_A.weight" in state:
            rows = base.T if bank.fan_in_fan_out else base
            whole = rows + spec.scale * state[f"{module}.lora_B.weight"] @ state[f"{module}.lora_A.weight"]
            expected = state[module + MAGNITUDE][:, None] * whole / whole.norm(dim=1, keepdim=True)
            base, turned = expected.T if bank.fan_in_fan_out else expected, turned + 1
        torch.testing.assert_close(weights[weight], base, atol=1e-5, rtol=1e-5)
    assert turned == len(state) / 3
    bank.load([state])
    bank.route(torch.zeros(1, dtype=torch.long))
    torch.testing.assert_close(bank.model(input_ids=ids).logits, merged(input_ids=ids).logits, atol=1e-5, rtol=1e-4)
