"""Whether a run promises an ε has one answer, on which everything hangs that depends on it."""

import pytest

from murmura import methods
from murmura.experiment.verbs import verbs_of
from murmura.federation.membership import Membership
from murmura.federation.wire.releases import DifferentialPrivacy
from tests.experiment.asking import RUNS, experiment

SIZES = [40, 50] * 40


@pytest.mark.parametrize(("method", "aggregation"), [run[:2] for run in RUNS], ids=str)
def test_what_protects_is_guaranteed_declared_and_not_undone(method, aggregation):
    asked = experiment(method | {"delta": 1e-5} if method["name"] == "dplora" else method, aggregation)
    made = methods.build(asked.method, asked.aggregation)
    training = asked.training.model_copy(update={"batch_size": 8})
    if getattr(asked.method, "noise_on", None) == "weights":
        training = training.model_copy(update={"optimizer": "sgd", "max_steps": 1, "clip": 1.0})
    found = made.guarantee(SIZES, training)
    assert made.protects == (found.unit if found else None)
    releases = [one for verb in made.verbs() for one in made.releases(verb).values()]
    units = {one.protection.unit for one in releases if isinstance(one.protection, DifferentialPrivacy)}
    assert units == ({made.protects} if made.protects else set())
    assert asked.evaluation.settled(promises=made.protects is not None).attacks == (made.protects is None)
    [membership] = [one for one in verbs_of(asked, made) if isinstance(one, Membership)]
    assert not (made.protects and "records" in membership.releases("join"))
    for verb in made.verbs():  # an owner's budget counts only what is protected at the site
        assert made.cost(verb, SIZES[0], training) is None or made.protects
    if found:
        assert found.told().startswith("ε = ") and found.words in found.told()
        assert (found.plan is None) == (found.epsilon > 0)
