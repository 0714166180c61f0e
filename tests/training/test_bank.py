"""What a bank holds, how slots are filled and read, and what it refuses."""

import math
from contextlib import nullcontext

import pytest
import torch
from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
from torch import nn
from transformers import DistilBertConfig, DistilBertForMaskedLM

from murmura.errors import ModelError
from murmura.streams import Stream
from murmura.training.adapter import MAGNITUDE, crop
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.layer import BankLayer
from murmura.training.loop import train
from murmura.training.targets import target_names
from tests.conftest import make_llama
from tests.training.helpers import assert_same, items, random_residual, random_state

SPEC = LoraSpec(rank=4, alpha=8)


def test_the_manifest_covers_a_row_without_gaps(bank):
    starts = [entry.start for entry in bank.manifest]
    assert starts == [0, *(entry.stop for entry in bank.manifest[:-1])]
    assert bank.size == sum(math.prod(entry.shape) for entry in bank.manifest)
    assert len({entry.name for entry in bank.manifest}) == len(bank.manifest) == 2 * 2 * 2  # layers, targets, factors


def test_a_fresh_adapter_changes_nothing_and_depends_on_its_stream_only(bank):
    state = bank.initial(Stream(0) / "adapter")
    assert_same(bank.initial(Stream(0) / "adapter"), state)
    other = bank.initial(Stream(1) / "adapter")
    for name, tensor in state.items():
        if "lora_B" in name:
            assert not tensor.any()
        else:
            bound = 1 / math.sqrt(tensor.shape[1])  # Kaiming-uniform with a = √5
            assert bound * 0.9 < tensor.abs().max() <= bound
            assert not torch.equal(tensor, other[name])
    ids = torch.tensor([[11, 12, 13]])
    bank.load([state])
    bank.route(torch.zeros(1, dtype=torch.long))
    adapted = bank.model(input_ids=ids).logits
    bank.load([{name: torch.zeros_like(tensor) for name, tensor in state.items()}])
    assert torch.equal(bank.model(input_ids=ids).logits, adapted)


def test_layers_know_how_long_the_rows_of_a_batch_are(bank):
    bank.load([bank.initial(Stream(0))])
    bank.route(torch.zeros(2, dtype=torch.long))
    for length in (3, 5):
        bank.model(input_ids=torch.full((2, length), 11))
        assert bank.routing.length == length


def test_slots_come_back_as_they_were_filled(bank):
    states = [random_state(bank, seed) for seed in range(3)]
    bank.load(states)
    assert bank.slots == 3
    for slot, state in enumerate(states):
        assert_same(bank.read(slot), state)
    bank.load(states[:2])
    assert bank.slots == 2
    assert_same(bank.read(1), states[1])


def test_what_is_read_is_a_copy(bank):
    state = random_state(bank, 0)
    bank.load([state])
    for tensor in bank.read(0).values():
        tensor.zero_()
    assert_same(bank.read(0), state)
    for tensor in state.values():
        tensor.zero_()
    assert any(tensor.any() for tensor in bank.read(0).values())


def test_pack_and_unpack_are_inverse(bank):
    state = random_state(bank, 0)
    vector = bank.pack(state)
    assert vector.shape == (bank.size,)
    assert_same(bank.unpack(vector), state)
    assert torch.equal(bank.pack(dict(reversed(state.items()))), vector)


def test_an_adapter_that_does_not_fit_is_refused(bank):
    state = random_state(bank, 0)
    name = next(iter(state))
    with pytest.raises(ModelError, match=f"does not fit this model: {name}"):
        bank.load([{n: t for n, t in state.items() if n != name}])
    with pytest.raises(ModelError, match="does not fit this model: extra"):
        bank.load([state | {"extra": torch.zeros(1)}])
    with pytest.raises(ModelError, match=r"has shape \(8, 32\), this model needs \(4, 32\)"):
        bank.load([state | {name: torch.zeros(8, 32)}])
    with pytest.raises(ModelError, match=r"one rank, at most lora\.rank"):
        bank.load([state | {name: torch.zeros(2, 32)}])
    with pytest.raises(ModelError, match=r"has shape \(4, 31\), this model needs \(4, 32\)"):
        bank.load([state | {name: torch.zeros(4, 31)}])


def test_all_parameters_need_one_slot_and_float32(llama):
    bank = Bank(llama, None)
    state = bank.initial(Stream(0))
    assert state.keys() == dict(llama.named_parameters()).keys()  # the tied head is named once
    with pytest.raises(ModelError, match="one slot"):
        bank.load([state, state])
    with pytest.raises(ModelError, match="need adapters"), bank.per_example(torch.tensor([0])):
        pass
    with pytest.raises(ModelError, match="there is no A"), bank.trainable("A"):
        pass
    with pytest.raises(ModelError, match="needs float32"):
        Bank(llama.to(torch.bfloat16), None)


