"""What a guarantee leaves of an experiment's other wishes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from murmura.errors import ConfigError
from murmura.experiment.allowed import allowed
from murmura.methods import build
from murmura.privacy import PoissonSampling
from tests.privacy.plans import SITES

SECRET = replace(SITES, sampler=PoissonSampling(0.5))
PRIVATE = {"name": "dpfedavg", "noise_multiplier": 1.0, "delta": 1e-3}


def evaluation(experiment, promised=None, sites=2):
    return allowed(experiment, build(experiment.method, experiment.aggregation), promised, sites)


def test_what_is_measured_follows_from_what_is_promised(make):
    assert evaluation(make()).attacks is True and evaluation(make(PRIVATE), SITES).attacks is False
    asked = make(PRIVATE, evaluation={"attacks": True, "uploads": 2})
    assert [evaluation(asked, plan).uploads for plan in (SITES, SECRET)] == [2, 0]


@pytest.mark.parametrize(
    ("method", "sections", "plan", "said"),
    [
        (PRIVATE, {"audit": {"keep": True}}, SITES, r"audit\.keep"),
        (PRIVATE, {"run": {"engine": "processes", "workers": 1, "answer_seconds": 9}}, SITES, r"run\.answer_seconds"),
        ({}, {"aggregation": {"secure": True}}, None, r"aggregation\.secure: a sum over 2 sites hides nothing"),
    ],
)
def test_what_would_break_it_is_refused(make, method, sections, plan, said):
    experiment = make(method, evaluation={"attacks": False}, **sections)
    with pytest.raises(ConfigError, match=said):
        evaluation(experiment, plan)
