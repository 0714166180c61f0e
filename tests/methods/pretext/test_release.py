"""The card of the texts that a run leaves."""

import pytest

from murmura.experiment.run import run
from murmura.methods.pretext.config import PretextConfig
from murmura.methods.pretext.release import card

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
    for card in ("outcomes/dataset/README.md", "adapter/README.md"):
        assert (said in (folder / card).read_text(encoding="utf-8")) == bool(distance)
