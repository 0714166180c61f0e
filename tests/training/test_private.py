"""Private training: which records, how they are clipped, what is added, and what is written down."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from murmura.errors import ModelError, PrivacyError
from murmura.privacy.clipping import BatchClipping, ExampleClipping, SiteClipping
from murmura.privacy.entropy import OSEntropy
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.mechanisms.tree import TreeNoise
from murmura.privacy.observation import Observation
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import FixedSizeSampling, FullParticipation, PoissonSampling
from murmura.streams import Stream
from murmura.training import by_example, private
from murmura.training.adapter import crop
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.loop import train
from murmura.training.private import Private, PrivateStep
from murmura.training.step import Step
from tests.privacy.attack import given_away, of_sites
from tests.privacy.plans import Rehearsed
from tests.training.helpers import EPS, Item, Told, assert_close, assert_same, items, random_state
from tests.training.private_runs import LR, SGD, SPEC, alike, moved, plan, run, secret


@pytest.fixture(params=[False, True], ids=["lora", "dora"])
def either(llama, request):
    return Bank(llama, SPEC.model_copy(update={"dora": request.param}))


# ---- without clipping and noise, plain training ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clip", "shard"), [(ExampleClipping, alike(5)), (BatchClipping, items(5))], ids=["examples", "batches"]
)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_with_all_records_it_is_gradient_descent(llama, clip, shard, dropout):
    bank = Bank(llama, SPEC.model_copy(update={"dropout": dropout}))
    start, streams = random_state(bank, 0), [Stream(0, (0,))]
    training = LocalTraining(optimizer="sgd", momentum=0.9, clip=0, epochs=3, batch_size=5)
    plain = train(bank, [shard], [start], training, LR, streams)[0]
    ours = run(bank, [shard], [plan(clip=clip)], training, starts=[start])[0]
    assert (ours.steps, ours.loss) == (3, None)
    assert_close(ours.state, plain.state, atol=1e-6)


# ---- many sites at once --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [ExampleClipping, BatchClipping])
@pytest.mark.parametrize(("optimizer", "frozen"), [("sgd", None), ("adamw", None), ("sgd", "A"), ("sgd", "B")])
def test_sites_together_are_sites_alone(fine_grid, bank, clip, optimizer, frozen):
    shards = [items(7, seed=1), items(12, seed=2), items(5, seed=3)]
    plans = [
        plan(PoissonSampling(0.5), norm=0.2, std=0.3, clip=clip),
        plan(PoissonSampling(0.25), norm=0.05, groups=2, std=0.1, clip=clip),
        plan(FixedSizeSampling(3, 5), norm=0.1, std=0.2, clip=clip),
    ]
    training = LocalTraining(
        optimizer=optimizer, epochs=2, tokens_per_pass=100, **{"eps": EPS} if optimizer == "adamw" else {}
    )
    together = run(bank, shards, plans, training, frozen=frozen, lr=0.01)
    assert [result.steps for result in together] == [4, 8, 4]
    for k, result in enumerate(together):
        start = {"starts": [random_state(bank, k)], "entropy": [secret(k)]}
        alone = run(bank, [shards[k]], [plans[k]], training, **start, frozen=frozen, lr=0.01)[0]
        assert_close(result.state, alone.state, atol=1e-6, rtol=0)
        assert result.spent == alone.spent


@pytest.mark.parametrize("tokens", [1, 60, 10_000])
@pytest.mark.parametrize("most", [1, 3 * 896, 2**26])
def test_how_rows_are_grouped_changes_no_result(bank, monkeypatch, tokens, most):
    shards = [items(6, seed=1), items(4, seed=2)]
    plans = [plan(norm=0.1), plan(norm=0.1, groups=2)]
    whole = run(bank, shards, plans, SGD)
    monkeypatch.setattr(by_example, "GRADIENTS", most)
    assert bank.size == 896
    parts = run(bank, shards, plans, SGD.model_copy(update={"tokens_per_pass": tokens}))
    for ours, theirs in zip(parts, whole, strict=True):
        assert_close(ours.state, theirs.state, atol=1e-6)


def test_bfloat16_stays_close(bank):
    plans = [plan(norm=0.1), plan(norm=0.1, groups=2)]
    exact, half = (
        run(bank, [items(4), items(3)], plans, SGD.model_copy(update={"precision": precision}))
        for precision in ("float32", "bfloat16")
    )
    for ours, theirs in zip(half, exact, strict=True):
        assert_close(ours.state, theirs.state, atol=0.1 * LR * 0.1)
        assert any(not torch.equal(ours.state[name], theirs.state[name]) for name in ours.state)


def test_a_site_without_records_does_nothing(bank):
    start = random_state(bank, 1)
    results = run(bank, [items(2), []], [plan(), plan(PoissonSampling(0.5), std=1.0)])
    assert (results[1].steps, results[1].spent) == (0, [])
    assert_same(results[1].state, start)


# ---- clipping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [ExampleClipping, BatchClipping])
@pytest.mark.parametrize("groups", [1, 2])
def test_what_one_record_can_do_has_the_norm_of_the_plan(either, clip, groups):
    bank = either
    norm, start = 0.01, random_state(bank, 0)
    result = run(bank, [items(1)], [plan(norm=norm, groups=groups, clip=clip)], starts=[start])[0]
    gradient = moved(bank, result, start)
    A, B = (gradient[bank.columns(frozen=other)] for other in ("B", "A"))
    assert len(A) + len(B) == bank.size  # magnitudes are with B
    if groups == 1:
        assert gradient.norm().item() == pytest.approx(norm, rel=1e-3)
        assert min(A.norm(), B.norm()) < 0.99 * norm
    else:
        assert [A.norm().item(), B.norm().item()] == pytest.approx([norm, norm], rel=1e-3)


def test_a_short_gradient_stays_as_it_is(bank):
    start = random_state(bank, 0)
    free = moved(bank, run(bank, [items(1)], [plan()], starts=[start])[0], start)
    clipped = run(bank, [items(1)], [plan(norm=2 * free.norm().item())], starts=[start])[0]
    torch.testing.assert_close(moved(bank, clipped, start), free)


def test_each_record_is_clipped_by_itself(bank):
    start, shard = random_state(bank, 0), items(4)
    weights = [1.0, 1.0, 1.0, 1000.0]  # the last one, left alone, would be all that counts
    alone = [
        moved(bank, run(bank, [[record]], [plan(norm=0.01)], starts=[start], weights=[[weight]])[0], start)
        for record, weight in zip(shard, weights, strict=True)
    ]
    together = run(bank, [shard], [plan(norm=0.01)], starts=[start], weights=[weights])[0]
    torch.testing.assert_close(moved(bank, together, start), sum(alone) / 4, atol=1e-6, rtol=1e-3)


@pytest.fixture(scope="module")
def wide(tokenizer):
    """Of a model's largest adapters one A, and its B: 64 x 14,336 numbers and few."""
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 14336, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **shape)).eval()
    return Bank(model, LoraSpec(rank=64, alpha=64, targets=("down_proj",)))


