"""Cloze items: the ids of patterns around texts, and the words that may fill the blank."""

import copy

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from murmura.data.cloze import Cloze
from murmura.errors import ConfigError
from tests.training.helpers import items_of

# LP-FL, section 4.1 (the patterns that PET has for Yelp)
IMDB = (
    "It was {blank}. {text}",
    "Just {blank}! {text}",
    "{text}. All in all, it was {blank}.",
    "{text}. In summary, the movie is {blank}.",
)
BLANK_LAST = (
    "{text}. All in all, it was {blank}",
    "{text}. In summary, the movie is {blank}",
    "Text: {text} It: {blank}",
)
VERBALISER = {"bad": ["dull", "awful"], "good": ["great", "fine", "nice"]}
ROOMY = 1000

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = """it was just all in summary the movie is . , ! ' a rather film dull awful great fine nice long
un ##watch ##able ##ly good""".split()  # noqa: SIM905 (a text is easier to read)


def pieces(tokenizer, item):
    return tokenizer.convert_ids_to_tokens(item.ids)


@pytest.fixture(scope="session")
def word_pieces():
    """BERT's kind of tokenizer: lower case, word pieces, [CLS] text [SEP]."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {piece: k for k, piece in enumerate(SPECIAL + PIECES)}
    core = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    core.normalizer, core.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=core, **names)


def byte_pairs(framed):
    """A byte-level tokenizer that knows the words after a space, with GPT-2's special tokens or RoBERTa's."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    letters, special = pre_tokenizers.ByteLevel.alphabet(), ["<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=letters, show_progress=False)
    core.train_from_iterator([" dull awful great fine nice good it was just all in summary the movie is"] * 4, trainer)
    if not framed:
        return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>")
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", core.token_to_id("<s>")), ("</s>", core.token_to_id("</s>"))]
    )
    mask = AddedToken("<mask>", lstrip=True, special=True)  # it takes the space before it along
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", mask_token=mask)


@pytest.fixture(scope="session")
def gpt2_like():
    return byte_pairs(framed=False)


@pytest.fixture(scope="session")
def roberta_like():
    return byte_pairs(framed=True)


