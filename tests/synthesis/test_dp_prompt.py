"""DP-Prompt against the mechanism spelt out, the bound that its ε rests on, and what must not depend on a document."""

import math

import pytest
import torch

from murmura import progress
from murmura.errors import ConfigError, PrivacyError
from murmura.generation import packed
from murmura.generation import writer as writer_module
from murmura.generation.sampling import Sampling, filtered
from murmura.privacy.entropy import OSEntropy, SeededEntropy
from murmura.streams import Stream
from murmura.synthesis.dp_prompt import DPPrompt, logit_bounds, paraphrased
from murmura.synthesis.prompts import Wording
from tests.conftest import WORDS
from tests.privacy.plans import Rehearsed
from tests.synthesis.models import writer

product = packed._product
HOW = DPPrompt(tokens=10, low=-2.0, high=3.0, temperature=0.8)
DOCUMENTS = [" ".join(WORDS[start : start + length]) for start, length in ((0, 9), (7, 30), (20, 3))]


@pytest.fixture(scope="module")
def bench(tokenizer):
    return writer(tokenizer)


def spelt_out(bench, document, how, numbers):
    """Token by token with the whole model: clip, divide, draw; up to the end token."""
    ids = bench.prompt_ids(Wording(bench.tokenizer).prompt(document))
    start = len(ids)
    for number in numbers:
        bench.bank.route(torch.zeros(1, dtype=torch.long))
        with torch.no_grad():
            logits = bench.bank.model(input_ids=torch.tensor([ids])).logits[0, -1].double()
        weights = (logits.clamp(how.low, how.high) / how.temperature).exp()
        ids.append(int((weights.cumsum(0) <= number * weights.sum()).sum()))
        if ids[-1] == bench.tokenizer.eos_token_id:
            break
    return " ".join(bench.tokenizer.decode(ids[start:], skip_special_tokens=True).split())


def test_it_is_the_exponential_mechanism_token_by_token(bench):
    entropy = SeededEntropy(Stream(0))
    numbers = [SeededEntropy.uniform(entropy, HOW.tokens) for _ in DOCUMENTS]
    [found] = paraphrased(bench, [DOCUMENTS], HOW, Rehearsed(Stream(0)))
    bench.load([bench.bank.untrained])
    assert found == [spelt_out(bench, *pair[:1], HOW, pair[1]) for pair in zip(DOCUMENTS, numbers, strict=True)]
    assert all(found) and len(set(found)) == 3


def test_weights_are_packed_once_for_all_sites_and_progress_is_shown(bench, monkeypatch, capsys):
    times = []
    monkeypatch.setattr(packed, "_product", lambda module, *rest: times.append(module) or product(module, *rest))
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    paraphrased(bench, [DOCUMENTS[:2], DOCUMENTS[2:]], HOW, OSEntropy())
    assert len(times) == len(set(times)) > 0
    assert "paraphrase: 2/3, " in capsys.readouterr().err


def test_no_two_documents_are_further_apart_than_its_epsilon_says(bench):
    """Whatever the logits are, also where a model breaks down."""
    wild = torch.randn(40, 60, generator=torch.Generator().manual_seed(0)) * 50
    wild[0], wild[1, 3], wild[2, 5], wild[3, 7], wild[4] = 0, float("inf"), float("-inf"), float("nan"), float("nan")
    wild[5], wild[6], wild[5, 0], wild[6, 0] = -90, 90, 90, -90  # as far apart as can be: one token alone, all others
    logs = filtered(wild, HOW.sampling).log_softmax(-1)
    apart = (logs[:, None] - logs[None]).abs().amax()
    per_token = 2 * (HOW.high - HOW.low) / HOW.temperature
    assert 0.6 * per_token < apart <= per_token and logs.dtype == torch.float64
    torch.testing.assert_close(
        filtered(wild[7:], Sampling(2.0, clip=(-1, 4))), (wild[7:].double().clamp(-1, 4) + 1) / 2
    )


@pytest.mark.parametrize("low", [7.4832, -19.2271, 1e6, -1e-3])
@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-6, 1.0])
def test_bounds_that_are_near_each_other_are_no_further_apart_once_divided(low, gap):
    """Rounded after it, a logit of 7.4832/T is a whole unit of the last place off, where T is 1e-16."""
    high = math.nextafter(low, math.inf) + gap
    for budget in (0.3, 4.1, 50.0):
        temperature = 2 * (high - low) / budget
        wild = torch.tensor([[low] + [high] * 500, [high] + [low] * 500], dtype=torch.float64)
        logs = filtered(wild, Sampling(temperature, clip=(low, high))).log_softmax(-1)
        assert float((logs[0] - logs[1]).abs().max()) <= budget * (1 + 1e-12)