@pytest.mark.parametrize("clip", [ExampleClipping, BatchClipping])
@pytest.mark.parametrize("large", [slice(32), slice(None, None, 32), slice(0)], ids=["first", "every-32nd", "none"])
def test_a_gradient_of_a_million_numbers_is_no_longer_than_c(wide, monkeypatch, clip, large):
    """Beside a large square most of each small one is rounded away where squares add up in float32, and beside the sum
    of many, too: then A's norm came out too small by up to 1.7e-3."""
    gradient = torch.zeros(wide.size)
    A = gradient[wide.columns(frozen="B")]
    A.fill_((0.98 * 2**-25) ** 0.5)
    A[large] = 1.0
    parts = [gradient[entry.start : entry.stop].view(1, *entry.shape) for entry in wide.manifest]
    left, release = [], PrivateStep._release

    def noted(self, slot):
        left.append((self.bank.grad if self.summed is None else self.summed)[slot].double())
        release(self, slot)

    monkeypatch.setattr(PrivateStep, "_release", noted)
    monkeypatch.setattr(private, "by_example", lambda *_: [([0], parts)])
    monkeypatch.setattr(Step, "gradients", lambda self, *_: self.bank.grad.copy_(gradient))
    norm = 0.01
    seen = run(wide, [items(1)], [plan(norm=norm, clip=clip)])[0].spent[0].observed
    [clipped] = left
    share = clipped.square().sum().sqrt().item() / norm
    assert 1 - 1.2e-5 < share < 1 - 8.4e-6
    assert seen.before * norm == pytest.approx(gradient.double().square().sum().sqrt().item(), rel=1.2e-6)
    assert seen.after == pytest.approx(share, rel=2e-7)


