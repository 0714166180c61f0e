"""Aggregation rules: what the next global adapter means, against dense matrices; what travels; what is refused."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.aggregation.choosing import rule
from murmura.aggregation.config import AggregationConfig
from murmura.errors import RunError
from murmura.federation.traits import RULES
from murmura.streams import Stream
from murmura.training.adapter import MAGNITUDE, crop, fresh, split_residual
from murmura.training.config import LoraSpec
from tests.aggregation.adapters import (
    NAMES,
    R,
    State,
    adapter,
    assert_close,
    effect,
    factor,
    made,
    mean_effect,
    sites,
    start,
    step,
    trained,
)
from tests.training.helpers import assert_same

EXACT = ("fedex", "flora")
BOTH_TRAVEL = ("mean", "fedex", "flora", "flexlora", "fair")

seeds = st.integers(0, 10**6)
scales = st.sampled_from([1.0, 2.0, LoraSpec(rank=R, alpha=5, rslora=True).scale])
weights = st.floats(0.1, 100)
equal = st.lists(st.tuples(st.just(R), weights), min_size=1, max_size=5)
unequal = st.lists(st.tuples(st.integers(1, R), weights), min_size=1, max_size=5)


# ---- what the next adapter means -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(seeds, st.sampled_from(BOTH_TRAVEL), st.integers(1, R), weights, scales)
def test_one_site_leaves_its_weights_as_they_were(seed: int, name: str, rank: int, weight: float, scale: float) -> None:
    state = adapter(seed, rank)
    after = step(made(name), start(), [(state, weight)], scale)
    assert_close(effect(after, scale), effect(state, scale), 1e-4)
    if name in ("mean", "fedex"):
        assert_same(crop(after, rank), state)  # not even a residual of zeros


@settings(deadline=None, max_examples=25)
@given(seeds, st.sampled_from(EXACT), unequal, scales)
def test_exact_rules_over_rounds(
    seed: int, name: str, ranks_and_weights: list[tuple[int, float]], scale: float
) -> None:
    """Each round adds what the sites' adapters mean, with what the residual held before; however many rounds."""
    current, ours = start(), made(name)
    before = {module: torch.zeros_like(dense) for module, dense in effect(current, scale).items()}
    for round in range(1, 5):
        contributions = sites(seed + 10 * round, ranks_and_weights)
        current = step(ours, current, contributions, scale, round)
        expected = {module: before[module] + dense for module, dense in mean_effect(contributions, scale).items()}
        assert_close(effect(current, scale), expected, 1e-3)
        adapter_only, residual = split_residual(current)
        before = {module: expected[module] - dense for module, dense in effect(adapter_only, scale).items()}
        for module in NAMES:
            if factor(module, "residual_A") in residual:
                A, B = residual[factor(module, "residual_A")], residual[factor(module, "residual_B")]
                assert len(A) == B.shape[1] <= min(A.shape[1], len(B))


def test_a_residual_is_no_larger_than_what_it_holds() -> None:
    """Deviations from a mean add up to zero, so those of K sites of rank 1 have rank K − 1 together."""
    for count, most in (1, 0), (2, 1), (3, 2):
        after = step(made("fedex"), start(), sites(0, [(1, 1.0 + k) for k in range(count)]))
        _, residual = split_residual(after)
        assert [len(residual[factor(m, "residual_A")]) for m in NAMES] == [most, most] if most else not residual


def test_flora_starts_adapters_afresh() -> None:
    after = step(made("flora"), adapter(5), sites(0, [(R, 1.0), (2, 2.0)]))
    plain, _ = split_residual(after)
    assert_same(plain, fresh({name: tensor.shape for name, tensor in adapter(0, R).items()}, Stream(1)))


