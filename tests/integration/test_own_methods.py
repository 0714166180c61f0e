"""What docs/extending.md says a method of one's own may do besides: rules it names, a local rule, adapters at sites."""

from __future__ import annotations

from typing import ClassVar, Literal

import pytest
from safetensors.torch import load_file

from murmura import methods
from murmura.aggregation.config import LINEAR, PRODUCTS, ROBUST
from murmura.errors import ConfigError
from murmura.experiment.run import run
from murmura.federation.method import Method
from murmura.federation.method_config import MethodConfig
from murmura.federation.traits import AveragingTraits, Combines, Traits
from murmura.federation.wire.releases import Metric, verb
from murmura.methods.averaging import Averaging
from murmura.methods.local_rules import LocalRule
from murmura.registry import Origin
from tests.experiment.small import SIZES, experiment, write_data

MU = 0.5


class OwnConfig(MethodConfig):
    """Options of the methods here."""

    implementation: ClassVar[str] = f"{__name__}:Plain"
    name: Literal["own"] = "own"


class Plain(Averaging):
    traits = AveragingTraits(label="Plain")


class Combining(Averaging):
    traits = AveragingTraits(label="Combining", combines=Combines(rules=(*LINEAR, *PRODUCTS, *ROBUST), travels=True))


class Near(LocalRule):
    title = "Near"

    def options(self, cohort, ask, starts):
        return {"prox": MU, "anchors": starts}


class WithLocalRule(Averaging):
    traits = AveragingTraits(label="Mine")

    def __init__(self, config, rule=None):
        super().__init__(config, rule)
        self.local = Near(self.rule.config)


class Personal(Method):
    traits = Traits(label="Personal", personal=True)

    def lead(self, server, fleet):
        for round in server.rounds(self.config.rounds):
            for reply in server.ask_personal("go_on", fleet.sample(None, round), lr=server.lr(round)):
                server.note_loss(reply["loss"])

    @verb(releases={"loss": Metric("mean training loss")})
    def go_on(self, cohort, ask):
        trained = cohort.train(cohort.own(), cohort.own_adapters(ask), ask["lr"], "private")
        for site, result in zip(cohort.sites, trained, strict=True):
            site.store["adapter"] = result.state
        return cohort.reply(loss=[result.loss for result in trained])


@pytest.fixture
def made(monkeypatch, tmp_path, llama_folder):
    """Makes an experiment of one of these methods, or of one that there is by name."""
    monkeypatch.setitem(methods.METHODS.builtin, "own", Origin(f"{__name__}:OwnConfig"))
    write_data(tmp_path, {**SIZES, "lung": 4})

    def make(method, **sections):
        name, folder = method, method
        if isinstance(method, type):
            name, folder = "own", method.__name__
            monkeypatch.setattr(OwnConfig, "implementation", f"{__name__}:{folder}")
        usual = {"run": {"folder": str(tmp_path / folder)}, "evaluation": {"uploads": 0}}
        return experiment(tmp_path, llama_folder, {"name": name}, **usual, **sections)

    return make


ROUNDED = [{"rule": "median"}, {"travel": "int8"}]


@pytest.mark.parametrize("aggregation", ROUNDED)
def test_rules_that_its_traits_name_are_taken_and_others_are_not(made, aggregation):
    assert run(made(Combining, aggregation=aggregation)).rows[-1]["round"] == 2
    with pytest.raises(ConfigError):
        run(made(Plain, aggregation=aggregation))


@pytest.mark.parametrize("secure", [False, True])
def test_a_local_rule_of_its_own_trains_as_the_same_one_of_murmura_does(made, secure):
    ours = run(made(WithLocalRule, aggregation={"secure": secure}))
    theirs = run(made("fedit", aggregation={"secure": secure, "local": {"kind": "fedprox", "mu": MU}}))
    plain = run(made(Plain, aggregation={"secure": secure}))
    mine, other, without = (
        load_file(one.folder / "adapter" / "adapter_model.safetensors") for one in (ours, theirs, plain)
    )
    assert all(mine[name].equal(other[name]) for name in other) and mine.keys() == other.keys()
    assert not all(mine[name].equal(without[name]) for name in without)
    assert "Near" in (ours.folder / "report.html").read_text(encoding="utf-8")


def test_adapters_that_stay_at_sites_are_trained_as_without_an_exchange(made):
    ours, theirs = run(made(Personal)), run(made("local"))
    assert ours.rows[-1]["heldout_loss"] == theirs.rows[-1]["heldout_loss"] != ours.rows[0]["heldout_loss"]