@pytest.fixture
def sums(monkeypatch):
    """The slots' sums as they are before noise, step by step."""
    found, release = [], PrivateStep._release

    def noted(self, slot):
        found.append(self.summed[slot].clone())
        release(self, slot)

    monkeypatch.setattr(PrivateStep, "_release", noted)
    return found


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_record_less_moves_the_sum_by_c_at_most_however_records_share_passes(either, sums, precision, groups):
    bank = either
    """How others' gradients are rounded depends on their company: by 0.6 % of C in bfloat16, 1e-6 of it in float32."""
    norm, start, protected = 0.01, random_state(bank, 0), plan(norm=0.01, groups=groups)
    for seed in range(4):
        shard = items(8, seed=seed, longest=64)
        for tokens in (100, 1000):
            training = SGD.model_copy(update={"precision": precision, "tokens_per_pass": tokens})
            for kept in (shard, shard[1:]):
                run(bank, [kept], [protected], training, starts=[start])
    for whole, rest in zip(torch.stack(sums[::2]).split(2), torch.stack(sums[1::2]).split(2), strict=True):
        apart = torch.cdist(whole, rest)  # the same records, grouped in any two ways
        assert 0.9 * norm < apart.min() and apart.max() < norm * groups**0.5


def test_alone_in_its_pass_a_record_has_one_gradient_whatever_its_company(bank, sums):
    start = random_state(bank, 0)
    for precision in ("float32", "bfloat16"):
        sums.clear()
        training = SGD.model_copy(update={"precision": precision, "tokens_per_pass": 1})
        for seed in range(3):
            shard = items(2, seed=seed, longest=64)
            for kept in (shard, shard[:1], shard[1:]):
                run(bank, [kept], [plan(norm=0.01)], training, starts=[start])
        for both, first, second in zip(sums[::3], sums[1::3], sums[2::3], strict=True):
            assert torch.equal(both, first + second)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_no_adapter_that_a_server_makes_up_carries_rounding_from_one_record_to_others(bank, sums, precision):
    """With such a B, a record in the same pass moved the others together by more than half of C."""
    generator = torch.Generator().manual_seed(1)
    made_up = {
        entry.name: (10 if entry.factor == "A" else 1e6) * torch.randn(entry.shape, generator=generator)
        for entry in bank.manifest
    }
    training, shard = SGD.model_copy(update={"precision": precision}), items(16, seed=1, longest=64)
    for kept in (shard, *([one] for one in shard)):
        run(bank, [kept], [plan(norm=0.01)], training, starts=[made_up], entropy=[OSEntropy()])
    whole, *alone = sums
    assert (whole - sum(alone)).norm() < 1e-5 * 0.01 < whole.norm()