def test_loading_all_parameters_reaches_tied_weights(llama):
    bank = Bank(llama, None)
    state = {name: torch.full_like(tensor, 0.01) for name, tensor in bank.initial(Stream(0)).items()}
    bank.load([state])
    assert (llama.lm_head.weight == 0.01).all()
    assert llama.lm_head.weight.data_ptr() == llama.model.embed_tokens.weight.data_ptr()


def test_targets(llama, gpt2, bert):
    assert [name.rpartition(".")[2] for name in target_names(llama, ("v_proj", "q_proj"))] == ["q_proj", "v_proj"] * 2
    assert target_names(llama, ("layers.1.self_attn.q_proj",)) == ["model.layers.1.self_attn.q_proj"]
    assert target_names(llama, ("default",)) == target_names(llama, ("q_proj", "v_proj"))
    assert {name.rpartition(".")[2] for name in target_names(gpt2, ("all-linear",))} == {"c_attn", "c_proj", "c_fc"}
    assert "lm_head" not in target_names(llama, ("all-linear",))
    assert not any(name.startswith("cls") for name in target_names(bert, ("all-linear",)))


def test_a_choice_of_pefts_may_be_a_pattern_of_whole_names(llama, monkeypatch):
    """As for Gemma 4."""
    pattern = r".*\.1\..*\.(q_proj|rotary_emb)"
    monkeypatch.setitem(TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, "llama", pattern)
    assert target_names(llama, ("default",)) == ["model.layers.1.self_attn.q_proj"]


def test_an_output_head_of_another_name_is_one_too(tokenizer):
    model = DistilBertForMaskedLM(
        DistilBertConfig(vocab_size=len(tokenizer), dim=32, n_heads=4, hidden_dim=64, n_layers=1)
    )
    names = target_names(model, ("all-linear",))
    assert "vocab_projector" not in names
    assert "distilbert.transformer.layer.0.attention.q_lin" in names


def test_a_layer_of_linear_attention_is_no_linear_layer(llama):
    class HybridLinearAttentionLayer(nn.Module):
        pass

    llama.model.layers.append(HybridLinearAttentionLayer())
    assert not any(name.endswith("layers.2") for name in target_names(llama, ("all-linear",)))


def test_targets_that_are_not_there_or_not_linear(llama):
    with pytest.raises(ModelError, match="no module of the model is called query") as error:
        Bank(llama, LoraSpec(targets=("query",)))
    assert "q_proj" in error.value.fix
    with pytest.raises(ModelError, match="is a LlamaMLP, not a linear layer"):
        Bank(llama, LoraSpec(targets=("mlp",)))
    llama.config.model_type = "novel"
    with pytest.raises(ModelError, match="no default adapter targets for novel models"):
        target_names(llama, ("default",))


def test_leaving_the_blocks_leaves_no_gradient_behind(bank):
    bank.load([random_state(bank, 0), random_state(bank, 1)])
    before = [bank.read(slot) for slot in (0, 1)]
    with bank.trainable() as parameter:
        assert parameter.shape == (2, bank.size)
        bank.routing.generators = [torch.Generator()]
    with bank.per_example(torch.tensor([1] * 5)) as leaves:
        assert [tuple(leaf.shape) for leaf in leaves] == [(5, *entry.shape) for entry in bank.manifest]
        assert leaves[0].untyped_storage().data_ptr() == bank.flat.untyped_storage().data_ptr()  # no copy
    assert bank.routing.generators is None
    bank.route(torch.tensor([0, 1]))
    out = bank.model(input_ids=torch.tensor([[11, 12], [13, 14]])).logits
    assert not out.requires_grad
    for slot, state in enumerate(before):
        assert_same(bank.read(slot), state)


# ---- one factor frozen --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("frozen", "other"), [("A", "B"), ("B", "A")])
def test_what_trains_while_a_factor_is_frozen(bank, frozen, other):
    names = [entry.name for entry in bank.trained(frozen)]
    assert names == [entry.name for entry in bank.manifest if f"lora_{other}" in entry.name]
    bank.load([random_state(bank, 0)])
    bank.route(torch.tensor([0]))
    with bank.trainable(frozen) as parameter:
        bank.head.token_nll(torch.tensor([[11, 12, 13]]), torch.tensor([[11, 12, 13]]))[0].sum().backward()
        assert parameter.shape == (1, sum(math.prod(entry.shape) for entry in bank.trained(frozen)))
        gradient = bank.unpack(bank.grad[0])
        assert {name for name in gradient if gradient[name].any()} == set(names)
        parameter.data.zero_()
    assert {name for name, tensor in bank.read(0).items() if not tensor.any()} == set(names)


