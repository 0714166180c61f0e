from transformers import LlamaConfig

from murmura.methods.dplora.baselines import numbers_of_round
from tests.conftest import make_gpt2, make_llama


def test_golden():
    """The paper's example: 50 rounds, 5 sites, 32 layers, rank 8, width 4096."""
    config = LlamaConfig(num_hidden_layers=32, hidden_size=4096)
    assert 50 * numbers_of_round(config, sites=5, rank=8) == 2 * 5 * 50 * 4096 * 256


def test_a_model_s_own_layers_and_width(tokenizer):
    assert numbers_of_round(make_llama(tokenizer).config, 3, 4) == 3 * 2 * 4 * 2 * 32
    assert numbers_of_round(make_gpt2(tokenizer).config, 3, 4) == 3 * 2 * 4 * 2 * 32  # where they have other names