@pytest.mark.parametrize("gone", ["blanked", "removed"])
@pytest.mark.parametrize("record", [0, 2])
def test_a_record_less_moves_the_sum_by_one_clipped_gradient_at_most(llama, gone, record):
    """With dropout too: nobody else's masks may depend on it."""
    bank, norm, shard = Bank(llama, SPEC.model_copy(update={"dropout": 0.3})), 0.01, items(5)
    blank = Item(shard[record].ids[:4], [-100] * 4)
    others = [*shard[:record], *([blank] if gone == "blanked" else []), *shard[record + 1 :]]
    start = random_state(bank, 0)
    sums = []
    for kept in (shard, others):
        result = run(bank, [kept], [plan(norm=norm)], starts=[start], entropy=[Rehearsed(Stream(8))])[0]
        sums.append(len(kept) * moved(bank, result, start))
    assert 0.9 * norm < (sums[0] - sums[1]).norm() < norm * (1 + 1e-3)


def test_dropout_masks_are_secret_and_new_in_every_step(llama):
    bank = Bank(llama, SPEC.model_copy(update={"dropout": 0.3}))
    seeds = []
    for entropy in (OSEntropy(), OSEntropy(), Rehearsed(Stream(8))):
        privacy = Private([plan()], [entropy])
        source = private.PrivateStep(bank, [items(2)], SGD, [Stream(0)], None, privacy=privacy, frozen=None)
        for step in (0, 1):
            rows = source.rows({0: [0, 1]}, step)
            seeds += [source.dropout_stream(rows, row, step).integer() for row in (0, 1)]
    assert len(set(seeds)) == 12


# ---- sampling and noise ----------------------------------------------------------------------------------------------


