"""Other ends and other words: what is kept, how long a text can become, and whose randomness it is."""

import pytest
import torch

from murmura.generation.sampling import Sampling
from murmura.generation.writer import Completion
from murmura.streams import Stream
from murmura.synthesis.variation import Continue, Paraphrase
from tests.conftest import WORDS
from tests.synthesis.models import writer

TEXTS = [" ".join(WORDS[start : start + length]) for start, length in ((0, 9), (7, 14), (20, 3), (30, 9))]
STREAMS = [Stream(0) / "vary" / i for i in range(len(TEXTS))]


@pytest.fixture(scope="module")
def bench(tokenizer):
    return writer(tokenizer)


def silent(tokenizer):
    """A runtime whose model ends every text at once."""
    bench = writer(tokenizer)
    model = bench.bank.model
    with torch.no_grad():
        model.model.norm.weight.zero_()  # all logits are equal, and the first of them is the likeliest
    model.generation_config.eos_token_id = list(range(len(tokenizer)))
    return bench


def shared(one, other):
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def scripted(bench, monkeypatch, text, *, finished=False):
    """The bench's model goes on with these words, whatever stands before; returns what it was given and how far."""
    ids, asked = bench.tokenizer(text, add_special_tokens=False).input_ids, []

    def write(adapters, prompts, limits, **options):
        asked.extend(zip(map(bench.tokenizer.decode, prompts), limits, strict=True))
        return [
            Completion(bench.tokenizer.decode(ids[:most]), ids[:most], finished and most >= len(ids)) for most in limits
        ]

    monkeypatch.setattr(bench, "write", write)
    return asked


def cuts_the_end(stream):
    return (stream / "end").python().random() < 0.5


@pytest.mark.parametrize("make", [Continue, Paraphrase])
def test_company_and_order_change_nothing(bench, make):
    variation = make(bench, mended=False)
    together = variation.vary(TEXTS, STREAMS)
    assert variation.vary(TEXTS[::-1], STREAMS[::-1]) == together[::-1]
    assert [variation.vary([text], [own])[0] for text, own in zip(TEXTS, STREAMS, strict=True)] == together
    assert variation.vary(TEXTS, STREAMS[::-1]) != together
    assert all(one != text for one, text in zip(together, TEXTS, strict=True))


def test_a_tail_of_random_length_is_written_anew(bench):
    text = TEXTS[1]
    ids = bench.prompt_ids(text)
    streams = [stream for stream in (Stream(0) / i for i in range(30)) if cuts_the_end(stream)]
    found = [Continue(bench, share=0.4, mended=False).vary([text], [stream])[0] for stream in streams]
    kept = {shared(one, text) for one in found}
    assert len(kept) > 3 and min(kept) >= len(bench.tokenizer.decode(ids[: -int(0.4 * len(ids))]))
    # The same start, and what the model writes after it with the stream's own numbers.
    cut = streams[0].python().randint(1, int(0.4 * len(ids)))
    [written] = bench.write(
        [bench.bank.untrained], [ids[:-cut]], [cut], sampling=Sampling(), streams=[streams[0] / "tokens"]
    )
    assert found[0] == bench.tokenizer.decode([*ids[:-cut], *written.ids], skip_special_tokens=True).strip()


def test_a_beginning_is_cut_off_as_often_and_the_model_goes_on_from_the_whole_text(bench, monkeypatch):
    text = "the rash spread. the fever stayed. a test. the result"
    streams, asked = [Stream(5) / i for i in range(60)], scripted(bench, monkeypatch, " and when to come.")
    found = Continue(bench, share=0.7).vary([text] * 60, streams)
    begun = [one for one, stream in zip(found, streams, strict=True) if not cuts_the_end(stream)]
    assert 18 < len(begun) < 42 and sum(prompt == text for prompt, _ in asked) == len(begun)
    # One of the three sentences goes, or two: 0.7 of them.
    assert set(begun) == {
        "the fever stayed. a test. the result and when to come.",
        "a test. the result and when to come.",
    }
    assert all(one.startswith("the rash") for one in set(found) - set(begun))
    # What is one sentence gives way to what comes after it.
    [stream] = [stream for stream in streams if not cuts_the_end(stream)][:1]
    assert Continue(bench).vary(["the rash spread to her skin."], [stream]) == ["and when to come."]


@pytest.mark.parametrize("begins", [False, True])
def test_no_variation_ends_with_half_a_sentence(bench, monkeypatch, begins):
    texts = [
        "the patient asks whether the new tablets may be taken with food.",
        "a blood test. the rash spread to her skin.",
    ]
    streams = [stream for stream in (Stream(6) / i for i in range(60)) if cuts_the_end(stream) != begins]
    more = " with a fever. and when to come back. for a blood test. on monday then. a letter. the result of it with"
    scripted(bench, monkeypatch, more)
    for text in texts:
        found = Continue(bench).vary([text] * len(streams), streams)
        assert all(one.endswith(".") for one in found) and text not in found
        # The sentence whose end is nearest to where the text ended before, not all that was written.
        assert all(abs(len(one) - len(text)) < 15 for one in found)
    torn = Continue(bench, mended=False).vary([texts[0]] * len(streams), streams)
    assert sum(not one.endswith(".") for one in torn) > len(torn) / 2
    scripted(bench, monkeypatch, " that never ends but goes on and on without a full stop anywhere in it")
    for text in texts:
        found = Continue(bench).vary([text] * len(streams), streams)
        assert all(one.endswith(".") and one in (text, *text.split(". ", 1), "a blood test.") for one in found)


