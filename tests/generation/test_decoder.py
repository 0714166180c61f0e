"""Which prompts are read together, and models that keep something else than keys and values."""

import random

import pytest
import torch

from murmura.errors import ModelError
from murmura.generation import decoder
from murmura.generation.decoder import _PASSES, _passes, decoder_for
from murmura.generation.writer import complete
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from tests.conftest import restless
from tests.generation.families import made
from tests.training.helpers import random_state

CPU = torch.device("cpu")


@pytest.mark.parametrize("seed", range(10))
def test_each_prompt_is_read_once_with_its_like(seed):
    rng = random.Random(seed)
    lengths = [(known + rng.randint(1, 300), known) for known in (rng.choice([0, 0, 12, 40]) for _ in range(50))]
    groups = list(_passes(lengths, CPU))
    assert sorted(i for group in groups for i in group) == list(range(50))
    for group in groups:
        own = [lengths[i][0] - lengths[i][1] for i in group]
        padded = max(own) * len(own)
        assert len({lengths[i][1] for i in group}) == 1
        assert len(group) == 1 or padded <= _PASSES["cpu"].tokens
        assert sum(own) >= padded * (1 - _PASSES["cpu"].padding)
    assert len(groups) < 40
    assert list(_passes([], CPU)) == []


def test_a_model_of_any_kind_is_written_with_in_step(llama, tokenizer, monkeypatch):
    """Texts come out the same where a batch ends before the next one begins."""
    bank = Bank(llama, LoraSpec(rank=4, alpha=8))
    bank.load([random_state(bank, seed, scale=0.5) for seed in range(2)])
    rng = random.Random(0)
    prompts = [[rng.randrange(10, 250) for _ in range(rng.randint(1, 20))] for _ in range(9)]
    job = prompts, [i % 2 for i in range(9)], [rng.randint(1, 9) for _ in range(9)]
    expected = complete(bank, tokenizer, *job, rows=4)
    monkeypatch.setattr(decoder, "layers_of", lambda model: None)
    assert complete(bank, tokenizer, *job, rows=4) == expected


def test_chunks_of_attention_are_left_to_the_model(llama, tokenizer):
    bank = Bank(llama, LoraSpec(rank=4, alpha=8))
    text = decoder.Text([1], 0, 1, None)
    assert isinstance(decoder_for(bank, [text], 1), decoder.Decoder)
    llama.config.attention_chunk_size = 8
    assert isinstance(decoder_for(bank, [text], 1), decoder.Lockstep)


def test_texts_of_a_model_that_counts_by_its_cache_are_written_one_by_one(tokenizer):
    model = restless(made("bart", tokenizer, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64))
    bank = Bank(model, LoraSpec(rank=4, alpha=8, targets=("q_proj", "v_proj")))
    bank.load([random_state(bank, 0, scale=0.5)])
    prompts = [list(range(10, 27)), [5, 6, 7], list(range(40, 51))]
    together = complete(bank, tokenizer, prompts, [0] * 3, [8] * 3)
    assert together == [complete(bank, tokenizer, [prompt], [0], [8])[0] for prompt in prompts]


def test_a_model_without_a_memory_is_refused(llama, tokenizer, monkeypatch):
    bank = Bank(llama, LoraSpec(rank=4, alpha=8))
    bank.load([random_state(bank, 0)])
    forward = llama.forward
    monkeypatch.setattr(llama, "forward", lambda input_ids, **rest: forward(input_ids=input_ids, **rest))
    with pytest.raises(ModelError, match="LlamaForCausalLM keeps no cache between tokens"):
        complete(bank, tokenizer, [[5, 6]], [0], [3])


def test_a_model_whose_layers_remember_by_themselves_is_refused(tokenizer):
    """Rows that leave, and what is padded on the left, would mix in them."""
    model = made("recurrent_gemma", tokenizer, lru_width=32, attention_window_size=8)
    bank = Bank(model, LoraSpec(rank=4, targets=("q_proj",)))
    bank.load([bank.untrained])
    with pytest.raises(ModelError, match="RecurrentGemmaForCausalLM keeps no cache between tokens"):
        complete(bank, tokenizer, [[5, 6, 7], [8]], [0, 0], [3, 3])
