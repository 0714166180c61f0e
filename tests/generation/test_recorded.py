"""A recorded step against a plain one, on a CPU: what is recorded there is computed again at each replay."""

import warnings
from functools import partial

import pytest
import torch
from transformers import FalconConfig, FalconForCausalLM

from murmura.generation import decoder, recorded, writer
from murmura.generation.sampling import Sampling
from murmura.generation.writer import complete
from murmura.streams import Stream
from murmura.training import bank as bank_module
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from tests.conftest import make_gpt2, make_llama, restless, sizes
from tests.generation.families import FAMILIES, LIMIT, PROMPTS, SLOTS, made
from tests.training.helpers import random_residual, random_state


class Again:
    """Computes where a graph would be replayed."""

    made = 0

    def __init__(self, compute, device):
        self.out, self._compute = compute(), compute
        Again.made += 1

    def replay(self):
        self.out.copy_(self._compute())


@pytest.fixture
def records(monkeypatch):
    """Steps are recorded from the second one on."""
    monkeypatch.setattr(decoder, "DEVICES", {"cpu"})
    monkeypatch.setattr(recorded, "RecordedStep", Again)
    monkeypatch.setattr(decoder, "_RECORD_AT", 2)
    monkeypatch.setattr(Again, "made", 0)


def bank_of(make, tokenizer, targets, **spec):
    bank = Bank(restless(make(tokenizer)), LoraSpec(rank=4, alpha=8, targets=targets, **spec))
    bank.load([random_state(bank, seed, scale=0.2) for seed in range(3)])
    return bank


def written(bank, tokenizer, slots=SLOTS, **how):
    """Texts of different lengths, so that some join late and some rows are left without one."""
    return [text.ids for text in complete(bank, tokenizer, PROMPTS, slots, [3, 9, LIMIT, 1, 7, 5], **how)]


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_recorded_step_writes_what_a_plain_one_does(kind, tokenizer, request):
    make, targets = FAMILIES[kind]
    bank = bank_of(make, tokenizer, targets, dora=kind.endswith("dora"))
    plain = [written(bank, tokenizer, rows=rows) for rows in (3, 6)]
    request.getfixturevalue("records")
    assert [written(bank, tokenizer, rows=rows) for rows in (3, 6)] == plain
    # A window, a bias in place of positions and a state are written step by step.
    assert Again.made == (0 if kind in ("mistral", "gemma2", "bloom", "mamba") else 2)


@pytest.mark.parametrize("slots", [[1] * 6, SLOTS])
@pytest.mark.parametrize("make", [make_llama, make_gpt2])
def test_so_it_does_when_all_columns_are_moved(records, make, slots, tokenizer, monkeypatch):
    bank = bank_of(make, tokenizer, FAMILIES["llama" if make is make_llama else "gpt2"][1])
    monkeypatch.setattr(decoder, "_SLACK", 1)
    how = {"sampling": Sampling(), "streams": [Stream(0) / k for k in range(6)], "rows": 2}
    ours = written(bank, tokenizer, slots, **how)
    assert Again.made == 1
    monkeypatch.setattr(decoder, "DEVICES", set())
    assert ours == written(bank, tokenizer, slots, **how)


def test_what_is_in_no_text_is_not_looked_at(records, tokenizer, monkeypatch):
    """Memory that was never written holds anything, also what is not a number."""
    bank = bank_of(make_llama, tokenizer, ("q_proj", "v_proj"))
    plain = written(bank, tokenizer, rows=3)
    empty = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *a, **k: empty(*a, **k).fill_(torch.nan))
    assert written(bank, tokenizer, rows=3) == plain


def logits_of(monkeypatch):
    """All logits that tokens are chosen by, as they come."""
    seen, choose = [], writer.choose

    def spied(logits, *rest):
        seen.append(logits.clone())
        return choose(logits, *rest)

    monkeypatch.setattr(writer, "choose", spied)
    return seen


class Wrong(Again):
    """Computes another text's logits."""

    def __init__(self, compute, device):
        super().__init__(lambda: compute().roll(1, 0), device)


def refused(compute, device):
    compute()
    raise RuntimeError("waits for the GPU")


@pytest.mark.parametrize("graph", [Wrong, refused])
def test_what_cannot_be_recorded_is_written_step_by_step(records, tokenizer, monkeypatch, graph):
    bank = bank_of(make_llama, tokenizer, ("q_proj", "v_proj"))
    seen = logits_of(monkeypatch)
    monkeypatch.setattr(decoder, "DEVICES", set())
    written(bank, tokenizer)
    plain = seen.copy()
    seen.clear()
    monkeypatch.setattr(decoder, "DEVICES", {"cpu"})
    monkeypatch.setattr(recorded, "RecordedStep", graph)
    written(bank, tokenizer)
    assert len(seen) == len(plain) and all(map(torch.equal, seen, plain))