# ---- smaller ranks --------------------------------------------------------------------------------------------------


def test_a_smaller_rank_comes_back_as_it_was_filled(bank):
    states = [random_state(bank, 0), crop(random_state(bank, 1), 2)]
    bank.load(states)
    for slot, state in enumerate(states):
        assert_same(bank.read(slot), state)
    assert bank.padding(0) is None
    assert bank.padding(1).sum() == bank.size / 2
    assert not bank.flat[1][bank.padding(1)].any()


def test_a_smaller_rank_computes_as_in_a_bank_of_that_rank(bank, tokenizer):
    state = crop(random_state(bank, 0), 2)
    small = Bank(make_llama(tokenizer), LoraSpec(rank=2, alpha=SPEC.scale * 2))
    logits = []
    for each in (bank, small):
        each.load([state])
        each.route(torch.tensor([0]))
        logits.append(each.model(input_ids=torch.tensor([[11, 12, 13]])).logits)
    torch.testing.assert_close(*logits)


# ---- residuals ------------------------------------------------------------------------------------------------------

IDS = torch.tensor([[11, 12, 13], [14, 15, 16], [17, 18, 19]])


def merged(bank, tokenizer, state, residual):
    """Logits of IDS with the residual added to the frozen weights themselves."""
    model = make_llama(tokenizer)
    for name, factor in residual.items():
        if ".residual_B." in name:
            layer = model.get_submodule(name.removeprefix("base_model.model.").rpartition(".residual_B")[0])
            layer.weight.data += factor @ residual[name.replace("residual_B", "residual_A")]
    plain = Bank(model, SPEC)
    plain.load([state])
    plain.route(torch.tensor([0, 0, 0]))
    return plain.model(input_ids=IDS).logits


def test_a_residual_changes_the_frozen_weight(bank, tokenizer):
    state, residual = random_state(bank, 0), random_residual(bank, 1)
    bank.load([state | residual])
    bank.route(torch.tensor([0, 0, 0]))
    logits = bank.model(input_ids=IDS).logits
    torch.testing.assert_close(logits, merged(bank, tokenizer, state, residual))
    assert_same(bank.read(0), state)
    bank.load([state])
    assert not torch.allclose(bank.model(input_ids=IDS).logits, logits, atol=1e-3)  # it went with its state


@pytest.mark.parametrize("apart", [False, True], ids=["routed", "per example"])
def test_only_slots_that_came_with_the_residual_have_it(bank, tokenizer, apart):
    first, second, residual = random_state(bank, 0), random_state(bank, 1), random_residual(bank, 2)
    bank.load([first | residual, second, second | {name: tensor.clone() for name, tensor in residual.items()}])
    slots = torch.tensor([2, 0, 1])
    with bank.per_example(slots) if apart else nullcontext():
        if not apart:
            bank.route(slots)
        logits = bank.model(input_ids=IDS).logits.detach()
    expected = [
        merged(bank, tokenizer, state, own)[row]
        for row, (state, own) in enumerate([(second, residual), (first, residual), (second, {})])
    ]
    torch.testing.assert_close(logits, torch.stack(expected), atol=1e-5, rtol=1e-4)


def test_residuals_that_do_not_fit(bank):
    state, residual = random_state(bank, 0), random_residual(bank, 1)
    with pytest.raises(ModelError, match="different residuals"):
        bank.load([state | residual, state | random_residual(bank, 2)])
    name = next(iter(residual))
    with pytest.raises(ModelError, match="one factor only"):
        bank.load([state | {name: residual[name]}])
    with pytest.raises(ModelError, match="belongs to no adapter"):
        bank.load([state | {"base_model.model.elsewhere.residual_A.weight": torch.zeros(1, 1)}])


@torch.no_grad()
@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("slots", [[0, 1, 2, 1], [2, 2, 2, 2], [0, 0, 1, 1], [1, 0]])
def test_stacked_factors_do_what_each_slots_own_do(llama, slots, dora):
    bank = Bank(llama, LoraSpec(rank=4, alpha=8, targets=("q_proj", "down_proj"), dora=dora))
    bank.load([random_state(bank, seed, scale=0.5) for seed in range(3)])
    ids = torch.randint(3, 250, (len(slots), 9), generator=torch.Generator().manual_seed(0))
    bank.route(torch.tensor(slots))
    expected = bank.model(input_ids=ids).logits
    with bank.stacked():
        assert all(layer.stack is not None for layer in bank._layers.values())
        bank.route(torch.tensor(slots))
        torch.testing.assert_close(bank.model(input_ids=ids).logits, expected, atol=1e-5, rtol=1e-5)
    assert all(layer.stack is None for layer in bank._layers.values())
    assert torch.equal(bank.model(input_ids=ids).logits, expected)


