"""A run that begins with the adapter that another run has left."""

import json
import re
import shutil

import pytest
import torch

from murmura.audit.subject import subject
from murmura.data.records import Instruction
from murmura.errors import CheckpointError, ConfigError, ModelError
from murmura.experiment.export import export
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.experiment.trained import Trained
from murmura.experiment.verbs import fingerprint
from murmura.streams import Stream
from murmura.training.adapter import PEFT_PREFIX, load_peft, save_peft
from murmura.training.config import LoraSpec
from tests.experiment.small import context

pytestmark = pytest.mark.usefixtures("no_page")


def left(asked, folder, *, scale=1.0, **other):
    """A PEFT folder with an adapter for this experiment, that does something."""
    place = context(asked)
    lora = asked.lora.model_copy(update=other)
    shapes = {name: list(tensor.shape) for name, tensor in place.model.state.items()}
    for name, shape in shapes.items():
        shape[0 if ".lora_A." in name else 1] = lora.rank
    generator = torch.Generator().manual_seed(5)
    state = {name: 0.1 * torch.randn(*shape, generator=generator) for name, shape in shapes.items()}
    save_peft(folder, state, lora.model_copy(update={"alpha": lora.alpha * scale}), "tiny")
    return state


def test_a_run_goes_on_from_it(make, tmp_path):
    state = left(make(), tmp_path / "before")
    asked = make(
        {"rounds": 1}, model={"adapter": "before"}, training={"lr": 1e-9, "lr_min": 0}, evaluation={"attacks": False}
    )
    plain = make({"rounds": 1}, run={"folder": str(tmp_path / "plain")}, evaluation={"attacks": False})
    folder = run(asked).folder
    ended, _ = load_peft(folder / "adapter")
    assert all(torch.allclose(ended[name], state[name], atol=1e-6) for name in state)
    first = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    assert first["heldout_loss"] != run(plain).rows[0]["heldout_loss"]


def test_every_side_knows_it_and_rules_that_send_one_factor_take_the_other_from_it(make, tmp_path):
    state = left(make(), tmp_path / "before")
    asked = make(model={"adapter": "before"})
    bench = context(asked).runtime("site")
    assert bench.initial(Stream(7)).keys() == state.keys()
    assert all(bench.initial(Stream(7))[name].equal(state[name]) for name in state)
    ffa = make({"rounds": 1}, model={"adapter": "before"}, aggregation={"rule": "ffa"}, evaluation={"attacks": False})
    ended, _ = load_peft(run(ffa).folder / "adapter")
    for name in state:
        assert ended[name].equal(state[name]) == (".lora_A." in name)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rank": 3}, r"it does not fit: .* is \(3, 32\), expected \(2, 32\)"),
        ({"scale": 2.0}, "its scale is 32, that of \\[lora\\] is 16"),
    ],
)
def test_one_that_does_not_fit_is_refused_before_anything_is_written(make, tmp_path, options, why):
    left(make(), tmp_path / "before", **options)
    asked = make(model={"adapter": "before"})
    for tried in (dry_run, run):
        with pytest.raises(ModelError, match=why):
            tried(asked)
    assert not asked.run.path.exists()


def test_nor_is_one_of_other_targets_or_none(make, tmp_path):
    save_peft(tmp_path / "before", {f"{PEFT_PREFIX}other.lora_A.weight": torch.zeros(2, 4)}, LoraSpec(rank=2), "tiny")
    with pytest.raises(ModelError, match=r"only .* has .*lora_A"):
        run(make(model={"adapter": "before"}))
    with pytest.raises(ModelError, match=r"no adapter_config.json here"):
        run(make(model={"adapter": str(tmp_path / "nowhere")}))
    with pytest.raises(ConfigError, match="'adapter' does nothing where all parameters train"):
        make(model={"adapter": "before", "trainable": "all"})


def test_what_a_run_was_before_is_what_it_began_with(make, tmp_path):
    state = left(make(), tmp_path / "before")
    folder = run(make({"rounds": 1}, model={"adapter": "before"}, evaluation={"attacks": False})).folder
    card = (export(folder, tmp_path / "out", "adapter") / "README.md").read_text(encoding="utf-8")
    assert re.search(r"Training began with the adapter in `[^/`]+/before` \(SHA-256", card)
    for found in (Trained.load(folder).before, subject(folder).runtime.origin):
        assert found.keys() == state.keys()
        assert all(found[name].equal(state[name]) for name in state)


def test_another_in_its_place_is_refused(make, tmp_path):
    """Attacks compare with it, so that they would find what it had learnt of members before, or miss it."""
    state = left(make(), tmp_path / "before")
    asked = {"model": {"adapter": "before"}, "evaluation": {"attacks": False}}
    folder = run(make({"rounds": 1}, **asked)).folder
    save_peft(tmp_path / "before", {name: 2 * tensor for name, tensor in state.items()}, make().lora, "tiny")
    with pytest.raises(CheckpointError, match=r"model.adapter = .*not the one that the run began with"):
        _ = Trained.load(folder).before
    again = make({"rounds": 2}, **asked)
    for ask in (subject, lambda _: run(again, resume=True)):
        with pytest.raises(CheckpointError, match=r"model.adapter = .*: adapter_model.safetensors changed since"):
            ask(folder)
    save_peft(tmp_path / "before", state, make().lora, "tiny")
    environment = folder / "environment.json"
    for text in ("{", json.dumps(json.loads(environment.read_text()) | {"adapter": None})):
        environment.write_text(text)
        with pytest.raises(CheckpointError, match="which adapter the run began with is not noted"):
            subject(folder)


def test_a_run_that_goes_on_needs_the_same_and_one_that_answers_needs_none(make, tmp_path):
    left(make(), tmp_path / "before")
    asked = {"model": {"adapter": "before"}, "evaluation": {"attacks": False}}
    folder = run(make({"rounds": 1}, **asked)).folder
    assert len(run(make({"rounds": 2}, **asked), resume=True).rows) == 3
    shutil.rmtree(tmp_path / "before")
    found = Trained.load(folder)
    assert len(found.answers([Instruction("explain the heart result 1")], [found.after], 2)) == 1
    with pytest.raises(ModelError, match=r"model.adapter = .*before: the adapter that training begins with cannot"):
        found.before  # noqa: B018


def test_how_peft_wrote_it_down_is_no_matter_once_the_run_is_finished(make, tmp_path):
    last = {"lora": {"layers": "last 1"}, "evaluation": {"attacks": False}}
    left(make(**last), tmp_path / "before")
    config = tmp_path / "before" / "adapter_config.json"
    told = json.loads(config.read_text()) | {"target_modules": ["q_proj", "v_proj"], "layers_to_transform": [1]}
    config.write_text(json.dumps(told))
    folder = run(make({"rounds": 1}, model={"adapter": "before"}, **last)).folder
    found = Trained.load(folder)
    assert found.before.keys() == found.after.keys() and subject(folder).models.whole.keys() == found.after.keys()


def test_server_and_sites_agree_on_it_by_what_it_is(make, tmp_path):
    state = left(make(), tmp_path / "before")
    asked = make(model={"adapter": "before"})
    agreed = fingerprint(asked)
    shutil.copytree(tmp_path / "before", tmp_path / "elsewhere" / "as it is called here")
    assert fingerprint(make(model={"adapter": str(tmp_path / "elsewhere" / "as it is called here")})) == agreed
    save_peft(tmp_path / "before", {name: 2 * tensor for name, tensor in state.items()}, asked.lora, "tiny")
    assert fingerprint(asked) != agreed
