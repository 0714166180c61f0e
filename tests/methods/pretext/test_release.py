"""The card of the texts that a run leaves."""

import shutil

import pytest

from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.methods.pretext.config import PretextConfig
from murmura.methods.pretext.release import card
from tests.experiment.small import write_lines
from tests.methods.pretext import world

PROMISED = {
    "epsilon": 1.25,
    "delta": 1e-5,
    "unit": "site",
    "adjacency": "zero-out",
    "accountant": "exact",
    "plan": "a plan",
    "refused": None,
}


@pytest.mark.parametrize("caveat", [None, "The run uses a model that was trained before."])
def test_the_card_has_what_makes_its_epsilon_worth_less_than_it_looks(caveat):
    config = PretextConfig(public="public.jsonl", generator="smollm2-135m", variation_model="minilm")
    told = card(config, "PrE-Text", PROMISED | ({"caveat": caveat} if caveat else {}), 2, "everybody")
    assert "ε = 1.250 at δ = 1e-05" in told
    assert told.rstrip().endswith(caveat or "holds against everybody.")


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("distance", [None, True])
def test_that_sites_tell_distances_without_noise_stands_on_every_card(make, distance):
    folder = run(make({"rounds": 1, "population": 4, "distance": distance})).folder
    said = "Sites also measure on their records (method.distance), and this does not cover"
    for left in ("outcomes/dataset", "adapter"):
        assert (said in (folder / left / "README.md").read_text(encoding="utf-8")) == bool(distance)


@pytest.mark.usefixtures("no_page")
def test_texts_that_a_run_made_of_private_ones_are_no_public_texts_like_others(make, tmp_path, llama_folder):
    options = {"rounds": 1, "population": 4}
    private = {"seeds": "private", "public": None, "noise_multiplier": None, "generator": str(llama_folder)}
    first = run(make(options | private | {"samples": 8}, run={"folder": str(tmp_path / "first")})).folder
    copy = shutil.copytree(first / "outcomes" / "dataset", tmp_path / "copied")
    said = "reads records that another run has left (method.public), and this does not cover what those were made of"
    assert any(said in note for note in dry_run(make(options | {"public": str(copy / "train.jsonl")})).notes)
    assert not any("another run" in note for note in dry_run(make(options)).notes)
    heldout = write_lines(copy / "heldout.jsonl", [{"text": text} for text in world.texts("rash", 3, 90)])
    notes = dry_run(make(options, data={"heldout": str(heldout)})).notes
    assert any("another run has left (data.heldout)" in note for note in notes)