def test_factors_that_are_no_numbers_or_too_many_are_not_stacked(llama):
    bank = Bank(llama, LoraSpec(rank=4, alpha=8))
    for count, spoilt in ((1, False), (3, True), (200, False)):
        bank.load([random_state(bank, 0)] * count)
        if spoilt:
            bank.flat[1, 0] = float("inf")
        with bank.stacked():
            assert all(layer.stack is None for layer in bank._layers.values())


# ---- DoRA -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def dora(llama):
    return Bank(llama, SPEC.model_copy(update={"dora": True}))


def lengths(bank):
    """Of the rows of every adapted weight, by hand."""
    return [layer.base.weight.norm(dim=1) for layer in bank._layers.values()]


def test_magnitudes_begin_as_the_lengths_of_rows_and_leave_the_model_as_it_was(dora, tokenizer):
    state = dora.initial(Stream(0))
    magnitudes = [tensor for name, tensor in state.items() if name.endswith(MAGNITUDE)]
    for ours, theirs in zip(magnitudes, lengths(dora), strict=True):
        torch.testing.assert_close(ours, theirs)
    bare = make_llama(tokenizer)(input_ids=IDS).logits
    for same in (state, dora.untrained):
        assert dora.adds_nothing(same)
        dora.load([same])
        dora.route(torch.tensor([0, 0, 0]))
        assert torch.equal(dora.model(input_ids=IDS).logits, bare)
    for part in (".lora_B.weight", MAGNITUDE):
        name = next(name for name in state if name.endswith(part))
        assert not dora.adds_nothing(state | {name: state[name] + 0.1})


def test_lengths_are_measured_when_the_buffer_has_changed_and_no_oftener(dora, monkeypatch):
    measured, measure = [], BankLayer.measure
    monkeypatch.setattr(BankLayer, "measure", lambda layer: measured.append(layer) or measure(layer))
    dora.load([random_state(dora, 0), random_state(dora, 1)])
    for slots in ([0, 1], [1], [0, 0]):
        dora.route(torch.tensor(slots))
    with dora.per_example(torch.tensor([1, 0])), dora.stacked():
        dora.route(torch.tensor([0]))
    assert measured == list(dora._layers.values())
    shards, training = [items(4), items(4, seed=1)], LocalTraining(epochs=1, batch_size=2, tokens_per_pass=1)
    train(dora, shards, [random_state(dora, 0)] * 2, training, 1e-2, [Stream(0), Stream(1)])
    assert len(measured) == (1 + 2) * len(dora._layers)  # two steps, of four passes each


def test_per_example_slots_get_their_own_lengths_and_give_them_back(dora):
    dora.load([random_state(dora, seed) for seed in range(3)])
    dora.route(torch.tensor([2, 0, 1]))
    before = dora.model(input_ids=IDS).logits
    with dora.per_example(torch.tensor([2, 0, 1])):
        torch.testing.assert_close(dora.model(input_ids=IDS).logits.detach(), before, atol=1e-5, rtol=1e-4)
    dora.route(torch.tensor([2, 0, 1]))
    assert torch.equal(dora.model(input_ids=IDS).logits, before)


@pytest.mark.parametrize(("frozen", "trained"), [("A", {"lora_B", MAGNITUDE[1:]}), ("B", {"lora_A"})])
def test_magnitudes_are_frozen_with_b(dora, frozen, trained):
    names = [entry.name for entry in dora.trained(frozen)]
    assert {part for part in ("lora_A", "lora_B", MAGNITUDE[1:]) if any(part in name for name in names)} == trained
    columns = dora.columns(frozen)
    assert columns.stop - columns.start == sum(math.prod(entry.shape) for entry in dora.trained(frozen))


def test_a_smaller_rank_has_magnitudes_of_all_rows(dora, tokenizer):
    state = crop(random_state(dora, 0), 2)
    small = Bank(make_llama(tokenizer), LoraSpec(rank=2, alpha=SPEC.scale * 2, dora=True))
    logits = []
    for each in (dora, small):
        each.load([random_state(each, 1), state])
        assert_same(each.read(1), state)
        each.route(torch.tensor([1]))
        logits.append(each.model(input_ids=IDS[:1]).logits)
    torch.testing.assert_close(*logits)
    magnitudes = sum(entry.shape[0] for entry in dora.manifest if entry.name.endswith(MAGNITUDE))
    assert dora.padding(1).sum() == (dora.size - magnitudes) / 2


def test_a_residual_has_no_place_beside_magnitudes(dora):
    with pytest.raises(ModelError, match="beside DoRA"):
        dora.load([random_state(dora, 0) | random_residual(dora, 1)])
