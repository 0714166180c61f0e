"""Filling masks against the algorithm spelt out, and what never happens to a text."""

import pytest
import torch

from murmura.errors import ConfigError, ModelError
from murmura.generation.sampling import Sampling, filtered
from murmura.models import LoadedModel
from murmura.streams import Stream
from murmura.synthesis import mask_fill
from murmura.synthesis.mask_fill import MaskFill
from tests.conftest import WORDS, make_llama
from tests.synthesis.models import SPECIAL, masked

TEXTS = [" ".join(WORDS[start : start + length]) for start, length in ((0, 9), (4, 1), (7, 14), (20, 3), (30, 9))]
STREAMS = [Stream(0) / "vary" / i for i in range(len(TEXTS))]


@pytest.fixture(scope="module")
def loaded():
    return masked()


def spelt_out(loaded, text, stream, how, *, share=0.3, steps=2):
    """The same for one text alone, with the whole model and the distribution written out."""
    tokenizer, randomness = loaded.tokenizer, stream.numpy()
    ids = tokenizer(text).input_ids
    special = tokenizer.convert_tokens_to_ids(list(SPECIAL))
    own = [place for place, token in enumerate(ids) if token not in special]
    for _ in range(steps):
        count = max(1, int(share * len(own)))
        places, numbers = randomness.choice(own, count, replace=False).tolist(), randomness.random(count).tolist()
        for place in places:
            ids[place] = tokenizer.mask_token_id
        for place, number in reversed(list(zip(places, numbers, strict=True))):
            with torch.no_grad():
                logits = loaded.model(input_ids=torch.tensor([ids])).logits[0, place].float()
            logits[special] = logits[len(tokenizer) :] = float("-inf")
            shares = filtered(logits[None], how).softmax(-1)[0].double()
            ids[place] = int((shares.cumsum(0) <= number * shares.sum()).sum())
    return tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("how", [Sampling(), Sampling(temperature=0.7, top_p=0.8)], ids=str)
def test_it_is_the_papers_algorithm_with_each_text_alone(loaded, how):
    found = MaskFill(loaded, sampling=how).vary(TEXTS, STREAMS)
    pairs = zip(TEXTS, STREAMS, strict=True)
    assert found == [spelt_out(loaded, text, stream, how) for text, stream in pairs]
    assert all(one != text for one, text in zip(found, TEXTS, strict=True))


def test_no_variation_begins_with_a_space(bert, tokenizer):
    """Tokens of a byte-level vocabulary mostly do, also one that is drawn for a text's first place."""
    fill, streams = MaskFill(LoadedModel(bert, tokenizer, "tiny", "built", "tiny")), [Stream(9) / i for i in range(40)]
    found = fill.vary(["the rash spread to her skin"] * 40, streams)
    assert len(set(found)) > 30 and all(one == one.strip() for one in found)


def test_company_order_and_memory_change_nothing(loaded):
    together = MaskFill(loaded).vary(TEXTS, STREAMS)
    small = MaskFill(loaded, tokens_per_pass=20)
    assert small.vary(TEXTS[::-1], STREAMS[::-1]) == together[::-1]
    assert [small.vary([text], [stream])[0] for text, stream in zip(TEXTS, STREAMS, strict=True)] == together
    assert MaskFill(loaded).vary(TEXTS, STREAMS[::-1]) != together


def test_each_text_has_its_own_number_of_masks_among_its_own_tokens(loaded, monkeypatch):
    seen, collate = [], mask_fill.collate

    def looking(drafts, device):
        seen.extend(draft.ids.copy() for draft in drafts)
        return collate(drafts, device)

    monkeypatch.setattr(mask_fill, "collate", looking)
    MaskFill(loaded, share=0.5, steps=1).vary(TEXTS, STREAMS)
    mask = loaded.tokenizer.mask_token_id
    for text in TEXTS:
        length = len(text.split()) + 2
        masks = [ids.count(mask) for ids in seen if len(ids) == length]
        alike = sum(len(other.split()) + 2 == length for other in TEXTS)
        most = max(1, (length - 2) // 2)
        assert sorted(masks) == sorted(list(range(1, most + 1)) * alike)
    assert all((ids[0], ids[-1]) == tuple(loaded.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])) for ids in seen)


def test_special_tokens_are_never_drawn_and_no_length_changes(loaded):
    """However likely the model finds them, and the numbers beyond the vocabulary too."""
    favoured = masked()
    with torch.no_grad():
        bias = favoured.model.cls.predictions.bias
        bias[favoured.tokenizer.convert_tokens_to_ids(list(SPECIAL))] += 1e4
        bias[len(favoured.tokenizer) :] += 1e4
    found = MaskFill(favoured, share=1.0).vary(TEXTS, STREAMS)
    assert [len(text.split()) for text in found] == [len(text.split()) for text in TEXTS]
    assert {word for text in found for word in text.split()} <= set(WORDS)


def test_what_cannot_be_masked_stays_and_what_is_too_long_is_cut(loaded):
    texts = ["", "[MASK] <extra>", " ".join(WORDS)]
    empty, special, long = MaskFill(loaded, max_tokens=12).vary(texts, STREAMS[:3])
    assert [empty, special] == texts[:2]
    assert len(long.split()) == 10
    assert MaskFill(loaded).vary([], []) == []
    [mixed] = MaskFill(loaded).vary(["kidney <extra> [MASK] heart skin"], STREAMS[:1])
    assert len(mixed.split()) == 3


def test_what_makes_no_sense_is_refused(loaded, tokenizer):
    causal = LoadedModel(make_llama(tokenizer), tokenizer, "tiny-llama", "built", "tiny-llama")
    with pytest.raises(ModelError, match="tiny-llama: is no masked language model"):
        MaskFill(causal)
    with pytest.raises(ConfigError, match="texts of 2 tokens"):
        MaskFill(loaded, max_tokens=2)
