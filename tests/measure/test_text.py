"""Text metrics against `rouge_score`, bit for bit, and against their definitions."""

from __future__ import annotations

import random
import re
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from murmura.errors import DataError
from murmura.measure.text import References, answer_words, distinct, rouge_l, token_f1, tokens
from murmura.words import apart

# Few words, so that texts have much in common; any separator; and any text at all.
words = st.lists(
    st.sampled_from(["the", "Patient,", "took", "5mg", "of", "DR-7", "é", "İ", "薬", "the's"]), max_size=25
)
texts = st.one_of(words.map(" ".join), st.text(max_size=60), st.text("aAbB0 .\n\u00e9\u212a\u0130", max_size=40))


class Ours:
    """Our tokens, for `rouge_score`."""

    tokenize = staticmethod(tokens)


def oracle(candidate: str, reference: str) -> float:
    """`rouge_score` with its own tokens where these are all that there is, else with ours."""
    from rouge_score.rouge_scorer import RougeScorer

    own = None if (candidate + reference).isascii() else Ours()
    return RougeScorer(["rougeL"], use_stemmer=False, tokenizer=own).score(reference, candidate)["rougeL"].fmeasure


@settings(deadline=None)
@given(texts)
@example("İstanbul \u212aelvin ſ ２ \ud800 e\u0301té")  # letters whose lower case is ASCII, wholly or in part
def test_tokens(text: str) -> None:
    """Those of `rouge_score`, and between them others, of other letters."""
    from rouge_score.tokenize import tokenize

    assert [token for token in tokens(text) if token.isascii()] == tokenize(text, None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Принимать 2 раза в день.", ["принимать", "2", "раза", "в", "день"]),
        ("Λήψη με νερό", ["λήψη", "με", "νερό"]),
        ("تناول الدواء، مرتين", ["تناول", "الدواء", "مرتين"]),
        ("दवा दिन में दो बार।", ["दवा", "दिन", "में", "दो", "बार"]),
        ("하루 두 번", ["하루", "두", "번"]),
        ("每日2次，饭后。", ["每", "日", "2", "次", "饭", "后"]),
        ("1日2回飲む", ["1", "日", "2", "回", "飲", "む"]),
        ("กินยา", ["ก", "น", "ย", "า"]),
        ("café naïve", ["caf", "é", "na", "ï", "ve"]),
        ("🙂 – _", []),
    ],
)
def test_tokens_of_other_scripts(text: str, found: list[str]) -> None:
    """Words where these stand apart, else letters."""
    assert tokens(text) == found
    assert rouge_l(text, f"{text} {text}") == pytest.approx(2 / 3 if found else 0)


@settings(deadline=None)
@given(texts, texts)
@example("", "")
@example("薬", "薬")
@example("a b c", "c b a")
def test_rouge_l_is_rouge_scores(candidate: str, reference: str) -> None:
    assert rouge_l(candidate, reference) == oracle(candidate, reference)


@settings(deadline=None)
@given(texts, texts)
def test_rouge_l_does_not_care_who_is_the_reference(a: str, b: str) -> None:
    assert rouge_l(a, b) == pytest.approx(rouge_l(b, a), rel=1e-15)


@settings(deadline=None)
@given(st.lists(texts, max_size=8), texts)
def test_best_is_the_highest_of_all(references: list[str], candidate: str) -> None:
    best = max((oracle(candidate, reference) for reference in references), default=0.0)
    assert References(references).best(candidate) == best


@settings(deadline=None)
@given(
    st.lists(texts, max_size=8), texts, st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 2 / 3, 0.7, 0.8, 1.0]))
)
def test_exceeds_leaves_out_nothing_that_matters(references: list[str], candidate: str, threshold: float) -> None:
    ours = References(references)
    best = ours.best(candidate)
    assert ours.exceeds(candidate, threshold) == (best > threshold)
    assert not ours.exceeds(candidate, best)  # a tie does not exceed


def test_long_texts() -> None:
    """Past the 64 words of a machine word, at which LCS algorithms change their ways."""
    generator = random.Random(0)
    vocabulary = [f"w{i}" for i in range(40)]
    texts = [" ".join(generator.choices(vocabulary, k=k)) for k in (1, 63, 64, 65, 128, 129, 300)]
    for reference in texts:
        for candidate in texts:
            assert rouge_l(candidate, reference) == oracle(candidate, reference)