@settings(deadline=None, max_examples=25)
@given(seeds, st.sampled_from(EXACT), st.integers(1, 4), st.integers(0, 4))
def test_a_truncated_residual_is_the_best_of_its_rank(seed: int, name: str, rank: int, before: int) -> None:
    """Of what was held before and what is new, together."""
    wide = ((20, 30), (25, 20))  # wide enough for no residual to be compressed for its size
    contributions = [(adapter(seed + k, 2, sizes=wide), float(k)) for k in (1, 2, 3)]
    current = adapter(seed, R, sizes=wide, residual=before)
    after = step(made(name, residual_rank=rank), current, contributions)
    plain, residual = split_residual(after)
    for module, dense in mean_effect(contributions, 2.0).items():
        old = effect(current, 2.0)[module] - effect(split_residual(current)[0], 2.0)[module]
        missed = old + dense - effect(plain, 2.0)[module]
        kept = residual[factor(module, "residual_B")].double() @ residual[factor(module, "residual_A")].double()
        values = torch.linalg.svdvals(missed)
        assert float((missed - kept).norm()) == pytest.approx(float(values[rank:].norm()), rel=1e-4, abs=1e-4)
        assert len(residual[factor(module, "residual_A")]) == rank


@settings(deadline=None, max_examples=25)
@given(seeds, unequal, scales)
def test_flexlora_is_the_best_approximation_for_every_rank(
    seed: int, ranks_and_weights: list[tuple[int, float]], scale: float
) -> None:
    contributions = sites(seed, ranks_and_weights)
    after = step(made("flexlora"), start(), contributions, scale)
    for module, dense in mean_effect(contributions, scale).items():
        for rank in range(1, R + 1):  # as sites of that rank get it
            ours = effect(made("flexlora").download(after, rank, 2), scale)[module]
            values = torch.linalg.svdvals(dense)
            # Where two singular values are alike there is more than one best approximation, but one least distance.
            least = float(values[rank:].norm())
            assert float((dense - ours).norm()) == pytest.approx(least, rel=1e-4, abs=1e-4 * float(values[0]))


def test_flexlora_keeps_rows_that_can_still_be_trained() -> None:
    current = adapter(9, R)
    after = step(made("flexlora"), current, [(adapter(0, 1), 1.0)])
    for module in NAMES:
        A, B = after[factor(module, "lora_A")], after[factor(module, "lora_B")]
        assert torch.equal(A[1:], current[factor(module, "lora_A")][1:])
        assert not B[:, 1:].any()


def test_flexlora_of_untrained_sites_changes_nothing() -> None:
    assert_same(step(made("flexlora"), start(), [(start(), 1.0), (start(), 2.0)]), start())


@settings(deadline=None, max_examples=25)
@given(seeds, unequal, st.floats(1e-3, 10))
def test_fair_is_the_ridge_solution(seed: int, ranks_and_weights: list[tuple[int, float]], ridge: float) -> None:
    """min over ΔB of ‖W* − (B̄ + ΔB)Ā‖² + λ‖ΔB‖², as one dense least-squares problem."""
    contributions = sites(seed, ranks_and_weights)
    mean = step(made("mean"), start(), contributions)
    after = step(made("fair", ridge=ridge), start(), contributions)
    for module, dense in mean_effect(contributions, 1.0).items():
        a, b = factor(module, "lora_A"), factor(module, "lora_B")
        A, B = mean[a].double(), mean[b].double()
        left = torch.cat([A.T, math.sqrt(ridge) * torch.eye(len(A), dtype=torch.float64)])
        right = torch.cat([(dense - B @ A).T, torch.zeros(len(A), len(B), dtype=torch.float64)])
        change = torch.linalg.lstsq(left, right, driver="gelsd").solution.T
        torch.testing.assert_close(after[b].double(), B + change, atol=1e-4, rtol=1e-4)
        assert torch.equal(after[a], mean[a])


@settings(deadline=None, max_examples=25)
@given(seeds, unequal, scales)
def test_error_of_the_mean_is_the_covariance(
    seed: int, ranks_and_weights: list[tuple[int, float]], scale: float
) -> None:
    """Σ p_k B_k A_k − B̄Ā = Σ p_k (B_k − B̄)(A_k − Ā), with zeros up to the largest rank."""
    contributions = sites(seed, ranks_and_weights)
    after = step(made("mean"), start(), contributions, scale)
    total = sum(weight for _, weight in contributions)
    for module, dense in mean_effect(contributions, scale).items():
        a, b = factor(module, "lora_A"), factor(module, "lora_B")
        covariance = torch.zeros_like(dense)
        for state, weight in contributions:
            A, B = -after[a].double(), -after[b].double()
            A[: len(state[a])] += state[a]
            B[:, : len(state[a])] += state[b]
            covariance += scale * weight / total * B @ A
        torch.testing.assert_close(dense - effect(after, scale)[module], covariance, atol=1e-4, rtol=1e-4)


