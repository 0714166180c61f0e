"""Whole runs with DoRA: under every rule and method that it goes with, and what it does not go with."""

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from murmura.aggregation.config import PRODUCTS, SecureSumConfig
from murmura.errors import ConfigError, ModelError
from murmura.experiment.export import export
from murmura.experiment.run import run
from murmura.experiment.summing import require_range
from murmura.experiment.trained import Trained
from murmura.experiment.validate import method_of
from murmura.federation.site.cohort import Cohort
from murmura.federation.wire.layout import Agreement
from murmura.streams import Stream
from murmura.training.adapter import MAGNITUDE, load_peft
from tests.experiment.small import WRITING, context
from tests.training.helpers import assert_close, assert_same

QUIET = {"attacks": False, "uploads": 0, "sample": 1, "every": 9}
IDS = torch.tensor([[3, 5, 7, 11]])
RUNS = {
    "mean": ({}, {}),
    "ffa": ({}, {"rule": "ffa"}),
    "rolora": ({}, {"rule": "rolora"}),
    "fedsa": ({}, {"rule": "fedsa"}),
    "median": ({}, {"rule": "median"}),
    "norm-bound": ({}, {"rule": {"kind": "norm-bound", "norm": 1.0}}),
    "unequal ranks": ({}, {"ranks": [2, 1]}),
    "fedprox, fedadam": ({}, {"local": "fedprox", "server": "fedadam"}),
    "scaffold": ({}, {"local": "scaffold"}),
    "int8": ({}, {"travel": "int8"}),
    "bfloat16": ({}, {"travel": "bfloat16"}),
    "fewfedpit": ({"name": "fewfedpit", **WRITING}, {}),
    "fewfedweight": ({"name": "fewfedweight", "answer_tokens": 8, "error_records": 2}, {}),
    "cmfl": ({"name": "cmfl"}, {}),
    "dplora": ({"name": "dplora", "noise_multiplier": 0.5, "groups": "factors"}, {}),
    "dplora, paper": ({"name": "dplora", "preset": "paper", "noise_multiplier": 0.01, "noise_on": "weights"}, {}),
    "dpfedavg": ({"name": "dpfedavg", "noise_multiplier": 0.5}, {"rule": "rolora"}),
    "dpftrl": ({"name": "dpftrl", "noise_multiplier": 0.5}, {}),
}


@pytest.fixture
def asked(make, no_page):

    def made(method=None, aggregation=None, lora=None, **sections):
        quiet = {"aggregation": aggregation or {}, "evaluation": QUIET, "run": {"decode_dtype": "model"}}
        return make(method, lora={"dora": True, **(lora or {})}, **{**quiet, **sections})

    return made


def adapters(folder):
    return [load_peft(path.parent) for path in sorted(folder.rglob("adapter_config.json"))]


def moved(state, start, part):
    """Whether tensors whose names hold this are not what they began as."""
    names = [name for name in state if part in name]
    assert names
    return any(not torch.equal(state[name], start[name]) for name in names)


QUICK = ("mean", "ffa", "rolora", "fedsa", "unequal ranks", "dplora")


@pytest.mark.parametrize(
    ("method", "aggregation"),
    [pytest.param(*parts, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, parts in RUNS.items()],
)
def test_a_run_trains_magnitudes_and_leaves_what_peft_loads(asked, llama_folder, method, aggregation):
    experiment = asked(method, aggregation)
    result = run(experiment)
    start = context(experiment).runtime("server").initial(Stream(0) / "adapter")
    left = adapters(result.folder)
    assert left
    for state, spec in left:
        assert spec.dora and state.keys() == start.keys()
        assert moved(state, start, MAGNITUDE) and moved(state, start, ".lora_B.")
        assert moved(state, start, ".lora_A.") == (aggregation.get("rule") != "ffa")
    for path in sorted(result.folder.rglob("adapter_config.json")):
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(llama_folder), path.parent)
        trained = Trained.load(result.folder, path.parent.name if len(left) > 1 else None)
        bank = trained.runtime.bank
        bank.load([trained.after])
        bank.route(torch.tensor([0]))
        with torch.no_grad():
            torch.testing.assert_close(bank.model(IDS).logits, model(IDS).logits, atol=1e-4, rtol=1e-4)


