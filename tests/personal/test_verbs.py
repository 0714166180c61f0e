"""What a site does for a model of its own."""

from dataclasses import asdict

import pytest

from murmura.errors import RefusedError
from murmura.federation.site.cohort import Cohort
from murmura.federation.wire.messages import Ask
from murmura.measure.evaluation_set import digests
from murmura.personal.config import PersonalConfig
from murmura.personal.verbs import Personalising
from murmura.streams import Stream
from murmura.tasks import INSTRUCTION
from tests.federation.world import instructions, make_sites, make_workbench
from tests.training.helpers import random_state

PUBLIC = instructions(3, seed=100)


def personalised(tokenizer, heldout, agreed):
    [site] = make_sites(4)
    site.apart, site.agreed = instructions(2, seed=50), agreed
    runtime = make_workbench(tokenizer)
    given = {"adapter": random_state(runtime.bank, 0), "heldout": [asdict(one) for one in heldout]}
    ask = Ask("personalise", 1, given)
    verbs = Personalising(PersonalConfig(steps=1), INSTRUCTION, lambda site, stream: site.records, tells=True)
    [reply] = verbs.personalise(Cohort([site], runtime, ask, Stream(0)), ask)
    return reply.fields


def test_a_model_of_its_own_is_measured_on_what_was_agreed_alone(tokenizer):
    """A server that may name the text learns whether a site has such a record."""
    agreed, guessed = frozenset(digests(PUBLIC)), instructions(1, seed=1)
    assert personalised(tokenizer, PUBLIC, agreed) == personalised(tokenizer, PUBLIC, None)  # of a simulation
    for lying in (guessed, [*PUBLIC, *guessed]):
        with pytest.raises(RefusedError, match="'personalise' is asked for in another way"):
            personalised(tokenizer, lying, agreed)
    assert personalised(tokenizer, guessed, None).keys() == {"losses", "records", "public"}