@settings(deadline=None, max_examples=25)
@given(seeds, st.sampled_from(["ffa", "rolora"]), st.lists(weights, min_size=1, max_size=5), st.booleans())
def test_rules_with_a_common_factor_make_no_error(seed: int, name: str, shares: list[float], cropped: bool) -> None:
    ours, current = made(name), start()
    ranks = tuple(1 + k % R for k in range(len(shares))) if cropped else ()
    for round in range(1, 5):
        states = trained(ours, current, seed + 10 * round, len(shares), round, ranks)
        expected = mean_effect(list(zip(states, shares, strict=True)), 2.0)
        uploads = [(ours.upload(state, round), weight) for state, weight in zip(states, shares, strict=True)]
        current = step(ours, current, uploads, round=round)
        assert_close(effect(current, 2.0), expected, 1e-4)


def test_padding_with_unequal_ranks_shrinks_what_only_some_sites_have() -> None:
    """A site without a row of A counts as one with zeros there, as in the plain mean."""
    ours, current = made("rolora"), adapter(0, 2)
    part = {name: tensor[:1] + 1 for name, tensor in current.items() if ".lora_A." in name}
    after = step(ours, current, [(part, 1.0)], round=2)
    for module in NAMES:
        A = after[factor(module, "lora_A")]
        assert torch.equal(A[:1], current[factor(module, "lora_A")][:1] + 1)
        assert not A[1:].any()


@settings(deadline=None, max_examples=25)
@given(seeds, st.sampled_from(sorted(RULES)), equal, st.floats(1e-3, 1e3), st.randoms(use_true_random=False))
def test_order_of_sites_and_scale_of_weights_do_not_matter(
    seed: int, name: str, ranks_and_weights: list[tuple[int, float]], factor_of_weights: float, random: object
) -> None:
    ours, current = made(name), adapter(seed - 1, R)
    uploads = [(ours.upload(state, 1), weight) for state, weight in sites(seed, ranks_and_weights)]
    after = step(ours, current, uploads)
    other = [(state, factor_of_weights * weight) for state, weight in uploads]
    random.shuffle(other)  # type: ignore[attr-defined]
    assert_close(effect(step(ours, current, other), 2.0), effect(after, 2.0), 1e-3)


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_contribution_counts_by_its_weight(name: str) -> None:
    """Weight 3 is the same as three sites of weight 1."""
    ours, current = made(name), adapter(9, R)
    one, other = (ours.upload(adapter(seed), 1) for seed in (0, 1))
    weighed = step(ours, current, [(one, 3.0), (other, 1.0)])
    repeated = step(ours, current, [(one, 1.0), (other, 1.0), (one, 1.0), (one, 1.0)])
    assert_close(effect(weighed, 2.0), effect(repeated, 2.0), 1e-4)


# ---- DoRA ------------------------------------------------------------------------------------------------------------


def turned(seed: int, rank: int = R) -> State:
    """An adapter with magnitudes, which come first so that nothing goes by the order."""
    outer = {module: len(tensor) for module in NAMES for tensor in [adapter(seed)[factor(module, "lora_B")]]}
    generator = torch.Generator().manual_seed(seed + 1000)
    own = {f"base_model.model.{name}{MAGNITUDE}": torch.rand(n, generator=generator) for name, n in outer.items()}
    return own | adapter(seed, rank)