def make_falcon(tokenizer):
    """With a bias in place of positions, which it makes of a mask [rows, columns]."""
    torch.manual_seed(0)
    ends = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    return FalconForCausalLM(FalconConfig(**sizes(tokenizer, alibi=True, **ends))).eval()


def test_a_model_that_wants_another_mask_is_written_step_by_step(records, tokenizer, monkeypatch):
    bank = bank_of(make_falcon, tokenizer, ("query_key_value",))
    seen = logits_of(monkeypatch)
    tried, record = [], recorded.Recorded.record
    monkeypatch.setattr(recorded.Recorded, "record", lambda *a: tried.append(record(*a)) or tried[-1])
    written(bank, tokenizer)
    assert tried == [False]
    ours = seen.copy()
    seen.clear()
    monkeypatch.setattr(decoder, "DEVICES", set())
    written(bank, tokenizer)
    assert all(map(torch.equal, seen, ours))


def test_attention_that_adds_its_mask_is_written_step_by_step(records, tokenizer):
    written(bank_of(partial(made, "qwen3", attn_implementation="eager"), tokenizer, ("q_proj",)), tokenizer)
    assert Again.made == 0


def test_weights_of_eight_bits_are_written_with_step_by_step(records, tokenizer):
    bank = bank_of(make_llama, tokenizer, ("q_proj",))
    bank.model.is_loaded_in_8bit = True  # as transformers says it
    written(bank, tokenizer)
    assert Again.made == 0


def test_a_graph_looks_at_more_columns_only_where_texts_need_them(records, tokenizer, monkeypatch):
    bank = bank_of(make_llama, tokenizer, ("q_proj", "v_proj"))
    widths, init = [], recorded.Recorded.__init__

    def spied(self, *arguments):
        init(self, *arguments)
        widths.append(self.width)

    monkeypatch.setattr(recorded.Recorded, "__init__", spied)
    monkeypatch.setattr(recorded, "_WIDTH", 10)

    def texts(**how):
        prompts, limits = [PROMPTS[0]] * 9, [40, *[37] * 8]
        return [text.ids for text in complete(bank, tokenizer, prompts, [1, 2, 0] * 3, limits, rows=2, **how)]

    monkeypatch.setattr(decoder, "_SLACK", 5)
    short = texts(halt=lambda text: len(text) > 10)
    assert widths == [10]  # texts that end early make room for others, which are moved to the left
    widths.clear()
    long = texts()
    assert widths == [10, 20, 30, 40, 48]
    monkeypatch.setattr(decoder, "DEVICES", set())
    assert texts() == long and texts(halt=lambda text: len(text) > 10) == short


@pytest.mark.parametrize("widest", [0, 512])
def test_rows_with_a_residual_and_rows_without_one(records, tokenizer, monkeypatch, widest):
    bank = bank_of(make_llama, tokenizer, ("q_proj", "v_proj"))
    monkeypatch.setattr(bank_module, "_WIDEST", widest)  # factors gathered row by row, or side by side
    states = [random_state(bank, seed, scale=0.2) for seed in range(3)]
    bank.load([states[0] | random_residual(bank, 9), *states[1:]])
    ours = written(bank, tokenizer, rows=6)
    assert Again.made == 1
    monkeypatch.setattr(decoder, "DEVICES", set())
    assert written(bank, tokenizer, rows=6) == ours


def test_a_text_that_is_not_a_number_leaves_nothing_to_those_after_it(records, tokenizer, monkeypatch):
    bank = bank_of(make_llama, tokenizer, ("q_proj", "v_proj"))
    broken = {name: tensor * torch.nan for name, tensor in random_state(bank, 0).items()}
    bank.load([broken, *(random_state(bank, seed, scale=0.2) for seed in (1, 2))])
    monkeypatch.setattr(decoder, "_SLACK", 1)  # all columns are moved while the third text is written
    prompts, slots, limits = [PROMPTS[0]] * 5, [1, 2, 0, 1, 2], [20, 19, 6, 5, 5]

    def texts():
        found = complete(bank, tokenizer, prompts, slots, limits, rows=2)
        return [text.ids for text, slot in zip(found, slots, strict=True) if slot]

    ours = texts()
    assert Again.made == 1
    monkeypatch.setattr(decoder, "DEVICES", set())
    assert texts() == ours


def test_of_a_prototype_in_torch_the_user_is_told_nothing(monkeypatch, recwarn):
    asked = []

    def ask(mode):
        asked.append(mode)
        warnings.warn("a prototype feature", UserWarning, stacklevel=2)

    monkeypatch.setattr("torch.cuda.set_sync_debug_mode", ask)
    recorded._on_waiting("error")
    assert asked == ["error"] and not recwarn.list