def test_the_sum_is_divided_by_the_expected_batch(bank):
    """Not by the size that a Poisson batch happens to have, which is secret."""
    start, shard = random_state(bank, 0), items(8)
    drawn = Private([plan(PoissonSampling(0.25))], [secret("x")]).batches(0, 8, SGD)[0]
    assert len(drawn) not in (0, 2)
    training = SGD.model_copy(update={"max_steps": 1})
    ours = run(bank, [shard], [plan(PoissonSampling(0.25))], training, starts=[start], entropy=[secret("x")])[0]
    each = [moved(bank, run(bank, [[shard[i]]], [plan()], starts=[start])[0], start) for i in drawn]
    torch.testing.assert_close(moved(bank, ours, start), sum(each) / 2, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize(("clip", "share"), [(ExampleClipping, 2.0), (BatchClipping, 1.0)])
def test_an_empty_batch_leaves_the_noise_alone(fine_grid, bank, clip, share):
    start, noise = random_state(bank, 0), torch.randn(bank.size, generator=torch.Generator().manual_seed(1))

    class Nobody(Told):
        def uniform(self, count):
            return torch.full((count,), 0.9).numpy()

    protected = plan(PoissonSampling(0.5), norm=0.1, std=3.0, clip=clip)
    training = SGD.model_copy(update={"max_steps": 1})
    result = run(bank, [items(4)], [protected], training, starts=[start], entropy=[Nobody(noise)])[0]
    torch.testing.assert_close(moved(bank, result, start), 0.3 * noise / share, atol=1e-6, rtol=1e-4)
    assert result.spent[0].steps == 1


@pytest.mark.parametrize("clip", [ExampleClipping, BatchClipping])
@pytest.mark.parametrize("source", [OSEntropy, secret])
def test_the_noise_has_the_planned_variance(bank, clip, source):
    """Records that say nothing leave the noise: its mean, variance and tails, and that no two entries go together."""
    sites, norm, std, batch = 48, 0.2, 1.5, 3
    start = random_state(bank, 0)
    plans = [plan(FixedSizeSampling(batch, batch), norm=norm, std=std, clip=clip)] * sites
    entropy = [source() if source is OSEntropy else source(k) for k in range(sites)]
    nothing = {"starts": [start] * sites, "weights": [[0.0] * batch] * sites}
    results = run(bank, [items(batch)] * sites, plans, entropy=entropy, lr=1.0, **nothing)
    noise = torch.stack([moved(bank, result, start, 1.0) for result in results]).double()
    noise /= norm * std / (batch if clip is ExampleClipping else 1)
    count = noise.numel()
    assert abs(noise.mean()) < 5 / count**0.5
    assert abs(noise.var() - 1) < 5 * (2 / count) ** 0.5
    assert abs((noise.abs() > 2).double().mean() - 0.0455) < 5 * (0.0455 / count) ** 0.5
    assert abs((noise[1:] * noise[:-1]).mean()) < 5 / count**0.5  # from site to site
    assert abs((noise[:, 1:] * noise[:, :-1]).mean()) < 5 / count**0.5  # from entry to entry
    A, B = (noise[:, bank.columns(frozen=other)] for other in ("B", "A"))
    assert A.var().item() == pytest.approx(B.var().item(), rel=0.05)


def test_a_step_rules_no_record_out(bank):
    """Whoever has the adapters has the noisy gradient of a step of SGD, divided by a number that is known."""
    protected = plan(PoissonSampling(0.5), norm=0.1, std=2.0)
    exact = [sum.float() for sum in of_sites(bank.size)]

    def release(sum, entropy):
        bank.load([bank.untrained])
        step = PrivateStep(
            bank, [items(4)], SGD, [Stream(0)], None, privacy=Private([protected], [entropy]), frozen=None
        )
        step._seen = [Observation()]
        with bank.trainable():
            step.summed = sum[None]
            step._release(0)
            return bank.grad[0].clone()

    assert given_away(release, exact, 0.2, divisor=2) == [0, 0]


def test_a_record_less_moves_a_sum_of_thousands_by_c_at_most(bank, sums, monkeypatch):
    """All alike, so that float32 would round many additions the same way."""
    alike = [torch.randn(1, *entry.shape, generator=torch.manual_seed(0)) for entry in bank.trained(None)]

    def one_by_one(bank, items, *_):
        yield from (([row], alike) for row in range(len(items)))

    monkeypatch.setattr(private, "by_example", one_by_one)
    for number in (2048, 2047):
        run(bank, [items(1) * number], [plan(norm=0.01)], starts=[random_state(bank, 0)])
    whole, less = sums
    assert 0.9999 < float((whole - less).norm()) / 0.01 <= 1 - 0.9e-5


def test_noise_does_not_come_from_the_runs_seed(bank):
    shards, plans, start = [items(3)], [plan(norm=0.1, std=1.0)], [random_state(bank, 0)]
    first, again = (run(bank, shards, plans, starts=start, entropy=[OSEntropy()])[0].state for _ in range(2))
    assert all(not torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize(("frozen", "other"), [("A", "B"), ("B", "A")])
def test_a_frozen_factor_has_no_noise_and_no_part_in_the_norm(bank, frozen, other):
    start, training = random_state(bank, 0), LocalTraining(weight_decay=0.1, epochs=2)
    noisy = run(bank, [items(3)], [plan(norm=0.1, std=1.0)], training, starts=[start], frozen=frozen, prox=1.0)[0]
    for name, tensor in noisy.state.items():
        assert torch.equal(tensor, start[name]) == (f"lora_{frozen}" in name)
    clipped = run(bank, [items(1)], [plan(norm=0.01)], starts=[start], frozen=frozen)[0]
    assert moved(bank, clipped, start).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_a_smaller_rank_gets_noise_of_its_own_size(bank):
    starts = [crop(random_state(bank, 0), 2), random_state(bank, 1)]
    results = run(bank, [items(3)] * 2, [plan(norm=0.1, std=1.0)] * 2, LocalTraining(epochs=2), starts=starts)
    for result, start in zip(results, starts, strict=True):
        assert {name: tensor.shape for name, tensor in result.state.items()} == {n: t.shape for n, t in start.items()}
        assert all((result.state[name] != start[name]).all() for name in start)
    assert not bank.flat[0][bank.padding(0)].any()


# ---- what is written down, and what is refused ----------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [PoissonSampling(2 / 7), FixedSizeSampling(2, 7), FullParticipation()])
def test_a_ledger_accepts_what_was_done(bank, sampler):
    protected = plan(sampler, norm=0.1, std=2.0, steps=16)
    ledger = PrivacyLedger(protected)
    for round in range(2):
        done = run(bank, [items(7)], [protected], LocalTraining(epochs=2), entropy=[Rehearsed(Stream(round))])[0]
        ledger.record(round, done.spent)
    steps = 4 if sampler == FullParticipation() else 16
    assert ledger.steps == steps
    assert ledger.epsilon().value == protected.epsilon(steps).value


@pytest.mark.parametrize("bad", [float("nan"), 1e37], ids=["loss", "gradient"])
@pytest.mark.parametrize("tokens", [1, 10_000], ids=["apart", "together"])
def test_a_record_whose_gradient_is_not_finite_counts_as_zero(bank, bad, tokens):
    """In silence: neither its own site nor those beside it stop, and their sums are as if it were blank."""
    shards = [items(4, seed=k) for k in range(3)]
    weights = [[[1.0] * 4, [1.0, weight, 1.0, 1.0], [1.0] * 4] for weight in (bad, 0.0)]
    training = SGD.model_copy(update={"tokens_per_pass": tokens})
    spoilt, blank = (run(bank, shards, [plan(norm=0.1)] * 3, training, weights=each) for each in weights)
    for ours, theirs in zip(spoilt, blank, strict=True):
        assert_same(ours.state, theirs.state)
    assert [result.spent[0].observed.not_finite for result in spoilt] == [0, 1, 0]
    assert all(0 < result.spent[0].observed.before < 1e9 for result in spoilt)


@pytest.mark.parametrize("bad", [float("nan"), 1e37], ids=["loss", "gradient"])
def test_a_batch_whose_gradient_is_not_finite_counts_as_zero(bank, bad):
    starts = [random_state(bank, k) for k in range(2)]
    plans = [plan(norm=0.1, clip=BatchClipping)] * 2
    spoilt = run(bank, [items(2)] * 2, plans, starts=starts, weights=[[1.0, 1.0], [1.0, bad]])
    assert_same(spoilt[1].state, starts[1])
    assert [result.spent[0].observed.not_finite for result in spoilt] == [0, 1]
    assert moved(bank, spoilt[0], starts[0]).norm() == pytest.approx(0.1, rel=1e-3)


def test_all_parameters_have_no_record_level_privacy(llama):
    bank = Bank(llama, None)
    start = bank.initial(Stream(0))
    for sites in (1, 2):
        with pytest.raises(PrivacyError, match="needs an adapter") as error:
            run(bank, [items(2)] * sites, [plan()] * sites, starts=[start] * sites)
        assert "trainable = 'adapter'" in error.value.fix
    with pytest.raises(ModelError, match="there is no A"):
        train(bank, [items(2)], [start], SGD, LR, [Stream(0)], frozen="A")


def test_plans_that_are_not_for_local_training(bank):
    sites = PrivacyPlan("site", "zero-out", FullParticipation(), SiteClipping(1.0), GaussianNoise(1.0), 5, 1e-5)
    tree = PrivacyPlan("record", "zero-out", FullParticipation(), ExampleClipping(1.0), TreeNoise(1.0, 4), 5, 1e-5)
    refused = {
        "protects records, not whole sites": [sites],
        "has no tree noise": [tree],
        "has no 3 groups": [plan(groups=3)],
        "some sites clip examples": [plan(), plan(clip=BatchClipping)],
    }
    for words, plans in refused.items():
        with pytest.raises(PrivacyError, match=words):
            Private(plans, [Told()] * len(plans))
    with pytest.raises(PrivacyError, match="1 plans for 2 sources"):
        Private([plan()], [Told(), Told()])


def test_a_plan_for_other_data(bank):
    with pytest.raises(PrivacyError, match="the plan is for 6 units, and there are 7"):
        run(bank, [items(7)], [plan(FixedSizeSampling(2, 6))])
    with pytest.raises(PrivacyError, match="1 privacy plans for 2 sites"):
        run(bank, [items(2)] * 2, [plan()], entropy=[Told()])