@pytest.mark.parametrize(
    ("name", "round", "down", "up"),
    [
        ("mean", 1, "ABm", "ABm"),
        ("ffa", 1, "Bm", "Bm"),
        ("rolora", 1, "ABm", "Bm"),
        ("rolora", 2, "ABm", "A"),
        ("fedsa", 1, "A", "A"),
        ("median", 1, "ABm", "ABm"),
    ],
)
def test_magnitudes_go_where_b_goes(name: str, round: int, down: str, up: str) -> None:
    def parts(state: State) -> str:
        kinds = {"A": ".lora_A.", "B": ".lora_B.", "m": MAGNITUDE}
        return "".join(letter for letter, kind in kinds.items() if any(kind in name for name in state))

    ours, current = made(name), turned(0)
    ranks = [2] if name in ("mean", "ffa", "rolora") else [None]
    for rank in [None, *ranks]:
        sent = ours.download(current, rank, round)
        assert parts(sent) == down
        begun = ours.complete(sent, turned(5))
        for part in current:
            whole = current if part in sent else turned(5)
            assert torch.equal(begun[part], (whole if rank is None else crop(whole, rank))[part])
    uploads = [(ours.upload(turned(seed), round), weight) for seed, weight in ((1, 1.0), (2, 3.0))]
    assert parts(uploads[0][0]) == up
    after = step(ours, current, uploads, round=round)
    for part in (part for part in current if part.endswith(MAGNITUDE)):
        one, other = turned(1)[part], turned(2)[part]
        mean = (one + other) / 2 if name == "median" else (one + 3 * other) / 4
        torch.testing.assert_close(after[part], mean if "m" in up else current[part])


# ---- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(RULES))
def test_no_matrix_of_the_size_of_the_weight(name: str) -> None:
    """With 200,000 inputs and outputs it would be 320 GB."""
    side = 200_000
    ours = made(name)
    states = [adapter(seed, 4, sizes=((side, side),)) for seed in range(3)]
    current = ours.step(
        states[0], [(ours.upload(state, 1), 1.0) for state in states[1:]], scale=1.0, round=1, stream=Stream(0)
    )
    assert len(current[factor(NAMES[0], "lora_A")]) == 4
    if name in EXACT:
        residual = current[factor(NAMES[0], "residual_A")]
        assert residual.shape == (4 if name == "fedex" else 8, side)


@pytest.mark.parametrize("name", sorted(RULES))
def test_uploads_are_dropped_as_they_are_read(name: str) -> None:
    ours, alive, most = made(name), weakref.WeakSet[torch.Tensor](), 0

    def arriving() -> Iterator[tuple[State, float]]:
        nonlocal most
        for seed in range(50):
            state = ours.upload(adapter(seed), 1)
            alive.update(state.values())
            most = max(most, len(alive))
            yield state, 1.0
            del state

    ours.step(start(), arriving(), scale=1.0, round=1, stream=Stream(0))
    assert most <= 2 * len(start())  # the one that is read, and the one before


# ---- what travels ----------------------------------------------------------------------------------------------------


def kinds(state: State) -> set[str]:
    return {name.split(".")[-2] for name in state}


@pytest.mark.parametrize(
    ("name", "round", "frozen", "down", "up"),
    [
        ("mean", 1, None, "AB", "AB"),
        ("ffa", 1, "A", "B", "B"),
        ("ffa", 2, "A", "B", "B"),
        ("rolora", 1, "A", "AB", "B"),
        ("rolora", 2, "B", "AB", "A"),
        ("rolora", 3, "A", "AB", "B"),
        ("fedsa", 1, None, "A", "A"),
        ("fedex", 1, None, "AB", "AB"),
        ("flora", 1, None, "AB", "AB"),
        ("flexlora", 1, None, "AB", "AB"),
        ("fair", 1, None, "AB", "AB"),
    ],
)
def test_what_is_trained_and_what_travels(name: str, round: int, frozen: str | None, down: str, up: str) -> None:
    ours, state = made(name), adapter(0)
    assert ours.frozen(round) == frozen
    assert ours.personal == (name == "fedsa")
    assert kinds(ours.download(state, None, round)) == {f"lora_{kind}" for kind in down}
    assert kinds(ours.upload(state, round)) == {f"lora_{kind}" for kind in up}
    assert_same(ours.complete(ours.upload(state, round), state), state)
    with_residual = adapter(0, residual=2)
    residual = {"residual_A", "residual_B"}
    assert kinds(ours.download(with_residual, 2, round)) == {f"lora_{kind}" for kind in down} | residual


