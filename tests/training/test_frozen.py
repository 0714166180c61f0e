"""What the layers below the first adapter compute is computed once, and changes no result."""

import pytest
import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
from transformers import Gemma2Config, Gemma2ForCausalLM, Gemma3nForCausalLM, Gemma3nTextConfig, LlamaForCausalLM

from murmura.errors import ModelError
from murmura.generation.scoring import SUMS, score
from murmura.streams import Stream
from murmura.training.adapter import load_peft, save_peft
from murmura.training.bank import Bank
from murmura.training.batch import collate
from murmura.training.by_example import example_gradients
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.loop import train
from murmura.training.targets import target_names
from tests.conftest import make_bert, make_gpt2, make_llama, sizes
from tests.training.helpers import CPU, EPS, assert_close, assert_same, cloze_items, hf_batch, items, random_state

TARGETS = {
    "llama": ("q_proj", "v_proj"),
    "gpt2": ("c_attn",),
    "bert": ("query", "value"),
    "gemma2": ("q_proj", "v_proj"),
    "dora": ("q_proj", "v_proj"),
}
TRAINING = LocalTraining(lr=1e-2, epochs=3, batch_size=3, eps=EPS, tokens_per_pass=64)


def model_of(kind, tokenizer):
    if kind == "gemma2":  # sliding windows in every other layer, and embeddings that are scaled
        torch.manual_seed(0)
        shape = sizes(tokenizer, layers=4, positions=128, num_key_value_heads=2, head_dim=8, pad_token_id=0)
        return Gemma2ForCausalLM(Gemma2Config(**shape)).eval()
    if kind in ("llama", "dora"):
        return make_llama(tokenizer, layers=4)
    return {"gpt2": make_gpt2, "bert": make_bert}[kind](tokenizer)


def bank_of(kind, tokenizer, **options):
    spec = LoraSpec(rank=4, targets=TARGETS[kind], layers="last 1", dora=kind == "dora")
    return Bank(model_of(kind, tokenizer), spec, **options)


def records_of(kind, tokenizer, count=5):
    return cloze_items(count, tokenizer) if kind == "bert" else items(count)


def trained(bank, shard, training=TRAINING, sites=2):
    starts = [random_state(bank, seed) for seed in range(sites)]
    streams = [Stream(0) / site for site in range(sites)]
    return [result.state for result in train(bank, [shard] * sites, starts, training, training.lr, streams)]


def passes(bank):
    """Token ids of each pass through the model's first layer."""
    seen = []
    first = bank.head.model.get_submodule("model.layers.0.mlp")
    first.register_forward_hook(lambda module, given, out: seen.append(tuple(given[0].shape[:2])))
    return seen


@pytest.mark.parametrize("kind", TARGETS)
def test_results_are_those_of_whole_passes(kind, tokenizer):
    whole, short = bank_of(kind, tokenizer, cache_bytes=0), bank_of(kind, tokenizer)
    shard = records_of(kind, tokenizer)
    assert whole.head.frozen is None
    assert short.head.frozen is not None
    for ours, theirs in zip(trained(short, shard), trained(whole, shard), strict=True):
        assert_close(ours, theirs)
    found = [score(SUMS, bank, shard, [0, 1, 0, 1, 0], tokens_per_pass=64) for bank in (short, whole)]
    assert [one.nll for one in found[0]] == pytest.approx([one.nll for one in found[1]], rel=1e-5)
    ids, labels = collate(shard, CPU)
    for bank in (short, whole):
        bank.route(torch.tensor([0, 1, 0, 1, 0]))
    ours, theirs = (bank.head.logits_at(ids, labels, torch.tensor([3, 5]))[0] for bank in (short, whole))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    if kind != "bert":
        ours, theirs = (example_gradients(bank, shard, 0, TRAINING) for bank in (short, whole))
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_was_kept_changes_no_bit(tokenizer, tmp_path, precision):
    training = TRAINING.model_copy(update={"precision": precision})
    shard = items(6)
    filled = bank_of("llama", tokenizer)
    first = trained(filled, shard, training)
    again = trained(filled, shard, training)
    small, on_disk = bank_of("llama", tokenizer, cache_bytes=1), bank_of("llama", tokenizer, cache_bytes=3000)
    on_disk.states.spill([item.ids for item in shard], tmp_path)
    for other in (again, trained(small, shard, training), trained(on_disk, shard, training)):
        for ours, theirs in zip(other, first, strict=True):
            assert_same(ours, theirs)
    assert small.states.nbytes == 0
    assert 0 < on_disk.states.nbytes <= 3000
    assert any((tmp_path / "states").iterdir())


