"""The card of the texts that a run leaves."""

import pytest

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