def test_a_run_that_is_resumed_ends_as_one_that_was_not_stopped(asked, monkeypatch):
    experiment = asked({"rounds": 3}, lora={"dropout": 0.2})
    whole = adapters(run(experiment).folder)[0][0]
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr("murmura.federation.site.cohort.Cohort.uploads", stopped_in(3))
        run(experiment, overwrite=True)
    again = adapters(run(experiment, resume=True).folder)[0][0]
    assert_same(again, whole)


def stopped_in(round):
    """``Cohort.uploads``, until a round."""
    uploads = Cohort.uploads

    def stopping(cohort, trained):
        if cohort.round == round:
            raise MemoryError
        return uploads(cohort, trained)

    return stopping


@pytest.mark.slow
def test_worker_processes_give_the_same(asked, tmp_path, forked_workers):
    found = [
        adapters(run(asked(run={"engine": engine, "folder": str(tmp_path / engine)})).folder)[0][0]
        for engine in ("local", "processes")
    ]
    assert_close(*found, atol=1e-6)


def test_a_merged_model_is_what_the_bank_computes(asked, tmp_path):
    folder = run(asked(training={"lr": 0.1})).folder
    made = export(folder, tmp_path / "whole", "merged")
    trained = Trained.load(folder)
    trained.runtime.bank.load([trained.after, trained.before])
    logits = []
    for slot in (0, 1):
        trained.runtime.bank.route(torch.tensor([slot]))
        logits.append(trained.runtime.bank.model(IDS).logits.detach())
    torch.testing.assert_close(AutoModelForCausalLM.from_pretrained(made)(IDS).logits, logits[0], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(*logits, atol=0.05)


def test_a_site_s_own_model_over_the_shared_a_has_magnitudes_of_its_own(asked):
    folder = run(asked(personal={"steps": 2, "part": "B", "heldout": 0})).folder
    shared, _ = load_peft(folder / "adapter")
    own, _ = load_peft(folder / "sites" / "heart")
    assert [moved(own, shared, part) for part in (".lora_A.", ".lora_B.", MAGNITUDE)] == [False, True, True]


def test_a_run_begins_with_another_s_adapter_if_that_is_dora_too(asked, tmp_path):
    left = run(asked()).folder / "adapter"
    kept = tmp_path / "kept"
    left.rename(kept)
    begun = asked({"rounds": 1}, model={"adapter": str(kept)}, training={"lr": 1e-9, "lr_min": 0})
    [(state, _)] = adapters(run(begun, overwrite=True).folder)
    assert_close(state, load_peft(kept)[0], atol=1e-6)
    with pytest.raises(ModelError, match=r"only the adapter has .*lora_magnitude_vector"):
        run(asked(lora={"dora": False}, model={"adapter": str(kept)}), overwrite=True)


@pytest.mark.parametrize("rule", PRODUCTS)
def test_rules_about_products_are_refused_by_name(asked, rule):
    with pytest.raises(ConfigError, match=f"'{rule}' is about the products") as error:
        asked(aggregation={"rule": rule})
    assert error.value.where.endswith("aggregation.rule")
    asked(aggregation={"rule": rule}, lora={"dora": False})


@pytest.mark.parametrize(
    ("method", "aggregation"),
    [({"name": "tfedavg"}, {}), ({"name": "dpfedavg", "product_space": True}, {"rule": "rolora"})],
)
def test_methods_that_it_does_not_go_with_say_why(asked, method, aggregation):
    with pytest.raises(ConfigError, match=r"does not work with DoRA: .*magnitudes") as error:
        method_of(asked(method, aggregation))
    assert error.value.where == "lora.dora"
    method_of(asked(method, aggregation, lora={"dora": False}))


def test_magnitudes_beyond_the_range_of_a_secure_sum_are_refused_before_they_are_clipped():
    options = SecureSumConfig(range=2.0)
    fits, beyond = ({f"x{MAGNITUDE}": torch.tensor([0.5, most]), "x.lora_A.weight": torch.ones(1)} for most in (2, 2.1))
    require_range(Agreement(options, 3), fits)
    require_range(None, beyond)
    with pytest.raises(ConfigError, match=r"go up to 2.1, and sites clip what they send to ±2") as error:
        require_range(Agreement(options, 3), beyond)
    assert error.value.fix == "Set it to 5."
