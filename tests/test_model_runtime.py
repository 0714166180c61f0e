"""One bank for many adapters: what does not fit at once is processed in turns."""

import pytest
import torch

from murmura.data.records import Instruction
from murmura.data.tokenising import tokenise_all
from murmura.generation import writer
from murmura.generation.sampling import Sampling
from murmura.resources import Loader, Resource, Resources
from murmura.streams import Stream
from murmura.training.config import LoraSpec
from tests.conftest import make_gpt2, make_llama, restless
from tests.federation.world import instructions, make_workbench
from tests.generation.families import phi3
from tests.training.helpers import assert_same, random_state


@pytest.fixture
def bench(tokenizer):
    return make_workbench(tokenizer)


def jobs(bench, count=7, adapters=4):
    """Records, each for one of a few adapters, not in the adapters' order."""
    states = [random_state(bench.bank, seed, scale=0.5) for seed in range(adapters)]
    items = bench.tokenise_fitting(instructions(count, seed=3))
    return [states[(3 * k) % adapters] for k in range(count)], items


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_how_many_fit_changes_nothing(tokenizer, bench, slots):
    adapters, items = jobs(bench)
    prompts = [item.ids[: item.start] for item in items]
    few = make_workbench(tokenizer, slots=slots)
    assert few.write(adapters, prompts, [6] * 7) == bench.write(adapters, prompts, [6] * 7)
    ours, theirs = few.score(adapters, items), bench.score(adapters, items)
    assert [score.mean for score in ours] == pytest.approx([score.mean for score in theirs], abs=1e-5)
    ours, theirs = (one.energies(adapters, items, temperature=1.0) for one in (few, bench))
    assert ours == pytest.approx(theirs, abs=1e-5)
    assert few.bank.slots <= slots


def test_each_adapter_is_loaded_once(bench):
    first, second = (random_state(bench.bank, seed) for seed in (0, 1))
    assert bench.load([first, second, first, first]) == [0, 1, 0, 0]
    assert bench.bank.slots == 2
    assert_same(bench.bank.read(1), second)


def test_all_parameters_take_turns(tokenizer):
    bench = make_workbench(tokenizer, lora=None)
    first = bench.bank.initial(Stream(0))
    second = {name: tensor * 1.5 for name, tensor in first.items()}
    items = bench.tokenise_fitting(instructions(4, seed=3))
    mixed = bench.score([first, second, first, second], items)
    for k, state in enumerate((first, second, first, second)):
        assert mixed[k].mean == pytest.approx(bench.score([state], [items[k]])[0].mean, abs=1e-5)
    assert mixed[0].mean != pytest.approx(bench.score([second], [items[0]])[0].mean, abs=1e-3)


@pytest.mark.parametrize("make", [make_llama, make_gpt2])
def test_writing_ends_with_the_context(tokenizer, make):
    bench = make_workbench(tokenizer, model=make(tokenizer), lora=LoraSpec(rank=2, alpha=4, targets=("all-linear",)))
    states, room = [random_state(bench.bank, 0)] * 4, bench.context
    prompts = [[5] * length for length in (room - 3, room, room + 9, 4)]
    written = bench.write(states, prompts, [8] * 4)
    assert [len(one.ids) <= most for one, most in zip(written, (3, 0, 0, 8), strict=True)] == [True] * 4
    assert [one.finished for one in written[1:3]] == [False] * 2
    assert written[3] == bench.write(states[:1], prompts[3:], [8])[0]


def test_a_text_does_not_depend_on_longer_ones_where_positions_do(tokenizer):
    lora = LoraSpec(rank=2, alpha=4, targets=("all-linear",))
    bench = make_workbench(tokenizer, model=restless(phi3(tokenizer)), lora=lora)
    states, prompts = [bench.bank.untrained] * 2, [list(range(10, 38)), list(range(50, 66))]
    together = bench.write(states, prompts, [12] * 2)
    assert together[1] == bench.write(states[1:], prompts[1:], [12])[0]
    assert (len(together[0].ids), together[0].finished) == (4, False)


def test_nothing_to_do(bench):
    assert bench.write([], [], []) == []
    assert bench.score([], []) == []


def test_records_are_tokenised_as_everywhere(bench, tokenizer):
    record, long = instructions(1, seed=0)[0], Instruction("explain", "", "the patient " * 200)
    tokenised = bench.reading.tokenise([record])[0]
    assert tokenise_all([record], bench.template, tokenizer, bench.max_length).items == [tokenised]
    assert bench.reading.tokenise([record])[0] is tokenised
    assert bench.reading.tokenise([long])[0] is None
    assert bench.tokenise_fitting([record, long, record]) == [tokenised, tokenised]


@pytest.mark.parametrize("slots", [1, 8])
def test_what_is_drawn_does_not_depend_on_who_shares_the_bank(tokenizer, bench, slots):
    adapters, items = jobs(bench)
    prompts, streams = [item.ids[: item.start] for item in items], [Stream(3) / k for k in range(7)]
    few, how = make_workbench(tokenizer, slots=slots), Sampling(0.8, top_p=0.9)
    few.decode_rows = 2
    together = bench.write(adapters, prompts, [6] * 7, sampling=how, streams=streams)
    assert few.write(adapters, prompts, [6] * 7, sampling=how, streams=streams) == together
    assert together != bench.write(adapters, prompts, [6] * 7)


@pytest.mark.parametrize(
    ("asked", "native", "used"),
    [("model", True, None), ("bfloat16", False, torch.bfloat16), ("auto", True, torch.bfloat16), ("auto", False, None)],
)
def test_products_while_writing_are_in_the_type_asked_for(bench, monkeypatch, asked, native, used):
    monkeypatch.setattr("murmura.precision.is_native", lambda device: native)
    adapters, items = jobs(bench, count=2)
    types, products_in = [], writer.products_in
    monkeypatch.setattr(writer, "products_in", lambda model, dtype: types.append(dtype) or products_in(model, dtype))
    bench.decode_dtype = asked
    bench.write(adapters, [item.ids[: item.start] for item in items], [2] * 2)
    assert set(types) == {used}


def test_another_model_writes_what_it_writes_by_itself(tokenizer, bench, tmp_path):
    """As transformers' own greedy decoding has it, and the resident model goes on as before."""
    other = make_llama(tokenizer, seed=5)
    other.model.norm.weight.data.neg_()  # or else a tiny model only repeats the last token
    other.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    resource = Resource("causal", str(tmp_path), "site")
    bench.resources = Resources({"writer": resource}, "site", Loader("cpu"))
    prompt = bench.prompt_ids("the patient asks whether")
    before = bench.write([bench.bank.untrained], [prompt], [6])
    writing = bench.another("writer")
    [found] = writing.write([writing.bank.untrained], [prompt], [6])
    expected = other.generate(
        torch.tensor([prompt]), max_new_tokens=6, do_sample=False, attention_mask=torch.ones(1, len(prompt))
    )
    assert found.ids == [token for token in expected[0, len(prompt) :].tolist() if token != tokenizer.eos_token_id]
    assert bench.another("writer") is writing
    # The same model under another option, at the other side: it carries one adapter, not two.
    resources = Resources({"reader": Resource("causal", str(tmp_path), "server")}, "server", bench.resources._loader)
    beside = type(bench)(bench.bank, tokenizer, bench.reading, bench.training, max_length=64, resources=resources)
    assert beside.another("reader").bank is writing.bank
    assert bench.write([bench.bank.untrained], [prompt], [6]) == before != [found]
