"""The resident model with an adapter against the harness's own model of peft and transformers."""

import copy

import pytest
import torch

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance
from lm_eval.evaluator import evaluate
from lm_eval.models.huggingface import HFLM
from peft import PeftModel

from murmura.data.templates import template
from murmura.errors import RunError
from murmura.measure.harness.resident import Request, ResidentModel
from murmura.measure.harness.tasks import load
from murmura.tasks.instruction import InstructionReading
from murmura.training.adapter import load_peft, save_peft
from murmura.training.config import LoraSpec
from tests.conftest import make_gpt2, make_llama, restless
from tests.federation.world import make_workbench
from tests.measure.harness.small import write_tasks
from tests.training.helpers import random_state

CASES = {
    "llama": (make_llama, LoraSpec(rank=4, alpha=8)),
    "gpt2": (make_gpt2, LoraSpec(rank=4, alpha=8, targets=("c_attn", "c_fc"))),
    "dora": (make_llama, LoraSpec(rank=4, alpha=8, dora=True)),
}
LONG = "the patient asks about the dose and the letter of the heart " * 60
PAIRS = [
    ("the patient asks", " about the dose"),
    ("the patient asks ", "about the skin"),
    ("", "take the heart dose"),
    ("Question: which dose\nAnswer:", " two"),
    (LONG, " take the dose"),
    (LONG, f" {LONG[:900]}"),
]


@pytest.fixture(params=CASES)
def pair(request, tokenizer, tmp_path):
    """The bank with an adapter, and HFLM with peft's reading of the adapter's folder."""
    make, spec = CASES[request.param]
    bench = make_workbench(tokenizer, model=restless(make(tokenizer)), lora=spec)
    state = random_state(bench.bank, 1, scale=0.3)
    save_peft(tmp_path / "adapter", state, spec, "base", fan_in_fan_out=bench.bank.fan_in_fan_out)
    peft = PeftModel.from_pretrained(restless(make(tokenizer)), tmp_path / "adapter").eval()
    kept, _ = load_peft(tmp_path / "adapter")
    return ResidentModel(bench, kept), HFLM(pretrained=peft, tokenizer=tokenizer, batch_size=3, max_length=511)


def requests(kind, args):
    return [Instance(kind, {}, one, place) for place, one in enumerate(args)]


def test_likelihoods_are_those_of_the_harness(pair):
    ours, theirs = (one.loglikelihood(requests("loglikelihood", PAIRS)) for one in pair)
    assert len(pair[0].tok_encode(LONG)) > pair[0].max_length  # the last two are cut
    for (own, greedy), (other, first) in zip(ours, theirs, strict=True):
        assert own == pytest.approx(other, abs=2e-3, rel=1e-5)
        assert greedy == first


def test_likelihoods_are_sums_of_log_softmax(pair):
    """Straight from the logits of peft's model, with no harness between."""
    ours, theirs = pair
    [(found, _)] = ours.loglikelihood(requests("loglikelihood", PAIRS[:1]))
    context, whole = (ours.tokenizer.encode(text) for text in (PAIRS[0][0], "".join(PAIRS[0])))
    with torch.no_grad():
        logs = theirs.model(torch.tensor([whole])).logits[0].float().log_softmax(-1)
    expected = sum(logs[place - 1, whole[place]].item() for place in range(len(context), len(whole)))
    assert found == pytest.approx(expected, abs=1e-4)


def test_whole_texts_are_read_in_windows_as_by_the_harness(pair):
    texts = [("take the heart dose",), (LONG,)]
    ours, theirs = (one.loglikelihood_rolling(requests("loglikelihood_rolling", texts)) for one in pair)
    assert ours == pytest.approx(theirs, rel=1e-5)


def test_answers_are_those_of_the_harness(pair):
    options = [{"until": ["\n", "the"], "max_gen_toks": 12}, {"until": [" "], "max_gen_toks": 5, "do_sample": False}]
    asked = [(text, options[place % 2]) for place, (text, _) in enumerate(PAIRS) if text]
    ours, theirs = (one.generate_until(requests("generate_until", asked)) for one in pair)
    assert ours == theirs and any(ours)


def test_tasks_come_out_as_by_the_harness(pair, tmp_path):
    tasks = load(write_tasks(tmp_path))
    ours, theirs = (
        evaluate(model, {"tasks": tasks.each, "groups": {}, "group_map": {}}, bootstrap_iters=0) for model in pair
    )
    for name in ("doses", "visits"):
        assert ours["results"][name] == theirs["results"][name]
        for own, other in zip(ours["samples"][name], theirs["samples"][name], strict=True):
            for mine, yours in zip(own["resps"], other["resps"], strict=True):
                assert mine == yours or mine[0][0] == pytest.approx(yours[0][0], abs=1e-3)


def test_what_the_model_cannot_do_is_said(pair):
    model, _ = pair
    with pytest.raises(RunError, match="draws answers at random"):
        Request.of("why", {"do_sample": True, "temperature": 0.8})
    with pytest.raises(RunError, match="may have 511 tokens"):
        model.generate_until(requests("generate_until", [("why", {"until": ["."], "max_gen_toks": 511})]))
    with pytest.raises(RunError, match="is to be judged"):
        model.loglikelihood(requests("loglikelihood", [("why", LONG)]))


def test_the_runs_template_stands_around_a_question(pair):
    model, _ = pair
    asked = model.apply_chat_template([{"role": "user", "content": "which dose"}])
    assert asked.startswith("<|im_start|>user\nwhich dose") and asked.endswith("assistant\n")
    begun = [{"role": "user", "content": "which dose"}, {"role": "assistant", "content": "It is"}]
    assert model.apply_chat_template(begun, add_generation_prompt=False) == asked + "It is"


def test_in_a_template_an_option_is_tokenised_apart_from_the_header(tokenizer):
    known = copy.deepcopy(tokenizer)
    known.add_tokens(":A")  # which the header's end and the option would be together
    base = restless(make_llama(known))
    bench = make_workbench(known, model=copy.deepcopy(base))
    bench.reading = InstructionReading(template("alpaca", known), known, 96)
    asked = ResidentModel(bench, bench.origin).apply_chat_template([{"role": "user", "content": "which dose"}])
    pairs = requests("loglikelihood", [(asked, "A"), (asked, "B")])
    with torch.no_grad():
        logs = base(torch.tensor([known.encode(asked)])).logits[0, -1].float().log_softmax(-1)
    found = ResidentModel(bench, bench.origin, templated=True).loglikelihood(pairs)
    expected = [logs[known.convert_tokens_to_ids(option)].item() for option in "AB"]
    assert [value for value, _ in found] == pytest.approx(expected, abs=1e-4)
    with pytest.raises(RunError, match="has no token of its own"):
        ResidentModel(bench, bench.origin).loglikelihood(pairs)