def test_every_document_may_take_all_its_tokens_however_long_it_is(bench, monkeypatch):
    asked, write = [], bench.write

    def listening(adapters, prompts, limits, **options):
        asked.append((prompts, limits))
        return write(adapters, prompts, limits, **options)

    monkeypatch.setattr(bench, "write", listening)
    paraphrased(bench, [["", *DOCUMENTS], [" ".join(WORDS * 40)]], HOW, OSEntropy())
    assert [limits for _, limits in asked] == [[10] * 4, [10]]
    prompts = [prompt for together, _ in asked for prompt in together]
    assert max(map(len, prompts)) == pytest.approx(bench.context - 10, abs=3) and bench.context == 512
    frame = Wording(bench.tokenizer).prompt("~~~").split("~~~")
    for prompt in prompts:
        text = bench.tokenizer.decode(prompt)
        assert text.startswith(frame[0]) and text.endswith(frame[1])


def test_tokens_are_drawn_by_the_entropy_alone(bench):
    again = [paraphrased(bench, [DOCUMENTS], HOW, Rehearsed(Stream(1))) for _ in range(2)]
    assert again[0] == again[1] != paraphrased(bench, [DOCUMENTS], HOW, Rehearsed(Stream(2)))
    one = [DOCUMENTS[:1]]
    assert paraphrased(bench, one, HOW, OSEntropy()) != paraphrased(bench, one, HOW, OSEntropy())
    assert paraphrased(bench, [[], []], HOW, OSEntropy()) == [[], []]


def test_what_a_site_draws_from_has_no_digit_of_another_sites_documents(bench, monkeypatch):
    """Logits and all, to the last bit: an ε of one site allows nothing else."""
    seen, choose, write = [], writer_module.choose, bench.write
    monkeypatch.setattr(writer_module, "choose", lambda logits, *rest: seen[-1].append(logits) or choose(logits, *rest))
    monkeypatch.setattr(bench, "write", lambda *given, **options: seen.append([]) or write(*given, **options))

    def drawn_from(other):
        seen.clear()
        found = paraphrased(bench, [other, DOCUMENTS], HOW, Rehearsed(Stream(3)))
        return found[1], seen[1]

    texts, logits = drawn_from(["x"])
    same_texts, same_logits = drawn_from([" ".join(WORDS * 3)])
    assert texts == same_texts and len(logits) == len(same_logits) > 0
    assert all(map(torch.equal, logits, same_logits))


def test_bounds_are_those_of_public_texts_behind_the_prompt(bench):
    public = [*DOCUMENTS, ""]
    low, high = logit_bounds(bench, public, 4)
    ends = []
    for document in DOCUMENTS:
        prompt = bench.prompt_ids(Wording(bench.tokenizer).prompt(document))
        ids = [*prompt, *bench.tokenizer(document).input_ids]
        bench.bank.route(torch.zeros(1, dtype=torch.long))
        logits = bench.bank.model(input_ids=torch.tensor([ids])).logits[0, len(prompt) - 1 : -1]
        ends += [float(logits.min()), float(logits.max())]
    assert (low, high) == pytest.approx((min(ends), max(ends)), rel=1e-5)
    assert logit_bounds(bench, public, 4, tokens_per_pass=1) == pytest.approx((low, high), rel=1e-5)
    for none in ([], [""]):
        with pytest.raises(ConfigError, match="no public document has text"):
            logit_bounds(bench, none, 4)


def test_a_public_text_that_is_too_long_bounds_logits_with_what_of_it_fits(bench):
    """As sites shorten their own; the run would stop at it, and at each resume."""
    long = " ".join(WORDS * 200)
    assert len(bench.tokenizer(long).input_ids) > bench.context
    low, high = logit_bounds(bench, [long], 4)
    assert math.isfinite(low) and low < high
    with pytest.raises(ConfigError, match="leaves no room"):
        logit_bounds(bench, [long], bench.context)


def test_what_makes_no_sense_is_refused(bench):
    for options, message in (
        ({"tokens": 0}, "a paraphrase of 0 tokens"),
        ({"low": 3.0}, r"cannot be clipped to 3\.0 and 3\.0"),
        ({"high": float("inf")}, "cannot be clipped"),
        ({"temperature": 0.0}, r"a temperature of 0\.0"),
    ):
        with pytest.raises(ConfigError, match=message):
            DPPrompt(**{"tokens": 10, "low": -2.0, "high": 3.0, "temperature": 0.8} | options)
    with pytest.raises(ConfigError, match=r"leaves no room for 510 tokens in the model's context of 512"):
        paraphrased(bench, [DOCUMENTS], DPPrompt(510, -2.0, 3.0, 0.8), OSEntropy())
    with pytest.raises(PrivacyError, match="drawn from a known seed protect nothing"):
        paraphrased(bench, [DOCUMENTS], HOW, SeededEntropy(Stream(0)))