@pytest.fixture(scope="session")
def sentence_pieces():
    """Llama 2's kind of tokenizer, which writes a space before whatever it is given."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    words = ["▁great", "▁dull", "▁it", "▁was", "▁film"]
    signs = sorted({sign for word in words for sign in word} | set(".!"))
    steps = [(word[:k], word[k]) for word in words for k in range(1, len(word))]
    merges = list(dict.fromkeys(steps))
    vocabulary = {piece: k for k, piece in enumerate(["<unk>", "</s>", *signs, *("".join(pair) for pair in merges)])}
    core = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>"))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)])
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", eos_token="</s>")


def test_the_patterns_of_the_paper_in_word_pieces(word_pieces):
    cloze = Cloze(IMDB, VERBALISER, word_pieces, ROOMY, masked=True)
    items = items_of(cloze, "A rather long film!")
    assert [" ".join(pieces(word_pieces, item)) for item in items] == [
        "[CLS] it was [MASK] . a rather long film ! [SEP]",
        "[CLS] just [MASK] ! a rather long film ! [SEP]",
        "[CLS] a rather long film ! . all in all , it was [MASK] . [SEP]",
        "[CLS] a rather long film ! . in summary , the movie is [MASK] . [SEP]",
    ]
    assert [item.pattern for item in items] == [0, 1, 2, 3]
    assert items[0].ids == [2, 5, 6, 4, 14, 18, 19, 26, 20, 16, 3]  # places in the list above


@pytest.mark.parametrize("kind", ["word_pieces", "roberta_like"])
def test_ids_are_those_that_the_tokenizer_makes_of_the_filled_in_pattern(request, kind):
    tokenizer = request.getfixturevalue(kind)
    cloze = Cloze(IMDB, VERBALISER, tokenizer, ROOMY, masked=True)
    for item, pattern in zip(items_of(cloze, "a rather long film"), IMDB, strict=True):
        whole = pattern.replace("{text}", "a rather long film").replace("{blank}", tokenizer.mask_token)
        assert item.ids == tokenizer(whole)["input_ids"]


def test_a_causal_model_reads_before_the_word(gpt2_like):
    cloze = Cloze(BLANK_LAST, VERBALISER, gpt2_like, ROOMY, masked=False)
    for item, pattern in zip(items_of(cloze, "a rather long film"), BLANK_LAST, strict=True):
        whole = pattern.replace("{text}", "a rather long film").removesuffix(" {blank}")
        assert item.ids[:-1] == gpt2_like(whole)["input_ids"]
        [great] = gpt2_like(" great")["input_ids"]
        assert gpt2_like(f"{whole} great")["input_ids"] == [*item.ids[:-1], great]
        assert great in cloze.tokens


def test_a_causal_sequence_opens_as_the_tokenizer_has_it_and_does_not_close(roberta_like):
    [item] = items_of(Cloze(BLANK_LAST[:1], VERBALISER, roberta_like, ROOMY, masked=False), "a film")
    assert item.ids[0] == roberta_like.bos_token_id
    assert roberta_like.eos_token_id not in item.ids


def test_a_tokenizer_that_writes_its_own_space_gets_none_from_us(sentence_pieces):
    cloze = Cloze(["{text} it was {blank}"], {"a": ["great"], "b": ["dull"]}, sentence_pieces, 40, masked=False)
    [item] = items_of(cloze, "film")
    assert pieces(sentence_pieces, item) == ["▁film", "▁it", "▁was", "▁great"]


def test_what_follows_a_text_without_a_space_gets_no_mark(sentence_pieces):
    """Ids are those that the tokenizer makes of the filled-in pattern."""
    patterns = ["{text}. it was {blank}", "it.{text}! was {blank}"]
    cloze = Cloze(patterns, {"a": ["great"], "b": ["dull"]}, sentence_pieces, 40, masked=False)
    for item, pattern in zip(items_of(cloze, "film"), patterns, strict=True):
        assert item.ids[:-1] == sentence_pieces(pattern.replace("{text}", "film").removesuffix(" {blank}"))["input_ids"]
    assert pieces(sentence_pieces, items_of(cloze, "film")[0])[:4] == ["▁film", ".", "▁it", "▁was"]


def test_words_without_a_space_are_other_words_in_sentence_pieces(sentence_pieces):
    with pytest.raises(ConfigError, match=r"after a space and .* without one"):
        Cloze(["{text} it was {blank}", "{text} it was.{blank}"], VERBALISER, sentence_pieces, 40, masked=False)


@pytest.mark.parametrize("masked", [True, False])
def test_labels_point_at_the_blank(request, masked):
    tokenizer = request.getfixturevalue("word_pieces" if masked else "gpt2_like")
    cloze = Cloze(IMDB if masked else BLANK_LAST, VERBALISER, tokenizer, ROOMY, masked=masked)
    for item in items_of(cloze, "a rather long film"):
        [blank] = [place for place, label in enumerate(item.labels) if label != -100]
        assert item.labels[blank] >= 0
        assert len(item.labels) == len(item.ids)
        assert item.ids[blank] == tokenizer.mask_token_id if masked else blank == len(item.ids) - 1


words = st.lists(st.sampled_from(["a", "film", "unwatchably", "LONG", "é", "🌡", "\n", "[MASK]", "!!"]), max_size=40)
texts = st.one_of(words.map(" ".join), st.text(max_size=60))


@settings(max_examples=80, deadline=None)
@given(text=texts, max_length=st.integers(40, 60), kind=st.sampled_from(["word_pieces", "roberta_like", "gpt2_like"]))
@example(text="", max_length=40, kind="word_pieces")
@example(text=" \n ", max_length=40, kind="gpt2_like")
@example(text="film [MASK] film", max_length=60, kind="word_pieces")
def test_only_the_text_is_cut_and_no_more_than_it_must(request, text, max_length, kind):
    tokenizer, masked = request.getfixturevalue(kind), kind != "gpt2_like"
    patterns = IMDB if masked else BLANK_LAST

    def items(some, length):
        return items_of(Cloze(patterns, VERBALISER, tokenizer, length, masked=masked), some)

    for full, item, bare in zip(items(text, ROOMY), items(text, max_length), items("", ROOMY), strict=True):
        assert item.truncated == (len(full.ids) > max_length)
        assert len(item.ids) == min(len(full.ids), max_length)
        own, kept = len(full.ids) - len(bare.ids), len(item.ids) - len(bare.ids)
        assert any(
            full.ids == bare.ids[:place] + full.ids[place : place + own] + bare.ids[place:]
            and item.ids == bare.ids[:place] + full.ids[place : place + kept] + bare.ids[place:]
            and item.labels == bare.labels[:place] + [-100] * kept + bare.labels[place:]
            for place in range(len(bare.ids) + 1)
        ), "the pattern does not stand around the text's beginning as around nothing"


@settings(max_examples=20, deadline=None)
@given(some=st.lists(texts, max_size=6))
def test_many_at_once_are_tokenised_as_one_by_one(word_pieces, some):
    cloze = Cloze(IMDB, VERBALISER, word_pieces, 30, masked=True)
    assert cloze.tokenise_all(some) == [items_of(cloze, text) for text in some]


def test_more_texts_than_are_tokenised_at_once(gpt2_like, monkeypatch):
    monkeypatch.setattr("murmura.data.cloze._AT_ONCE", 3)
    cloze = Cloze(BLANK_LAST, VERBALISER, gpt2_like, 30, masked=False)
    some = ["film " * n for n in range(8)]
    assert cloze.tokenise_all(some) == [items_of(cloze, text) for text in some]


def test_a_text_is_tokenised_once_and_kept_small(gpt2_like):
    cloze = Cloze(BLANK_LAST, VERBALISER, gpt2_like, 40, masked=False)
    some = [f"a rather long film {n} " + "nice " * 200 for n in range(50)]
    first = cloze.tokenise_all(some)
    cloze._pieces = None
    assert cloze.tokenise_all(some) == first
    for kept in cloze._known.values():
        assert sum(ids.itemsize * len(ids) for ids in kept.values()) <= 2 * 4 * 40  # two borders, four bytes an id
    cloze.forget()
    assert not cloze._known


def test_texts_that_lose_something_are_counted(word_pieces):
    whole = Cloze(IMDB, VERBALISER, word_pieces, ROOMY, masked=True)
    some = ["film " * n for n in range(12)]
    lengths = [max(len(item.ids) for item in items) for items in whole.tokenise_all(some)]
    for limit in range(15, 30):
        cloze = Cloze(IMDB, VERBALISER, word_pieces, limit, masked=True)
        assert cloze.shortened(some) == [n for n, length in enumerate(lengths) if length > limit]
        read = cloze.tokenise_all(some)
        assert cloze.shortened(some) == [n for n, items in enumerate(read) if any(i.truncated for i in items)]


def test_an_empty_text_leaves_the_pattern(word_pieces):
    for item in Cloze(IMDB[2:3], VERBALISER, word_pieces, ROOMY, masked=True).tokenise_all(["", "  \n"]):
        assert " ".join(pieces(word_pieces, item[0])) == "[CLS] . all in all , it was [MASK] . [SEP]"
        assert not item[0].truncated


def test_white_space_around_a_text_is_dropped(gpt2_like):
    cloze = Cloze(BLANK_LAST, VERBALISER, gpt2_like, ROOMY, masked=False)
    assert items_of(cloze, " \t a long  film\n") == items_of(cloze, "a long  film") != items_of(cloze, "a long film")


def test_the_limit_itself_fits(word_pieces):
    [item] = items_of(Cloze(IMDB[:1], VERBALISER, word_pieces, ROOMY, masked=True), "a rather long film")
    limits = [Cloze(IMDB[:1], VERBALISER, word_pieces, len(item.ids) - k, masked=True) for k in (0, 1)]
    assert [items_of(limit, "a rather long film")[0].truncated for limit in limits] == [False, True]


def table(cloze):
    """Weight of each token for each label, by the token's id."""
    return [{token: weight for token, weight in zip(cloze.tokens, row, strict=True) if weight} for row in cloze.weights]


