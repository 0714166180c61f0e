import copy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from murmura.data import tokenising
from murmura.data.records import Document, Instruction
from murmura.data.templates import TEMPLATES, template
from murmura.data.tokenising import (
    chat_template,
    left_open,
    plain_ids,
    shortened,
    tokenise_all,
    tokenise_documents,
    tokenise_response,
)
from murmura.errors import DataError

VOCABULARY = ["the", "rash", "spread", "to", "her", "skin", "é", "🌡", "\n\n", "fever", "38.5"]
words = st.lists(st.sampled_from(VOCABULARY), max_size=60).map(" ".join)
texts = st.one_of(words, st.text(max_size=80))
records = st.builds(Instruction, texts.filter(str.strip), texts, texts.filter(str.strip))
ROOMY = 10_000


def tokenise(record, *options):
    """One record's ids; None where it does not fit."""
    return next(iter(tokenise_all([record], *options).items), None)


def plain(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def decode(tokenizer, ids):
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def shortenings(record):
    """Every record that truncation may make of this one."""
    yield from (replace(record, input=record.input[:n].rstrip()) for n in range(len(record.input)))
    bare = replace(record, input="")
    for n in range(1, len(record.instruction)):
        yield replace(bare, instruction=record.instruction[:n].rstrip())


@pytest.fixture(scope="session", params=["without BOS", "with BOS"])
def any_tokenizer(request, tokenizer, bos_tokenizer):
    return bos_tokenizer if request.param == "with BOS" else tokenizer


def test_flowertune_s_ids_are_those_of_its_text_where_the_tokenizer_puts_a_space_before_every_text():
    """As Mistral's does; the text is the one that FlowerTune trains on, tokenised as a whole."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    record = Instruction("Name the fever.", "38.5 to 39", "the rash spread")
    text = (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n"
        "### Instruction:\nName the fever. 38.5 to 39\n### Response: the rash spread"
    )
    core.train_from_iterator([text] * 2, trainers.BpeTrainer(special_tokens=["</s>"], show_progress=False))
    spacing = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>")
    item = tokenise(record, template("flowertune"), spacing, ROOMY)
    assert item.ids == [*plain(spacing, text), spacing.eos_token_id]
    assert item.ids[: item.start] == plain(spacing, text.removesuffix(" the rash spread"))


@settings(max_examples=60, deadline=None)
@given(record=records, name=st.sampled_from(TEMPLATES), max_length=st.integers(1, 400))
def test_the_response_is_whole_the_prompt_a_prefix_and_the_length_kept(any_tokenizer, record, name, max_length):
    made = template(name, any_tokenizer)
    item = tokenise(record, made, any_tokenizer, max_length)
    response = [*plain(any_tokenizer, record.output), any_tokenizer.eos_token_id]
    if item is None:
        first = len(record.instruction) - len(record.instruction.lstrip()) + 1
        barest = replace(record, input="", instruction=record.instruction[:first])
        assert len(tokenise(barest, made, any_tokenizer, ROOMY).ids) > max_length
        return
    assert len(item.ids) <= max_length
    assert item.ids[item.start :] == response
    shown = decode(any_tokenizer, item.ids[: item.start])
    bos = any_tokenizer.bos_token or ""
    allowed = shortenings(record) if item.truncated else [record]
    assert shown.removeprefix(bos) in {made.prompt(one).removeprefix(bos) for one in allowed}


@settings(max_examples=30, deadline=None)
@given(some=st.lists(records, max_size=6), max_length=st.integers(20, 300))
def test_many_at_once_are_tokenised_as_one_by_one(any_tokenizer, some, max_length):
    made = template("alpaca")
    one_by_one = [tokenise(record, made, any_tokenizer, max_length) for record in some]
    together = tokenise_all(some, made, any_tokenizer, max_length)
    assert together.items == [item for item in one_by_one if item is not None]
    assert together.kept == [index for index, item in enumerate(one_by_one) if item is not None]
    assert together.shortened == [k for k, item in zip(together.kept, together.items, strict=True) if item.truncated]
    assert together.dropped == one_by_one.count(None)


def test_more_records_than_are_tokenised_at_once(tokenizer, monkeypatch):
    monkeypatch.setattr("murmura.data.tokenising._AT_ONCE", 3)
    some = [Instruction("Count", str(n), str(n) * n) for n in range(8)]
    found = tokenise_all(some, template("alpaca"), tokenizer, 220)
    assert found.kept == list(range(8))
    assert [decode(tokenizer, item.ids[item.start : -1]) for item in found.items] == [one.output for one in some]


def test_the_sequence_is_prompt_response_end(tokenizer):
    record = Instruction("Explain", "a fever", "A rise in temperature.")
    item = tokenise(record, template("alpaca"), tokenizer, ROOMY)
    text = template("alpaca").prompt(record)
    assert item.ids[: item.start] == plain(tokenizer, text)
    assert decode(tokenizer, item.ids) == text + "A rise in temperature.<|im_end|>"
    assert not item.truncated


def test_input_goes_first_and_nearly_all_that_fits_is_kept(tokenizer):
    record = Instruction("Explain the rash", "skin " * 200, "It heals.")
    item = tokenise(record, template("alpaca"), tokenizer, 150)
    text = decode(tokenizer, item.ids[: item.start])
    assert item.truncated
    assert 147 <= len(item.ids) <= 150
    assert "### Instruction:\nExplain the rash\n" in text
    assert "### Input:\nskin skin" in text


def test_the_instruction_goes_when_no_input_is_left(tokenizer):
    made = template("alpaca")
    record = Instruction("rash " * 100, "skin " * 20, "It heals.")
    text = decode(tokenizer, tokenise(record, made, tokenizer, 90).ids)
    assert "### Input:" not in text
    assert "### Instruction:\nrash rash" in text
    assert text.endswith("### Response:It heals.<|im_end|>")


def test_a_response_that_leaves_no_room_is_dropped_and_counted(tokenizer):
    made = template("alpaca")
    long, short = Instruction("Explain", output="word " * 300), Instruction("Explain", output="word")
    assert tokenise(long, made, tokenizer, 200) is None
    found = tokenise_all([long, short], made, tokenizer, 200)
    assert (found.kept, found.dropped, found.shortened) == ([1], 1, [])


def test_the_limit_itself_fits(tokenizer):
    record = Instruction("Explain the rash", "skin", "It heals.")
    length = len(tokenise(record, template("alpaca"), tokenizer, ROOMY).ids)
    assert not tokenise(record, template("alpaca"), tokenizer, length).truncated
    assert tokenise(record, template("alpaca"), tokenizer, length - 1).truncated


@pytest.mark.parametrize("name", ["alpaca", "chat"])
def test_the_sequence_begins_with_one_bos_and_ends_with_one_eos(bos_tokenizer, name):
    record = Instruction("Explain", "a fever", "A rise.")
    made = template(name, bos_tokenizer)
    item = tokenise(record, made, bos_tokenizer, ROOMY)
    bos, eos = bos_tokenizer.bos_token_id, bos_tokenizer.eos_token_id
    assert made.prompt(record).startswith(bos_tokenizer.bos_token) == (name == "chat")
    assert item.ids[0] == bos
    assert item.ids.count(bos) == 1
    assert item.ids[item.start :].count(eos) == 1
    assert item.ids[-1] == eos


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("given", ["", "38.5 \n"])
def test_a_saved_chat_template_gives_the_ids_of_training(any_tokenizer, name, given):
    record, made = Instruction("is it  fever?", given, "yes"), template(name, any_tokenizer)
    asking = copy.deepcopy(any_tokenizer)
    asking.chat_template = chat_template(made, any_tokenizer)
    said = {"role": "user", "content": record.instruction, "input": given}
    if name == "chat" and given:
        said["content"] += f"\n\n{given}"
    ids = asking.apply_chat_template([said], add_generation_prompt=True, return_dict=True)["input_ids"]
    item = tokenise(record, made, any_tokenizer, ROOMY)
    assert ids == item.ids[: item.start]


def test_a_bos_that_the_tokenizer_does_not_set_is_not_set(tokenizer):
    named = copy.deepcopy(tokenizer)
    named.bos_token = "<|endoftext|>"
    record = Instruction("Explain", output="A rise.")
    assert named.bos_token_id not in tokenise(record, template("alpaca"), named, ROOMY).ids


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_response_alone_has_the_same_response_ids(any_tokenizer, name):
    record = Instruction("Explain", "a fever", "A rise in temperature.")
    made = template(name, any_tokenizer)
    whole, alone = tokenise(record, made, any_tokenizer, ROOMY), tokenise_response(record, made, any_tokenizer, ROOMY)
    assert alone.ids[alone.start :] == whole.ids[whole.start :]
    assert decode(any_tokenizer, alone.ids[: alone.start]) == (
        ("<|endoftext|>" if any_tokenizer.bos_token else "") + made.response_prefix
    )
    assert tokenise_response(record, made, any_tokenizer, len(alone.ids)) == alone
    assert tokenise_response(record, made, any_tokenizer, len(alone.ids) - 1) is None


def test_an_unanswered_question_has_a_prompt(tokenizer):
    record = Instruction("Explain", "a fever")
    item = tokenise(record, template("alpaca"), tokenizer, ROOMY)
    assert item.ids[: item.start] == plain(tokenizer, template("alpaca").prompt(record))


def test_a_text_without_a_template_opens_as_the_tokenizer_has_it_and_never_ends(any_tokenizer):
    opening = "<|endoftext|>" if any_tokenizer.bos_token else ""
    found = plain_ids(["Task 1: explain", "<|endoftext|>once"], any_tokenizer)
    assert [decode(any_tokenizer, ids) for ids in found] == [opening + "Task 1: explain", "<|endoftext|>once"]
    assert plain_ids([], any_tokenizer) == []


def test_a_tokenizer_without_an_end_is_refused(tokenizer):
    endless = copy.deepcopy(tokenizer)
    endless.eos_token = None
    with pytest.raises(DataError, match="no end-of-sequence token"):
        tokenise(Instruction("a", output="b"), template("alpaca"), endless, 10)


def test_nothing_is_tokenised_as_nothing(tokenizer):
    found = tokenise_all([], template("alpaca"), tokenizer, 10)
    assert (found.items, found.kept, found.shortened, found.dropped) == ([], [], [], 0)


def test_a_document_is_its_text_and_the_end_and_is_cut_where_it_is_too_long(tokenizer, bos_tokenizer):
    text = "the rash spread to her skin"
    for one, opening in ((tokenizer, []), (bos_tokenizer, [bos_tokenizer.bos_token_id])):
        whole = [*opening, *plain(one, text), one.eos_token_id]
        [item] = tokenise_documents([Document(text)], one, ROOMY)
        assert (item.ids, item.labels, item.truncated) == (whole, [-100, *whole[1:]], False)
        [short] = tokenise_documents([Document(text)], one, 3)
        assert (short.ids, short.truncated) == (whole[:3], True)


def test_many_documents_are_tokenised_a_few_at_a_time(tokenizer, monkeypatch):
    """A tokenizer keeps all that it has made of a call, which is some hundred times the ids."""
    monkeypatch.setattr(tokenising, "_AT_ONCE", 3)
    calls, ids_of = [], tokenising._ids_of
    monkeypatch.setattr(tokenising, "_ids_of", lambda texts, *rest: calls.append(len(texts)) or ids_of(texts, *rest))
    some = [Document(f"a fever of {number}") for number in range(8)]
    found = tokenise_documents(some, tokenizer, ROOMY)
    assert calls == [3, 3, 2]
    assert found == [item for one in some for item in tokenise_documents([one], tokenizer, ROOMY)]


def test_a_document_may_open_with_a_token_that_its_tokenizer_does_not_set(any_tokenizer):
    text = "the rash spread to her skin"
    [item] = tokenise_documents([Document(text)], any_tokenizer, ROOMY, opened=True)
    bos, eos = any_tokenizer.bos_token_id, any_tokenizer.eos_token_id
    own = plain(any_tokenizer, text)
    assert item.ids == [eos if bos is None else bos, *own, eos] and item.labels == [-100, *own, eos]
    assert left_open(item).ids == item.ids[:-1]
    [short] = tokenise_documents([Document(text)], any_tokenizer, 3, opened=True)
    assert left_open(short) == short


def test_of_a_character_that_is_cut_through_nothing_stays(tokenizer):
    text = "the fever stayed \u65e5\u672c"
    ids = tokenizer(text, add_special_tokens=False).input_ids
    found = [shortened(text, ids, most, tokenizer) for most in range(len(ids) + 1)]
    assert found[-1] == text and not any("\N{REPLACEMENT CHARACTER}" in one for one in found)
    assert all(text.startswith(one) for one in found) and len(set(found)) < len(found)
    broken = "as it was \N{REPLACEMENT CHARACTER}"  # and what was there before is not touched
    assert shortened(broken, tokenizer(broken, add_special_tokens=False).input_ids, 99, tokenizer) == broken
