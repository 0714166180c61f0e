"""Rules under which a site that sends anything does little harm: against brute force, and in a run."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from scipy.stats import trim_mean

from murmura.aggregation.choosing import rule
from murmura.aggregation.config import AggregationConfig
from murmura.errors import ConfigError, RunError
from murmura.experiment.run import run
from murmura.federation.site.cohort import Cohort
from murmura.streams import Stream
from tests.experiment import small

NAMES = {"layer.lora_A.weight": (2, 3), "layer.lora_B.weight": (4, 2)}
NUMBERS = 14
KINDS = {
    "median": {"kind": "median"},
    "trimmed-mean": {"kind": "trimmed-mean", "liars": 1},
    "krum": {"kind": "krum", "liars": 1},
    "multi-krum": {"kind": "krum", "liars": 1, "chosen": 3},
    "norm-bound": {"kind": "norm-bound", "norm": 1.0},
}


def made(options):
    return rule(AggregationConfig.parse({"rule": options}, "test"))


def state(numbers):
    first, second = torch.as_tensor(numbers, dtype=torch.float32).split([6, 8])
    return dict(zip(NAMES, (first.view(2, 3), second.view(4, 2)), strict=True))


def flat(state):
    return torch.cat([state[name].flatten() for name in NAMES]).double().numpy()


def step(options, rows, current=None, weights=None):
    current = state(torch.zeros(NUMBERS)) if current is None else state(current)
    contributions = zip(map(state, rows), weights or [1.0] * len(rows), strict=True)
    return flat(made(options).step(current, contributions, scale=2.0, round=1, stream=Stream(0)))


def rows_of(count, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=(count, NUMBERS)), dtype=torch.float32)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_the_median_is_numpys(count):
    rows = rows_of(count)
    np.testing.assert_allclose(step(KINDS["median"], rows), np.median(rows.double().numpy(), axis=0), rtol=1e-6)


@pytest.mark.parametrize(("count", "liars"), [(3, 1), (8, 1), (8, 3), (10, 2)])
def test_the_trimmed_mean_is_scipys(count, liars):
    rows = rows_of(count)
    expected = trim_mean(rows.double().numpy(), liars / count + 1e-9, axis=0)
    np.testing.assert_allclose(step({"kind": "trimmed-mean", "liars": liars}, rows), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("count", "liars", "chosen"), [(5, 1, 1), (7, 2, 1), (9, 2, 4), (9, 3, 6)])
def test_krum_is_what_the_definition_says(count, liars, chosen):
    rows = rows_of(count).double().numpy()
    scores = [
        min(sum(((rows[i] - rows[j]) ** 2).sum() for j in others) for others in combinations(rest, count - liars - 2))
        for i in range(count)
        for rest in [[j for j in range(count) if j != i]]
    ]
    expected = rows[np.argsort(scores, kind="stable")[:chosen]].mean(axis=0)
    found = step({"kind": "krum", "liars": liars, "chosen": chosen}, rows_of(count))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_no_site_moves_the_adapter_further_than_the_bound():
    rows, current = rows_of(4) * torch.tensor([[0.01], [1], [100], [1e6]]), rows_of(1, seed=1)[0]
    found = step(KINDS["norm-bound"], rows + current, current) - current.double().numpy()
    changes = ((rows + current).double() - current.double()).numpy()
    norms = np.linalg.norm(changes, axis=1, keepdims=True)
    np.testing.assert_allclose(found, (changes / np.maximum(norms, 1)).mean(axis=0), rtol=1e-4, atol=1e-6)
    assert np.linalg.norm(found) <= 1 + 1e-6


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(KINDS)), st.integers(5, 9), st.integers(0, 2**20), st.randoms(use_true_random=False))
def test_neither_order_nor_claimed_weights_matter(kind, count, seed, random):
    rows, order = rows_of(count, seed), list(range(count))
    random.shuffle(order)
    weights = [random.choice([1.0, 1e6]) for _ in range(count)]
    np.testing.assert_allclose(step(KINDS[kind], rows), step(KINDS[kind], rows[order], weights=weights), atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["median", "trimmed-mean"]), st.integers(3, 9), st.integers(0, 2**20), st.floats(-1e30, 1e30))
def test_one_liar_moves_no_number_beyond_those_of_the_honest(kind, count, seed, lie):
    honest = rows_of(count - 1, seed)
    found = step(KINDS[kind], torch.cat([honest, torch.full((1, NUMBERS), lie)]))
    low, high = honest.double().numpy().min(axis=0), honest.double().numpy().max(axis=0)
    assert (found >= low - 1e-6).all() and (found <= high + 1e-6).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(5, 9), st.integers(0, 2**20), st.floats(50, 1e15))
def test_krum_never_takes_what_is_far_from_all(count, seed, lie):
    honest = rows_of(count - 1, seed)
    found = step(KINDS["krum"], torch.cat([torch.full((1, NUMBERS), lie), honest]))
    assert any(np.allclose(found, row, atol=1e-6) for row in honest.double().numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_uploads_in_parts_come_to_the_same_bits_as_all_at_once(kind, monkeypatch):
    made_rule, seen = made(KINDS[kind]), []
    monkeypatch.setattr("murmura.aggregation.robust._AT_ONCE", 64)
    change = made_rule.change
    monkeypatch.setattr(made_rule, "change", lambda changes: seen.append(changes.shape[1]) or change(changes))
    draw = torch.Generator().manual_seed(0)
    current, *sent = [
        {"a": torch.randn(7, 19, generator=draw), "b": torch.randn(23, 9, generator=draw)} for _ in range(34)
    ]
    found = made_rule.step(current, [(one, 1.0) for one in sent], scale=2.0, round=1, stream=Stream(0))
    base, *rows = (torch.cat([one["a"].double().flatten(), one["b"].double().flatten()]) for one in (current, *sent))
    moved = (base + change(torch.stack([row - base for row in rows]))).float()
    assert torch.equal(torch.cat([found["a"].flatten(), found["b"].flatten()]), moved)
    assert seen == ([64] * 5 + [20] if kind in ("median", "trimmed-mean") else [340])


MANY = {"kind": "krum", "liars": 1, "chosen": 6}


@pytest.mark.parametrize(
    ("rule", "least"), [(KINDS["trimmed-mean"], 3), (KINDS["krum"], 5), (KINDS["multi-krum"], 5), (MANY, 7)]
)
def test_too_few_sites_are_told(rule, least):
    """Of more uploads than all but the liars, a mean has that of a liar."""
    step(rule, rows_of(least))
    with pytest.raises(RunError, match=f"needs {least}"):
        step(rule, rows_of(least - 1))


@pytest.mark.parametrize("kind", KINDS)
def test_an_upload_that_does_not_fit_is_told_by_its_number(kind):
    current, uploads = state(torch.zeros(NUMBERS)), [(state(row), 1.0) for row in rows_of(5)]

    def stepped(third):
        mixed = [*uploads[:2], (third, 1.0), *uploads[3:]]
        made(KINDS[kind]).step(current, mixed, scale=2.0, round=1, stream=Stream(0))

    [name, other] = NAMES
    for third, why in (
        ({name: current[name]}, f"'{other}' is missing"),
        ({**current, "c": current[name]}, "'c' is not expected"),
        ({**current, name: current[name].T}, "has shape"),
        ({**current, name: current[name] / 0}, "holds a NaN"),
    ):
        with pytest.raises(RunError, match=why) as refused:
            stepped(third)
        assert refused.value.where == "contribution 3"


@pytest.mark.parametrize(
    ("aggregation", "told"),
    [
        ({"rule": "median", "secure": True}, "needs what each site sends"),
        ({"rule": "median", "ranks": [1, 2]}, "'ranks' does not go with rule 'median'"),
        ({"rule": "median", "local": "scaffold"}, "'scaffold' does not go with rule 'median'"),
        ({"rule": "median", "server": "fedadam"}, "server 'fedadam'"),
        ({"rule": {"kind": "krum", "norm": 1.0}}, "norm"),
        ({"rule": {"kind": "norm-bound"}}, "norm"),
    ],
)
def test_what_does_not_go_with_them_is_refused(aggregation, told):
    with pytest.raises(ConfigError, match=told):
        AggregationConfig.parse(aggregation, "test")


@pytest.fixture
def lying(tmp_path, llama_folder, monkeypatch):
    """A run of five sites, one of which sends its adapter a thousand times as large, and the other way round."""
    small.write_data(tmp_path, dict.fromkeys(("heart", "skin", "lung", "ear", "eye"), 3))
    honest = Cohort.uploads

    def uploads(self, states):
        found = honest(self, states)
        return [
            {name: tensor * -1000 for name, tensor in sent.items()} if site.name == "heart" else sent
            for site, sent in zip(self.sites, found, strict=True)
        ]

    def go(lies, **aggregation):
        if lies:
            monkeypatch.setattr(Cohort, "uploads", uploads)
        sections = {"aggregation": aggregation} if aggregation else {}
        name = f"{lies} {aggregation}"
        made = small.experiment(
            tmp_path,
            llama_folder,
            run={"folder": str(tmp_path / name)},
            evaluation={"sample": 1, "uploads": 0, "attacks": False},
            **sections,
        )
        return load_file(run(made).folder / "adapter" / "adapter_model.safetensors")

    return go


def apart(one, other):
    return float(torch.cat([(one[name] - other[name]).flatten() for name in other]).norm())


def test_a_liar_does_harm_under_the_mean_and_little_under_these_rules(lying, no_page):
    honest = lying(False)
    length = apart(honest, {name: torch.zeros_like(tensor) for name, tensor in honest.items()})
    assert apart(lying(True), honest) > 100 * length
    for options in KINDS.values():
        assert apart(lying(True, rule=options), honest) < length / 2, options


def test_a_run_with_too_few_sites_is_refused_before_it_begins(tmp_path, llama_folder):
    small.write_data(tmp_path)
    with pytest.raises(ConfigError, match="needs 5 answers in a round, and 2 sites are asked"):
        run(small.experiment(tmp_path, llama_folder, aggregation={"rule": KINDS["krum"]}))


@pytest.mark.parametrize("uploads", [0, 1])  # sums alone, and single replies
@pytest.mark.parametrize("aggregation", [{}, {"server": "fedadam"}, {"rule": "flexlora"}])
def test_what_is_no_such_adapter_is_left_out_by_the_name_of_its_site(
    tmp_path, llama_folder, monkeypatch, uploads, aggregation, no_page
):
    small.write_data(tmp_path, {"heart": 3, "skin": 3, "lung": 3})
    honest = Cohort.uploads

    def cut(self, states):
        found = honest(self, states)
        return [
            {name: tensor[:1] for name, tensor in sent.items()} if site.name == "skin" else sent
            for site, sent in zip(self.sites, found, strict=True)
        ]

    monkeypatch.setattr(Cohort, "uploads", cut)
    evaluation = {"sample": 1, "uploads": uploads, "attacks": bool(uploads)}
    made = small.experiment(tmp_path, llama_folder, {"rounds": 1}, aggregation=aggregation, evaluation=evaluation)
    [event] = run(made).rows[-1]["events"]
    assert event.startswith("the answer of site skin to 'train' is left out: '") and "has shape" in event