@pytest.mark.parametrize(("reduction", "each"), [("mean", (1 / 2, 1 / 3)), ("sum", (1, 1))])
def test_words_and_weights(word_pieces, reduction, each):
    cloze = Cloze(IMDB, VERBALISER, word_pieces, ROOMY, masked=True, reduction=reduction)
    ids = {label: word_pieces.convert_tokens_to_ids(own) for label, own in VERBALISER.items()}
    assert cloze.labels == ("bad", "good")
    assert cloze.words == [[[token] for token in own] for own in ids.values()]
    assert table(cloze) == [dict.fromkeys(own, weight) for own, weight in zip(ids.values(), each, strict=True)]


def test_a_word_of_several_tokens_is_refused_with_its_tokens(word_pieces, gpt2_like):
    wordy = {"bad": ["dull", "unwatchable"], "good": ["great"]}
    with pytest.raises(ConfigError, match=r"'unwatchable' of the label 'bad' .* 3: 'un' \+ '##watch' \+ '##able'"):
        Cloze(IMDB, wordy, word_pieces, ROOMY, masked=True)
    with pytest.raises(ConfigError, match=r"'unwatchable' of the label 'bad' is not one token .* \+ '") as error:
        Cloze(BLANK_LAST, wordy, gpt2_like, ROOMY, masked=False)
    assert "several_tokens" in str(error.value)


