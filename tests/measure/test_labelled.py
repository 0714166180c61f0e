"""Reading labels at the blank of a tiny causal model."""

import numpy as np
import pytest

from murmura.data.cloze import Cloze
from murmura.data.records import Labelled
from murmura.measure.labelled import Validation, pattern_scores
from murmura.model_runtime import ModelRuntime
from murmura.streams import Stream
from murmura.tasks.labelled import LabelledReading
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining, LoraSpec

PATTERNS = ("{text} it was {blank}", "{text} in short it is {blank}", "{text} that is {blank}")
WORDS = {"bad": ("bad", "ill"), "good": ("good", "well")}


@pytest.fixture
def bench(llama, tokenizer):
    bank = Bank(llama, LoraSpec(rank=4, alpha=8, targets=("all-linear",)))
    cloze = Cloze(PATTERNS, WORDS, tokenizer, 48, masked=False, several_tokens="average")
    return ModelRuntime(bank, tokenizer, LabelledReading(cloze), LocalTraining(), max_length=48)


def adapters(bench, count):
    made = [bench.bank.initial(Stream(seed)) for seed in range(count)]
    for state in made:
        for name, value in state.items():
            state[name] = value + 0.1 * value.new_tensor(np.random.default_rng(0).normal(size=value.shape))
    return made


def test_each_text_is_read_by_its_own_adapter(bench):
    """Together in one call as one at a time."""
    texts, states = ["the rash is red", "help", "a long way to the clinic in the rain"], adapters(bench, 3)
    together = pattern_scores(bench, states, texts)
    assert together.shape == (3, 3, 2)
    for k in range(3):
        assert np.allclose(together[k], pattern_scores(bench, [states[k]], [texts[k]])[0], atol=1e-5)
    assert np.abs(together - pattern_scores(bench, [states[0]] * 3, texts)).max() > 1e-3


def test_no_text_has_no_scores(bench):
    assert pattern_scores(bench, [], []).shape == (0, 3, 2)


def test_without_a_validation_set_all_patterns_count_alike(bench):
    weighed = Validation().weigh(bench, adapters(bench, 1)[0])
    assert weighed.weights == [1.0, 1.0, 1.0] and weighed.accuracy is None


def test_weights_are_kept_for_the_adapter_they_are_of(bench):
    validation = Validation([Labelled("rash", "bad"), Labelled("help", "good")])
    one, other = adapters(bench, 2)
    first = validation.weigh(bench, one)
    assert validation.weigh(bench, one) is first
    assert validation.weigh(bench, other) is not first