def test_each_record_goes_through_lower_layers_once(tokenizer):
    bank, shard = bank_of("llama", tokenizer), items(5)
    seen = passes(bank)
    trained(bank, shard)
    score(SUMS, bank, shard, [0] * 5, tokens_per_pass=64)
    example_gradients(bank, shard, 0, TRAINING)
    assert sorted(seen) == sorted((1, len(item.ids)) for item in shard)


def test_each_precision_has_states_of_its_own(tokenizer):
    bank, shard = bank_of("llama", tokenizer), items(2)
    seen = passes(bank)
    for precision in ("float32", "bfloat16", "float32"):
        trained(bank, shard, TRAINING.model_copy(update={"precision": precision}))
    assert len(seen) == 4


def test_runs_share_what_the_same_layers_compute(tokenizer, tmp_path):
    shard, shared = items(3), tmp_path / "private" / "states"
    alone, first, second = bank_of("llama", tokenizer), *(bank_of("llama", tokenizer, shared=shared) for _ in range(2))
    plain = trained(alone, shard)
    for bank, computed in ((first, 3), (second, 0)):
        bank.states.spill([item.ids for item in shard], tmp_path / "own", common=True)
        seen = passes(bank)
        for ours, theirs in zip(trained(bank, shard), plain, strict=True):
            assert_same(ours, theirs)
        assert len(seen) == computed


@pytest.mark.parametrize("change", ["weights", "depth", "precision", "threads"])
def test_runs_share_nothing_that_other_layers_computed(tokenizer, tmp_path, change):
    shard, shared = items(2), tmp_path / "private" / "states"
    trained(bank_of("llama", tokenizer, shared=shared), shard)
    model, layers, training, threads = model_of("llama", tokenizer), "last 1", TRAINING, torch.get_num_threads()
    if change == "weights":
        with torch.no_grad():
            model.model.layers[0].mlp.up_proj.weight[0, 0] += 1
    if change == "depth":
        layers = "last 2"
    if change == "precision":
        training = TRAINING.model_copy(update={"precision": "bfloat16"})
    other = Bank(model, LoraSpec(rank=4, targets=TARGETS["llama"], layers=layers), shared=shared)
    seen = passes(other)
    try:
        torch.set_num_threads(threads + (change == "threads"))
        trained(other, shard, training)
    finally:
        torch.set_num_threads(threads)
    assert len(seen) == 2


def test_an_error_in_a_pass_leaves_nothing_behind(tokenizer):
    bank, shard = bank_of("llama", tokenizer), items(2)
    bank.load([random_state(bank, 0), random_state(bank, 1)])
    bank.route(torch.tensor([0, 1, 0]))
    with pytest.raises(ModelError):  # a row comes, and three are expected
        bank.head.token_nll(*collate(shard[:1], CPU))
    bank.route(torch.tensor([0]))
    nll, _ = bank.head.token_nll(*collate(shard[:1], CPU))
    other = bank_of("llama", tokenizer, cache_bytes=0)
    other.load([random_state(other, 0)])
    other.route(torch.tensor([0]))
    torch.testing.assert_close(nll, other.head.token_nll(*collate(shard[:1], CPU))[0], atol=1e-5, rtol=1e-5)