@pytest.mark.parametrize(("reduction", "words"), [("mean", 2), ("sum", 1)])
def test_or_averaged_when_asked(word_pieces, reduction, words):
    wordy = {"bad": ["dull", "unwatchable"], "good": ["great"]}
    cloze = Cloze(IMDB, wordy, word_pieces, ROOMY, masked=True, reduction=reduction, several_tokens="average")
    dull, un, watch, able, great = word_pieces.convert_tokens_to_ids(["dull", "un", "##watch", "##able", "great"])
    assert cloze.words == [[[dull], [un, watch, able]], [[great]]]
    third = 1 / 3 / words
    assert table(cloze) == [{dull: 1 / words, un: third, watch: third, able: third}, {great: 1}]


def test_averaged_words_may_share_a_token(word_pieces):
    wordy = {"bad": ["unwatchable"], "good": ["watchable", "goodly"], "dull": ["dullly"]}
    with pytest.raises(ConfigError, match="'watchable' of the label 'good' is not in the tokenizer's vocabulary"):
        Cloze(IMDB, wordy, word_pieces, ROOMY, masked=True, several_tokens="average")
    cloze = Cloze(
        IMDB, {"bad": ["dullly"], "good": ["goodly"]}, word_pieces, ROOMY, masked=True, several_tokens="average"
    )
    dull, ly, good = word_pieces.convert_tokens_to_ids(["dull", "##ly", "good"])
    assert table(cloze) == [{dull: 1 / 2, ly: 1 / 2}, {good: 1 / 2, ly: 1 / 2}]


@pytest.mark.parametrize(
    ("verbaliser", "match"),
    [
        ({"bad": ["dull"], "good": ["great", "Dull"]}, "'Dull' of the label 'good' is the same word as 'dull' of the"),
        ({"bad": ["dull", "dull "], "good": ["great"]}, "'dull ' of the label 'bad' is the same word as"),
        ({"bad": ["dull"], "good": ["zzz"]}, "'zzz' of the label 'good' is not in the tokenizer's vocabulary"),
    ],
)
def test_bad_verbalisers(word_pieces, verbaliser, match):
    with pytest.raises(ConfigError, match=match):
        Cloze(IMDB, verbaliser, word_pieces, ROOMY, masked=True)


def test_a_pattern_that_leaves_no_room_for_a_text(word_pieces):
    with pytest.raises(ConfigError, match=r"takes 63 of 63 tokens and leaves none for a text"):
        Cloze(["{text} " + "film " * 60 + "{blank}"], VERBALISER, word_pieces, 63, masked=True)


@pytest.mark.parametrize("number", range(4))
def test_a_causal_model_reads_no_pattern_that_goes_on_after_the_blank(gpt2_like, number):
    patterns = [BLANK_LAST[0], IMDB[number]]
    with pytest.raises(ConfigError, match=r"pattern 2, .* goes on after \{blank\}, and a causal model reads nothing"):
        Cloze(patterns, VERBALISER, gpt2_like, ROOMY, masked=False)


def test_a_causal_model_needs_something_to_read_before_the_blank(gpt2_like, roberta_like):
    with pytest.raises(ConfigError, match=r"has nothing before \{blank\} when a text is empty"):
        Cloze(["{text} {blank}"], VERBALISER, gpt2_like, ROOMY, masked=False)
    [item] = items_of(Cloze(["{text} {blank}"], VERBALISER, roberta_like, ROOMY, masked=False), "")
    assert item.ids == [roberta_like.bos_token_id, item.ids[1]]


def test_a_word_must_be_the_same_tokens_in_all_patterns(roberta_like, word_pieces):
    mixed = ["It was {blank}. {text}", "It was:{blank}. {text}"]
    with pytest.raises(ConfigError, match=r"'dull' of the label 'bad' is ' dull' after a space and .* without one"):
        Cloze(mixed, VERBALISER, roberta_like, ROOMY, masked=True)
    Cloze(mixed, VERBALISER, word_pieces, ROOMY, masked=True)  # word pieces do not see the space


def test_a_masked_model_needs_a_mask_token(word_pieces):
    maskless = copy.deepcopy(word_pieces)
    maskless.mask_token = None
    with pytest.raises(ConfigError, match="no mask token"):
        Cloze(IMDB, VERBALISER, maskless, ROOMY, masked=True)


def test_more_than_two_labels(word_pieces):
    three = {"positive": ["great"], "neutral": ["fine"], "negative": ["awful"]}
    cloze = Cloze(IMDB, three, word_pieces, ROOMY, masked=True)
    assert cloze.labels == ("positive", "neutral", "negative")
    assert cloze.weights == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