@pytest.mark.parametrize("make", [Continue, Paraphrase])
def test_no_variation_ends_with_half_a_character(bench, monkeypatch, make):
    streams = [Stream(8) / i for i in range(30)]
    scripted(bench, monkeypatch, " 今天天气很好" * 9)
    found = make(bench, max_tokens=65, mended=False).vary(["the rash spread to her skin."] * 30, streams)
    assert any("今" in one for one in found) and not any("\ufffd" in one for one in found)


def test_what_the_model_ended_itself_is_whole(bench, monkeypatch):
    streams = [stream for stream in (Stream(7) / i for i in range(20)) if cuts_the_end(stream)]
    scripted(bench, monkeypatch, " a letter", finished=True)
    assert all(one.endswith(" a letter") for one in Continue(bench).vary([TEXTS[0]] * len(streams), streams))


def test_of_a_paraphrase_that_is_cut_off_whole_sentences_are_kept(bench, monkeypatch):
    scripted(bench, monkeypatch, "the fever stayed with her. and when to come back for a test")
    assert Paraphrase(bench, max_tokens=16).vary(TEXTS[:1], STREAMS[:1]) == ["the fever stayed with her."]
    [torn] = Paraphrase(bench, max_tokens=16, mended=False).vary(TEXTS[:1], STREAMS[:1])
    assert torn.startswith("the fever stayed with her. and")
    assert Paraphrase(bench, max_tokens=5).vary(["a fever"], STREAMS[:1]) == ["a fever"]


def test_one_token_is_nothing_to_go_on_from_and_long_texts_are_cut(bench):
    assert Continue(bench).vary(["", "a"], STREAMS[:2]) == ["", "a"]
    [stream] = [stream for stream in (Stream(0) / i for i in range(30)) if cuts_the_end(stream)][:1]
    [cut] = Continue(bench, max_tokens=8, mended=False).vary([TEXTS[1]], [stream])
    ids = bench.tokenizer(TEXTS[1]).input_ids
    assert cut.startswith(bench.tokenizer.decode(ids[:4])) and len(bench.tokenizer(cut).input_ids) < len(ids) - 4


def test_what_follows_on_a_text_that_is_too_long_follows_on_what_was_read_of_it(bench, monkeypatch):
    sentences = [f"{' '.join(WORDS[start : start + 6])}." for start in range(0, 54, 6)]
    most = len(bench.prompt_ids(" ".join(sentences[:4])))
    asked = scripted(bench, monkeypatch, "and so on")
    streams = [stream for stream in (Stream(0) / i for i in range(30)) if not cuts_the_end(stream)]
    found = Continue(bench, max_tokens=most, mended=False).vary([" ".join(sentences)] * len(streams), streams)
    for one, (prompt, limit) in zip(found, asked, strict=True):
        kept = one.partition("and so")[0].strip()
        assert limit > 3 and sentences[4] not in prompt and sentences[4] not in one
        assert not kept or kept in prompt


def test_a_text_that_is_too_long_stays_whole_where_nothing_whole_is_written(bench, monkeypatch):
    text = " ".join(WORDS[:30])  # one sentence
    scripted(bench, monkeypatch, "and so on")
    assert Continue(bench, max_tokens=8).vary([text] * 8, [Stream(0) / i for i in range(8)]) == [text] * 8


def test_a_tail_that_is_not_written_again_is_gone(tokenizer):
    streams = [Stream(0) / i for i in range(8)]
    for stream, found in zip(streams, Continue(silent(tokenizer)).vary([TEXTS[0]] * 8, streams), strict=True):
        assert found and TEXTS[0].startswith(found) and (found != TEXTS[0]) is cuts_the_end(stream)


def test_a_paraphrase_is_asked_for_as_the_model_wants_it(bench, monkeypatch):
    asked, write = [], bench.write

    def listening(adapters, prompts, limits, **options):
        asked.extend(bench.tokenizer.decode(prompt) for prompt in prompts)
        return write(adapters, prompts, limits, **options)

    monkeypatch.setattr(bench, "write", listening)
    Paraphrase(bench).vary(["a {text}\nof braces"], STREAMS[:1])
    told = "Document: a {text} of braces\nParaphrase of the document:"
    assert asked == [f"<|im_start|>user\n{told}<|im_end|>\n<|im_start|>assistant\n"]


def test_a_paraphrase_is_one_line_of_so_many_tokens_and_never_nothing(bench, tokenizer):
    found = Paraphrase(bench, max_tokens=5, mended=False).vary(TEXTS, STREAMS)
    assert all("\n" not in text and len(text) < 60 for text in found)
    assert Paraphrase(silent(tokenizer)).vary(TEXTS, STREAMS) == TEXTS
    [cut] = Paraphrase(silent(tokenizer), max_tokens=5).vary(TEXTS[:1], STREAMS[:1])
    assert cut and TEXTS[0].startswith(cut) and cut != TEXTS[0]
