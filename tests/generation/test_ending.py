"""Texts as they grow, token by token, against all their tokens decoded at once."""

import pytest

from murmura.generation.ending import Draft, Ending, end_tokens

TEXT = "Fever 🌡 and a rash.\nTask: naïve Ärzte — 日本語 \n\n next"


def draft(tokenizer, *, stop=(), halt=None, limit=1000):
    return Draft(Ending(tokenizer, frozenset({tokenizer.eos_token_id}), stop, halt), limit)


def test_a_halt_sees_each_text_as_it_grows(tokenizer):
    seen = []
    text = draft(tokenizer, halt=lambda text: bool(seen.append(text)))
    for token in tokenizer(TEXT)["input_ids"]:
        text.add(token)
    assert seen[-1] == TEXT
    assert all(TEXT.startswith(part) for part in seen)
    assert len(seen) == len(set(seen))
    assert not text.over


@pytest.mark.parametrize("stop", ["\nTask", "語", "\n\n", "e", "— 日"])
def test_a_stop_string_is_noticed_with_the_token_that_completes_it(tokenizer, stop):
    text, ids = draft(tokenizer, stop=["never there", stop]), tokenizer(TEXT)["input_ids"]
    for count, token in enumerate(ids, 1):
        text.add(token)
        assert text.finished == text.over == (stop in tokenizer.decode(ids[:count]))
        if text.over:
            break
    assert text.finished
    assert Ending(tokenizer, frozenset(), [stop, "next"], None).text(text.ids) == TEXT[: TEXT.index(stop)]


def test_an_end_token_is_no_part_of_the_text(tokenizer):
    text = draft(tokenizer)
    text.add(50)
    assert (text.ids, text.finished, text.over) == ([50], False, False)
    text.add(tokenizer.eos_token_id)
    assert (text.ids, text.finished, text.over) == ([50], True, True)


def test_a_limit_cuts_off(tokenizer):
    text = draft(tokenizer, limit=2)
    text.add(50)
    assert not text.over
    text.add(51)
    assert (text.over, text.finished) == (True, False)


def test_the_model_may_name_more_ends(llama, tokenizer):
    llama.generation_config.eos_token_id = [7, 9]
    assert end_tokens(llama, tokenizer) == {tokenizer.eos_token_id, 7, 9}
    llama.generation_config.eos_token_id = 7
    assert end_tokens(llama, tokenizer) == {tokenizer.eos_token_id, 7}
    llama.generation_config.eos_token_id = None
    assert end_tokens(llama, tokenizer) == {tokenizer.eos_token_id}
