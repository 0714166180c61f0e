from murmura.methods.dplora.communication import formula, of_round
from tests.conftest import make_gpt2, make_llama


def test_golden():
    """The paper's example: 50 rounds, 5 sites, 32 layers, rank 8, width 4096."""
    assert formula(50, 5, 32, 8, 4096) == 2 * 5 * 50 * 4096 * 256


def test_a_model_s_own_layers_and_width(tokenizer):
    assert of_round(make_llama(tokenizer).config, 3, 4) == 3 * 2 * 4 * 2 * 32
    assert of_round(make_gpt2(tokenizer).config, 3, 4) == 3 * 2 * 4 * 2 * 32  # where they have other names
