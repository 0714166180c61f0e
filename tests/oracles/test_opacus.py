"""Gradients of single examples and whole private steps against Opacus, and one backward pass for each example."""

from functools import partial

import pytest
import torch
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

from murmura.privacy.clipping import ExampleClipping
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import FullParticipation
from murmura.streams import Stream
from murmura.training.bank import Bank
from murmura.training.batch import collate
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.loop import train
from murmura.training.private import Private, PrivateStep
from tests.conftest import make_gpt2, make_llama
from tests.training.helpers import CPU, EPS, Told, assert_close, hf_batch, items, peft_of, random_state

RECORDS = items(8)
LR = 0.5
MODELS = {
    "llama": (make_llama, LoraSpec(rank=4, alpha=8, targets=("q_proj", "v_proj", "down_proj"))),
    "gpt2": (make_gpt2, LoraSpec(rank=4, alpha=8, targets=("c_attn", "c_proj"))),
}
WRAPPERS = {
    "hooks": (GradSampleModule, DPOptimizer, {}),
    "ghost": (GradSampleModuleFastGradientClipping, DPOptimizerFastGradientClipping, {"use_ghost_clipping": True}),
}


@pytest.fixture(params=MODELS)
def world(request, tokenizer):
    """A bank with two slots, and the PEFT model with the adapter of slot 1."""
    make, spec = MODELS[request.param]
    bank = Bank(make(tokenizer), spec)
    bank.load([random_state(bank, seed) for seed in (1, 2)])
    return bank, peft_of(make(tokenizer), spec, bank.read(1), transposed=bank.fan_in_fan_out).train()


# ---- examples apart -------------------------------------------------------------------------------------------------


def per_example(bank, slots):
    """The gradient of each record's mean token loss, [8, *shape] by name."""
    ids, labels = collate(RECORDS, CPU)
    with bank.per_example(torch.tensor(slots)) as leaves:
        nll, row = bank.head.token_nll(ids, labels)
        gradients = torch.autograd.grad((nll / torch.bincount(row)[row]).sum(), leaves)
        return {entry.name: gradient for entry, gradient in zip(bank.manifest, gradients, strict=True)}


def record_losses(wrapped, records):
    """Each record's mean token loss, as an application of Opacus computes it."""
    batch = hf_batch(records)
    labels = batch.pop("labels")[:, 1:]
    positions = torch.arange(labels.shape[1] + 1).expand(len(records), -1)  # it needs every input by row
    logits = wrapped(**batch, position_ids=positions).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return losses.sum(1) / (labels != -100).sum(1)


def by_our_names(wrapped, attribute):
    return {
        name.removeprefix("_module.").replace(".default", ""): getattr(parameter, attribute)
        for name, parameter in wrapped.named_parameters()
        if parameter.requires_grad
    }


def norms(gradients):
    return torch.cat([gradient.flatten(1) for gradient in gradients.values()], dim=1).norm(dim=1)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_gradients_and_norms_are_those_of_opacus(world):
    bank, peft = world
    wrapped = GradSampleModule(peft, loss_reduction="sum")
    record_losses(wrapped, RECORDS).sum().backward()
    ours, theirs = per_example(bank, [1] * 8), by_our_names(wrapped, "grad_sample")
    assert_close(ours, theirs, atol=1e-6)
    torch.testing.assert_close(norms(ours), norms(theirs), atol=1e-5, rtol=1e-4)
    assert norms(ours).min() > 0.01


@pytest.mark.parametrize("slots", [[0] * 8, [1] * 8, [0, 1, 1, 0, 1, 0, 0, 0]])
def test_each_is_what_its_record_gives_alone(world, slots):
    bank, _ = world
    together = per_example(bank, slots)
    for k, (record, slot) in enumerate(zip(RECORDS, slots, strict=True)):
        bank.route(torch.tensor([slot]))
        with bank.trainable():
            nll, _ = bank.head.token_nll(*collate([record], CPU))
            nll.mean().backward()
            alone = bank.unpack(bank.grad[slot].clone())
        assert_close({name: gradient[k] for name, gradient in together.items()}, alone, atol=1e-6)


# ---- clipped sums and whole steps -----------------------------------------------------------------------------------


def opacus(peft, way, records, parts, norm, std, optimizer=torch.optim.SGD):
    """The model after one step of Opacus over records that come in so many parts."""
    wrap, private, options = WRAPPERS[way]
    options = {**options, "max_grad_norm": norm} if way == "ghost" else options
    wrapped = wrap(peft, loss_reduction="mean", **options)
    parameters = [parameter for parameter in wrapped.parameters() if parameter.requires_grad]
    noise = {"noise_multiplier": std, "max_grad_norm": norm, "generator": torch.Generator().manual_seed(5)}
    batch = {"expected_batch_size": len(records), "loss_reduction": "mean"}
    stepper = private(optimizer(parameters, lr=LR), **noise, **batch)
    size = len(records) // parts
    for part in range(parts):
        stepper.zero_grad()
        losses = record_losses(wrapped, records[part * size : (part + 1) * size])
        if way == "ghost":
            DPTensorFastGradientClipping(wrapped, stepper, losses, "mean").backward()
        else:
            losses.mean().backward()
        stepper.signal_skip_step(part + 1 < parts)
        stepper.step()
    return wrapped


def plan(norm, std=0.0):
    return PrivacyPlan("record", "zero-out", FullParticipation(), ExampleClipping(norm), GaussianNoise(std), 1, 1e-5)


@pytest.fixture
def norm(world):
    """A clipping norm that half of the records exceed."""
    found = norms(per_example(world[0], [1] * 8))
    assert found.max() > 1.5 * found.min()
    return found.median().item()


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("way", WRAPPERS)
def test_clipped_sums_without_noise_are_those_of_opacus(world, norm, way, parts):
    bank, peft = world
    theirs = by_our_names(opacus(peft, way, RECORDS, parts, norm, 0.0), "summed_grad")
    training = LocalTraining(tokens_per_pass=1024 if parts == 1 else 40)
    bank.load([bank.read(1)])
    privacy = Private([plan(norm)], [Told()])
    step = PrivateStep(bank, [RECORDS], training, [Stream(0)], None, privacy=privacy, frozen=None)
    with bank.trainable():
        step.gradients({0: list(range(8))}, 0)
        sums = bank.unpack(bank.grad[0] * 8)
    assert_close(sums, theirs, atol=2e-6)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("way", WRAPPERS)
def test_a_whole_step_with_its_noise_is_that_of_opacus(fine_grid, world, norm, way, optimizer):
    bank, peft = world
    start, std = bank.read(1), 0.7
    kind = {"sgd": torch.optim.SGD, "adamw": partial(torch.optim.AdamW, eps=EPS)}[optimizer]
    theirs = {n: p.detach() for n, p in by_our_names(opacus(peft, way, RECORDS, 2, norm, std, kind), "data").items()}
    generator = torch.Generator().manual_seed(5)  # as Opacus drew it, tensor by tensor
    noise = {name: torch.normal(0.0, std * norm, tensor.shape, generator=generator) for name, tensor in theirs.items()}
    told = Told(bank.pack(noise) / (std * norm))
    training = LocalTraining(optimizer=optimizer, **{"weight_decay": 0.01, "eps": EPS} if optimizer == "adamw" else {})
    result = train(bank, [RECORDS], [start], training, LR, [Stream(0)], privacy=Private([plan(norm, std)], [told]))[0]
    assert_close(result.state, theirs, atol=1e-4 * LR)
