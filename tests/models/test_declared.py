from transformers import BertConfig, BloomConfig, GPT2Config, LlamaConfig, MptConfig

from murmura.models.declared import context_of, is_masked
from tests.generation.families import phi3


def test_a_bert_that_is_a_decoder_is_a_causal_model():
    decoder = BertConfig(is_decoder=True, architectures=["BertLMHeadModel"])
    assert not is_masked(decoder) and not is_masked(LlamaConfig()) and is_masked(BertConfig())


def test_how_much_a_model_reads_whatever_its_config_calls_it(tokenizer):
    named = GPT2Config(n_positions=64), LlamaConfig(max_position_embeddings=64), MptConfig(max_seq_len=64)
    assert [context_of(config) for config in named] == [64, 64, 64]
    assert context_of(BloomConfig()) is None


def test_positions_by_longrope_are_good_for_the_original_context(tokenizer):
    config = phi3(tokenizer).config
    assert (context_of(config), config.max_position_embeddings) == (32, 512)