class Skipping(LlamaForCausalLM):
    """Its last layer also reads what the first one made."""

    def __init__(self, config):
        super().__init__(config)
        made = []
        self.model.layers[0].register_forward_hook(lambda layer, given, out: made.append(out))
        self.model.layers[-1].register_forward_hook(lambda layer, given, out: out + made.pop())


def test_a_model_that_hands_on_more_than_hidden_states_goes_the_whole_way(tokenizer):
    config = make_llama(tokenizer, layers=3).config
    torch.manual_seed(0)
    bank = Bank(Skipping(config).eval(), LoraSpec(targets=("q_proj",), layers="last 1"))
    assert bank.head.frozen is None
    trained(bank, items(2))  # and nothing of the attempt is left in its layers


def test_a_model_whose_layers_hand_on_several_streams_goes_the_whole_way(tokenizer):
    torch.manual_seed(0)
    shape = sizes(tokenizer, positions=128, num_key_value_heads=2, head_dim=8, pad_token_id=0)
    shape |= {"intermediate_size": [64] * 2, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0}
    shape |= {"vocab_size_per_layer_input": len(tokenizer), "laurel_rank": 4, "activation_sparsity_pattern": [0.0] * 2}
    config = Gemma3nTextConfig(**shape, layer_types=["sliding_attention", "full_attention"])
    bank = Bank(Gemma3nForCausalLM(config).eval(), LoraSpec(targets=("q_proj",), layers="last 1"))
    assert bank.head.frozen is None
    trained(bank, items(2))


@pytest.mark.parametrize("targets", [("q_proj", "lm_head"), ("q_proj",)])
def test_an_adapted_head_is_above_all_layers(tokenizer, targets):
    bank = Bank(make_gpt2(tokenizer), LoraSpec(targets=("c_attn",), layers="1-1"))
    assert bank.head.frozen is not None
    bank = Bank(make_llama(tokenizer), LoraSpec(targets=targets))
    assert bank.head.frozen is None  # the first layer is adapted


@pytest.mark.parametrize(
    ("layers", "found"), [("all", [0, 1, 2, 3]), ("last 2", [2, 3]), ("1-2", [1, 2]), ("0-0", [0])]
)
def test_layers(tokenizer, layers, found):
    names = target_names(make_llama(tokenizer, layers=4), ("q_proj",), layers)
    assert names == [f"model.layers.{index}.self_attn.q_proj" for index in found]


@pytest.mark.parametrize("layers", ["last 5", "2-4", "3-2"])
def test_layers_that_the_model_does_not_have(tokenizer, layers):
    with pytest.raises(ModelError, match="4 layers"):
        target_names(make_llama(tokenizer, layers=4), ("q_proj",), layers)


def test_targets_outside_of_all_layers_are_in_none(tokenizer):
    with pytest.raises(ModelError, match="no target"):
        target_names(make_llama(tokenizer, layers=4), ("lm_head",), "last 1")


def test_peft_adapts_the_same_layers_and_reads_what_is_written(tokenizer, tmp_path):
    spec = LoraSpec(rank=4, targets=("q_proj", "v_proj"), layers="last 2")
    bank, shard = Bank(make_llama(tokenizer, layers=4), spec), items(3)
    config = LoraConfig(r=4, lora_alpha=32, target_modules=["q_proj", "v_proj"], layers_to_transform=[2, 3])
    theirs = get_peft_model(make_llama(tokenizer, layers=4), config)
    state = random_state(bank, 0)
    assert not set_peft_model_state_dict(theirs, state).unexpected_keys
    bank.load([state])
    bank.route(torch.zeros(3, dtype=torch.long))
    nll, _ = bank.head.token_nll(*collate(shard, CPU))
    torch.testing.assert_close(nll.mean(), theirs.eval()(**hf_batch(shard)).loss, atol=1e-5, rtol=1e-5)
    save_peft(tmp_path, state, spec, "base")
    loaded, found = load_peft(tmp_path)
    assert_same(loaded, state)
    assert target_names(make_llama(tokenizer, layers=4), found.targets) == target_names(
        make_llama(tokenizer, layers=4), spec.targets, spec.layers
    )
