"""A masked model whose tokens are words, and a causal one that writes."""

import torch

from murmura.models import LoadedModel
from tests.conftest import WORDS, make_llama, restless
from tests.federation.world import make_workbench

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<extra>")


def word_tokenizer():
    """One token a word, between [CLS] and [SEP]; ``<extra>`` is special without being any of the usual ones."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(dict.fromkeys([*SPECIAL, *WORDS]))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.add_special_tokens(list(SPECIAL))
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=core, **special)


def masked():
    """A BERT over whole words. Its vocabulary is larger than the tokenizer's, as it is where sizes are rounded up."""
    tokenizer = word_tokenizer()
    return LoadedModel(restless(_bert(len(tokenizer) + 5)), tokenizer, "tiny-bert", "built", "tiny-bert")


def _bert(vocabulary):
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=vocabulary, max_position_embeddings=64, **sizes, **dropout)
    return BertForMaskedLM(config).eval()


def writer(tokenizer):
    """A runtime whose model writes all sorts of things."""
    return make_workbench(tokenizer, model=restless(make_llama(tokenizer)))