def test_a_frozen_factor_never_changes() -> None:
    ours, current = made("ffa"), start()
    for round in range(1, 4):
        states = trained(ours, current, round, 3, round)
        after = step(ours, current, [(ours.upload(state, round), 1.0) for state in states], round=round)
        for module in NAMES:
            assert torch.equal(after[factor(module, "lora_A")], start()[factor(module, "lora_A")])
            assert not torch.equal(after[factor(module, "lora_B")], current[factor(module, "lora_B")])
        current = after


def test_fedsa_shares_a_and_leaves_b() -> None:
    ours, own = made("fedsa"), adapter(7)
    uploads = [(ours.upload(adapter(seed), 1), 1.0) for seed in range(2)]
    after = step(ours, adapter(9), uploads)
    site = ours.complete(ours.download(after, None, 2), own)
    for module in NAMES:
        a, b = factor(module, "lora_A"), factor(module, "lora_B")
        torch.testing.assert_close(site[a], (adapter(0)[a] + adapter(1)[a]) / 2)
        assert torch.equal(site[b], own[b])


def test_a_site_of_smaller_rank_gets_and_sends_its_part() -> None:
    ours, current = rule(AggregationConfig(rule="ffa", ranks=(2, 3))), start()
    assert ours.ranks == (2, 3)
    sent = ours.download(current, 2, 1)
    begun = ours.complete(sent, current)
    assert_same(begun, crop(current, 2))
    after = step(ours, current, [(ours.upload(begun, 1), 1.0)])
    assert {name: tensor.shape for name, tensor in after.items()} == {n: t.shape for n, t in current.items()}


def test_a_part_brings_no_old_residual_with_it() -> None:
    ours, current = made("fedex"), adapter(0, residual=2)
    newer = adapter(0, residual=4)
    assert_same(ours.complete(ours.download(newer, None, 1), current), newer)


def test_full_parameters_are_averaged() -> None:
    after = step(made("mean"), {"w": torch.zeros(2)}, [({"w": torch.ones(2)}, 3.0), ({"w": -torch.ones(2)}, 1.0)])
    assert_same(after, {"w": torch.full((2,), 0.5)})


# ---- what is refused -------------------------------------------------------------------------------------------------


def damaged(change: str) -> State:
    state, a = adapter(1), factor(NAMES[0], "lora_A")
    if change == "module missing":
        return {name: tensor for name, tensor in state.items() if NAMES[1] not in name}
    if change == "module added":
        return state | {name.replace("up", "down"): tensor for name, tensor in state.items()}
    if change == "not finite":
        state[a][0, 0] = math.nan
        return state
    if change == "rank too large":
        return adapter(1, R + 1)
    if change == "factors of different ranks":
        return state | {a: state[a][:2]}
    return state | {a: state[a][:, :-1]}  # another model


@pytest.mark.parametrize("name", BOTH_TRAVEL)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("module missing", "layers.1.up.lora_A.weight' is missing"),
        ("module added", "layers.1.down.lora_A.weight' is not expected"),
        ("not finite", "holds a NaN"),
        ("rank too large", "has rank 4, above the run's 3. Raise lora.rank"),
        ("factors of different ranks", "has rank 2, its B has 3"),
        ("another model", r"has shape \(3, 6\), expected \(3, 7\)"),
    ],
)
def test_uploads_that_do_not_fit(name: str, change: str, message: str) -> None:
    with pytest.raises(RunError, match=rf"contribution 2: .*{message}"):
        step(made(name), start(), [(adapter(0), 1.0), (damaged(change), 1.0)])


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_weights_that_are_none(name: str, weight: float) -> None:
    ours = made(name)
    with pytest.raises(RunError, match=r"contribution 1: the weight .* is not a positive finite number"):
        step(ours, start(), [(ours.upload(adapter(0), 1), weight)])


@pytest.mark.parametrize("name", sorted(RULES))
def test_nobody_replied(name: str) -> None:
    with pytest.raises(RunError, match="nothing to average"):
        step(made(name), start(), [])


@pytest.mark.parametrize("name", ["ffa", "rolora", "fedsa"])
def test_a_factor_that_was_not_to_travel(name: str) -> None:
    with pytest.raises(RunError, match="is not expected"):
        step(made(name), start(), [(adapter(0), 1.0)])