def test_large_vocabulary() -> None:
    """Word numbers pass through the surrogates (55,296 ... 57,343) and beyond 65,535."""
    vocabulary = [f"w{i}" for i in range(70_000)]
    references = References(" ".join(vocabulary[i : i + 50]) for i in range(0, 70_000, 50))
    for i in (0, 55_290, 57_340, 65_530, 69_950):
        block = i // 50 * 50
        assert references.best(" ".join(vocabulary[block : block + 50])) == 1.0
        half = " ".join(vocabulary[block : block + 25] + ["unseen"] * 25)
        assert references.best(half) == 0.5


def test_unseen_words_match_nothing() -> None:
    assert References(["zero one"]).best("alpha beta") == 0.0
    assert References(["", "?!"]).best("alpha") == 0.0


def test_references_grow() -> None:
    references = References(["one two"])
    assert not references.exceeds("three four", 0.7)
    references.add("three four")
    assert len(references) == 2
    assert references.exceeds("three four", 0.7)


def test_too_many_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("murmura.measure.text.sys.maxunicode", 3)
    references = References(["a b c"])
    with pytest.raises(DataError, match="more than 3 distinct words"):
        references.add("c d")


def squad_f1(prediction: str, truth: str) -> float:
    """As in the evaluation script of SQuAD 2.0, step by step."""

    def normalised(text: str) -> list[str]:
        kept = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split()).split()

    gold, told = normalised(truth), normalised(prediction)
    if len(gold) == 0 or len(told) == 0:
        return int(gold == told)
    left, same = list(gold), 0
    for word in told:
        if word in left:
            left.remove(word)
            same += 1
    if same == 0:
        return 0
    precision, recall = same / len(told), same / len(gold)
    return 2 * precision * recall / (precision + recall)


@settings(deadline=None)
@given(texts, texts)
@example("The dose: 5-mg, daily.", "a dose of 5mg daily")
@example("the", "")
@example("the", "dose")
def test_token_f1_is_that_of_squad(answer: str, reference: str) -> None:
    assert token_f1(answer, reference) == pytest.approx(squad_f1(apart(answer), apart(reference)))
    if answer_words(answer) and answer_words(reference):  # SQuAD 1.1, as another library has it
        metrics = pytest.importorskip("lm_eval.tasks.qasper.metrics")
        assert token_f1(answer, reference) == pytest.approx(metrics.f1_abstractive([apart(answer)], [apart(reference)]))
    assert token_f1(answer, reference) == token_f1(reference, answer)


def test_token_f1_by_hand() -> None:
    """Of three words and two, one in common: 2 · (1/3) · (1/2) / (1/3 + 1/2)."""
    assert token_f1("An aspirin, taken daily!", "aspirin weekly") == pytest.approx(0.4)
    assert token_f1("每日三次", "三次") == pytest.approx(2 / 3)
    assert (token_f1("好。", "坏。"), token_f1("每日三次。", "「每日三次」")) == (0, 1)
    assert token_f1("Дважды в день", "в день") == pytest.approx(0.8)


SENTENCES = st.lists(st.sampled_from(["dose", "skin", "rash"]), max_size=6).map(" ".join)


def test_distinct_by_hand() -> None:
    """Three different words and two different pairs, of five words."""
    assert distinct(["the dose the dose", "rash"], 1) == 3 / 5
    assert distinct(["the dose the dose", "rash"], 2) == 2 / 5
    assert distinct([], 1) == distinct(["?!"], 2) == 0
    assert distinct(["每日每日"], 1) == 2 / 4


@given(st.lists(SENTENCES, max_size=5), st.integers(1, 3))
def test_distinct_by_brute_force(texts: list[str], n: int) -> None:
    runs: list[str] = []
    whole = 0
    for text in texts:
        own = tokens(text)
        whole += len(own)
        runs += [" ".join(own[k : k + n]) for k in range(len(own)) if k + n <= len(own)]
    assert distinct(texts, n) == (len(set(runs)) / whole if whole else 0)


@given(st.lists(SENTENCES, min_size=1, max_size=4))
def test_texts_that_repeat_are_less_diverse(texts: list[str]) -> None:
    assert distinct(texts * 2, 2) <= distinct(texts, 2)
