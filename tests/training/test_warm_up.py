import pytest
import torch

from murmura.streams import Stream
from murmura.training.config import LocalTraining
from murmura.training.loop import batches
from murmura.training.warm_up import Moments, warm_up
from tests.training.helpers import EPS, assert_close, hf_batch, items, random_residual, random_state

TRAINING = LocalTraining(lr=0.01, schedule="constant", epochs=2, batch_size=4, clip=0, eps=EPS, betas=(0.8, 0.99))


def by_hand(bank, records, start, rates):
    """The same with transformers' own loss and torch's own AdamW; its weights and state after each epoch."""
    bank.load([start])
    kept = []
    with bank.trainable() as parameter:
        optimizer = torch.optim.AdamW([parameter], betas=TRAINING.betas, eps=EPS, weight_decay=0)
        for step, chosen in enumerate(batches(len(records), TRAINING, Stream(3))):
            bank.grad.zero_()
            bank.route(torch.zeros(len(chosen), dtype=torch.long))
            bank.model(**hf_batch([records[i] for i in chosen])).loss.backward()
            optimizer.param_groups[0]["lr"] = rates[step]
            optimizer.step()
            if step % 3 == 2:
                state = optimizer.state[parameter]
                kept.append((bank.read(0), state["exp_avg"][0].clone(), state["exp_avg_sq"][0].clone()))
    return kept


def test_every_epoch_keeps_adapter_and_moments_as_torch_s_adamw_has_them(bank):
    records, start = items(10), random_state(bank, 0)
    found = warm_up(bank, records, start, TRAINING, Stream(3))
    rates = [0.01 * share for share in (1, 1, 4 / 5, 3 / 5, 2 / 5, 1 / 5)]  # 3 % of six steps are one
    for ours, (state, mean, square) in zip(found, by_hand(bank, records, start, rates), strict=True):
        assert_close(ours.state, state, atol=1e-5)
        torch.testing.assert_close(ours.moments.mean, mean, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(ours.moments.square, square, atol=1e-8, rtol=1e-3)
        assert ours.moments.betas == (0.8, 0.99)
    assert [milestone.rate for milestone in found] == pytest.approx([0.01 * 2.8 / 3, 0.01 * 1.2 / 3])


def test_the_rate_rises_first_and_never_is_zero(bank):
    """Of 40 steps, two rise; a warm-up of a single record moves too."""
    training = LocalTraining(lr=1.0, epochs=40, batch_size=1, eps=1e6)  # next to no step is taken
    rates = [m.rate for m in warm_up(bank, items(1), random_state(bank, 0), training, Stream(0))]
    assert rates == pytest.approx([0.5, 1.0, *((40 - step) / 38 for step in range(2, 40))])
    [only] = warm_up(bank, items(1), random_state(bank, 0), LocalTraining(lr=0.5, batch_size=1), Stream(0))
    assert only.rate == 0.5


def test_a_residual_stays_with_the_adapter(bank):
    start = {**random_state(bank, 0), **(residual := random_residual(bank, 1))}
    [only] = warm_up(bank, items(2), start, LocalTraining(batch_size=2, eps=EPS), Stream(0))
    assert only.state.keys() == start.keys()
    assert all(only.state[name] is tensor for name, tensor in residual.items())


def test_the_direction_is_the_step_that_torch_s_adamw_would_take():
    """Without bias correction, which fades with the number of steps, and with ε inside the root."""
    generator = torch.Generator().manual_seed(0)
    mean, gradients = torch.randn(7, generator=generator), torch.randn(3, 7, generator=generator)
    square = mean.square() + torch.rand(7, generator=generator)
    found = Moments(mean, square, (0.9, 0.999)).direction(gradients.clone())
    for ours, gradient in zip(found, gradients, strict=True):
        weight = torch.nn.Parameter(torch.zeros(7))
        optimizer = torch.optim.AdamW([weight], lr=1.0, betas=(0.9, 0.999), eps=0, weight_decay=0)
        moments = {"exp_avg": mean.clone(), "exp_avg_sq": square.clone()}
        optimizer.state[weight] = {"step": torch.tensor(1e6), **moments}
        weight.grad = gradient.clone()
        optimizer.step()
        torch.testing.assert_close(ours, -weight.detach(), atol=1e-6, rtol=1e-5)


def test_where_nothing_has_moved_yet_epsilon_alone_is_under_the_root():
    zero = torch.zeros(2)
    found = Moments(zero, zero, (0.9, 0.999)).direction(torch.tensor([[0.0, 1e-3]]))
    assert found.tolist() == [[0.0, pytest.approx(1e-4 / (1e-3 * 1e-6 + 1e-8) ** 0.5)]]
