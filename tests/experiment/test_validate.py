"""Refusals that take more than one section to tell."""

from dataclasses import replace

import pytest

from murmura.errors import ConfigError
from murmura.experiment.validate import Run, method_of, require_run
from murmura.privacy.samplers import PoissonSampling
from murmura.runs.schema import DEPLOYED
from tests.experiment.small import BY_DEFAULT
from tests.privacy.plans import RECORDS, SITES

SECRET = replace(SITES, sampler=PoissonSampling(0.5))
PRIVATE = {"name": "dpfedavg", "noise_multiplier": 1.0, "delta": 1e-3}
SLOW = {"engine": "processes", "answer_seconds": 9, "workers": 3}


def known(experiment, plan=None, sites=2):
    return Run(experiment, method_of(experiment), plan, sites)


def test_what_is_measured_follows_from_what_is_promised(make):
    plain, private = make(evaluation=BY_DEFAULT), make(PRIVATE, evaluation=BY_DEFAULT)
    assert known(plain).evaluation.attacks is True and known(private, SITES).evaluation.attacks is False
    asked = make(PRIVATE, evaluation={"attacks": True, "uploads": 2})
    assert [known(asked, plan).evaluation.uploads for plan in (SITES, SECRET)] == [2, 0]


@pytest.mark.parametrize(
    ("method", "sections", "plan", "where"),
    [
        (PRIVATE, {"audit": {"keep": True}}, SITES, "audit.keep"),
        (PRIVATE, {"run": SLOW | {"workers": 1}}, SITES, "run.answer_seconds"),
        (PRIVATE, {"run": {"engine": "flower"}}, SECRET, "method.sampler"),
        ({}, {"aggregation": {"secure": True}}, None, "aggregation.secure"),
        ({}, {"aggregation": {"rule": {"kind": "trimmed-mean", "liars": 1}}}, None, "aggregation.rule.liars"),
        ({}, {"aggregation": {"ranks": [2, 2, 1]}}, None, "aggregation.ranks"),
    ],
)
def test_what_would_break_a_promise_is_refused(make, method, sections, plan, where):
    experiment = make(method, evaluation={"attacks": False}, **sections)
    with pytest.raises(ConfigError) as error:
        require_run(known(experiment, plan))
    assert error.value.where == where and error.value.fix


def test_sites_on_machines_of_their_own_are_late_alone_and_are_seen_to_be_asked(make):
    apart = make(PRIVATE, run={"engine": "flower", "answer_seconds": 9}, evaluation={"attacks": False})
    require_run(known(apart, SITES, 5))
    require_run(known(make(PRIVATE, evaluation={"attacks": False}), SECRET, 5))


def test_a_limit_of_time_is_refused_where_whole_sites_are_protected_and_share_workers(make):
    with pytest.raises(ConfigError) as error:
        require_run(known(make(run=SLOW), SITES, 5))
    assert error.value.where == "run.answer_seconds" and "run.workers = 5" in error.value.fix
    require_run(known(make(run=SLOW | {"workers": 5}), SITES, 5))
    for plan in (RECORDS, None):
        require_run(known(make(run=SLOW), plan, 5))


def test_uploads_that_sites_have_made_noisy_themselves_may_be_kept(make):
    require_run(known(make(audit={"keep": True}), RECORDS))


@pytest.mark.parametrize(
    ("sections", "where"),
    [
        ({"model": {"trainable": "all", "dtype": "bfloat16"}}, "model.dtype"),
        ({"model": {"trainable": "all", "quantization": "4bit"}}, "model.quantization"),
        ({"model": {"trainable": "all"}, "aggregation": {"rule": "ffa"}}, "aggregation"),
        ({"aggregation": {"ranks": [4, 2]}}, "aggregation.ranks"),
        ({"data": {"kind": "labelled"}}, "data.kind"),
        ({"data": {"kind": "document", "template": "chat"}}, "data.template"),
        ({"data": {"kind": "document"}, "augment": {"pool": "x"}}, "augment"),
        ({"augment": {"pool": "x", "every": 2}}, "augment.every"),
        ({"augment": {"pool": "x", "strategy": "less"}, "model": {"trainable": "all"}}, "augment.strategy"),
    ],
)
def test_sections_that_do_not_go_together(make, sections, where):
    with pytest.raises(ConfigError) as error:
        make(**sections)
    assert error.value.where.endswith(f": {where}") and error.value.fix


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_gradients_by_example_are_of_adapters_alone(make, noise):
    with pytest.raises(ConfigError, match="trains adapters alone") as error:
        method_of(make({"name": "dplora", "noise_multiplier": noise}, model={"trainable": "all"}))
    assert error.value.where == "model.trainable"


@pytest.mark.parametrize("audit", [{"keep": True}, {"canaries": 4}])
def test_real_sites_are_no_simulation(make, audit):
    with pytest.raises(ConfigError, match="real") as caught:
        make(audit=audit, run={"engine": DEPLOYED})
    assert caught.value.fix == "Only simulations may: local or processes."
