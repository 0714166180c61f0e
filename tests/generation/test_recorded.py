"""A recorded step against a plain one, on a CPU: what is recorded there is computed again at each replay."""

import pytest
import torch

from murmura.generation import decoder, recorded
from murmura.generation.sampling import Sampling
from murmura.generation.writer import complete
from murmura.streams import Stream
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from tests.conftest import make_gpt2, make_llama, restless
from tests.generation.test_writer import FAMILIES, LIMIT, PROMPTS, SLOTS
from tests.training.helpers import random_state


class Again:
    """Computes where a graph would be replayed."""

    made = 0

    def __init__(self, compute):
        self.rehearsed, self.out, self._compute = compute(), compute(), compute
        Again.made += 1

    def replay(self):
        self.out.copy_(self._compute())


@pytest.fixture
def records(monkeypatch):
    """Steps are recorded from the second one on."""
    monkeypatch.setattr(recorded, "DEVICES", {"cpu"})
    monkeypatch.setattr(recorded, "Graph", Again)
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
    monkeypatch.setattr(recorded, "DEVICES", set())
    assert ours == written(bank, tokenizer, slots, **how)


def test_what_is_in_no_text_is_not_looked_at(records, tokenizer, monkeypatch):
    """Memory that was never written holds anything, also what is not a number."""
    bank = bank_of(make_llama, tokenizer, ("q_proj", "v_proj"))
    plain = written(bank, tokenizer, rows=3)
    empty = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *a, **k: empty(*a, **k).fill_(torch.nan))
    assert written(bank, tokenizer, rows=3) == plain


@pytest.mark.parametrize("goes", ["wrong", "not at all"])
def test_what_cannot_be_recorded_is_written_step_by_step(records, tokenizer, monkeypatch, goes):
    bank = bank_of(make_llama, tokenizer, ("q_proj", "v_proj"))
    monkeypatch.setattr(recorded, "DEVICES", set())
    plain = written(bank, tokenizer)

    def graph(compute):
        if goes == "not at all":
            raise RuntimeError("waits for the GPU")
        made = Again(compute)
        made.rehearsed = made.rehearsed.roll(1, 0)
        return made

    monkeypatch.setattr(recorded, "DEVICES", {"cpu"})
    monkeypatch.setattr(recorded, "Graph", graph)
    assert written(bank, tokenizer) == plain


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
    monkeypatch.setattr(recorded, "DEVICES", set())
    assert texts() == ours
