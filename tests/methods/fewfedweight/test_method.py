from types import SimpleNamespace

import pytest
import torch

from murmura.aggregation.choosing import rule
from murmura.aggregation.config import AggregationConfig
from murmura.federation.forecast import SitePart
from murmura.federation.site.cohort import Cohort
from murmura.federation.wire.messages import Ask, Reply
from murmura.generation.loops import goes_round
from murmura.generation.writer import Completion
from murmura.methods.fewfedweight import method as module
from murmura.methods.fewfedweight.config import FewFedWeightConfig
from murmura.methods.fewfedweight.method import FewFedWeight
from murmura.methods.fewfedweight.weights import energy_weights, skill
from murmura.streams import Stream
from murmura.training.config import LocalTraining
from tests.aggregation.means import weighted_mean
from tests.federation.engines.wired import Wired
from tests.methods.harness import furthest, perform, same, sites


def method(**options):
    return FewFedWeight(FewFedWeightConfig(**{"rounds": 2, "answer_tokens": 8, "error_records": 2} | options))


def answering(bench, monkeypatch, **said):
    """Let the model say, by what it is asked for, what ``said`` gives for it, a text or a text and whether
    it was finished; everything else it really writes. Returns the options of what was asked for, as it comes."""
    write, asked = bench.write, []

    def scripted(adapters, prompts, limits, **options):
        key = options["description"].split()[0]
        if key not in said:
            return write(adapters, prompts, limits, **options)
        asked.append(options)
        answers = [said[key](bench.tokenizer.decode(prompt)) for prompt in prompts]
        return [Completion(*((a, [], True) if isinstance(a, str) else (a[0], [], a[1]))) for a in answers]

    monkeypatch.setattr(bench, "write", scripted)
    return asked


def one_round(bench, name="improve"):
    cohort = Cohort(sites(), bench, Ask(name, 1), Stream(0))
    start = bench.bank.initial(Stream(0))
    return cohort, start, Ask(name, 1, {"adapter": start, "lr": 1e-3})


def test_the_wire_changes_nothing(bench, tmp_path, monkeypatch):
    """By SGD, since AdamW makes a whole step of the last bit of a gradient that is nearly zero."""
    bench.training = LocalTraining(lr=0.1, batch_size=2, optimizer="sgd")
    answering(bench, monkeypatch, write=lambda prompt: f"ask the nurse about {len(prompt)} tablets")
    local, _ = perform(method(rounds=1), bench, tmp_path / "local")
    wire, _ = perform(method(rounds=1), bench, tmp_path / "wire", engine=Wired)
    assert furthest(local.adapter, wire.adapter) < 1e-5
    assert [row["counts"] for row in local.rows] == [row["counts"] for row in wire.rows]
    assert local.rows[-1]["counts"]["pseudo.used"] == 18
    assert furthest(local.adapter, bench.bank.initial(Stream(0) / "adapter")) > 1e-3


def test_the_mean_by_skill_or_by_records_and_what_is_released_for_it(bench, tmp_path, monkeypatch):
    skills = iter([0.0, 0.0, 0.0, 0.5, 0.0, 1.5])
    monkeypatch.setattr(module, "skill", lambda error: next(skills))
    replies = []
    improve = FewFedWeight.improve

    def spy(self, cohort, ask):
        replies.append(improve(self, cohort, ask))
        return replies[-1]

    spy.declaration = improve.declaration
    monkeypatch.setattr(FewFedWeight, "improve", spy)
    server, fleet = perform(method(), bench, tmp_path)
    first, second = replies
    assert server.rows[1]["counts"]["mean.by_size"] == server.rows[2]["counts"]["mean.by_skill"] == 1
    assert same(server.adapter, weighted_mean([(second[0]["adapter"], 0.5), (second[2]["adapter"], 1.5)]))
    by_size = weighted_mean((reply["adapter"], reply["examples"]) for reply in first)
    assert furthest(by_size, server.adapter) > 1e-5
    assert {row["field"]: row["kind"] for row in fleet.ledger.table() if row["verb"] == "improve"} == {
        "adapter": "weights",
        "skill": "metric",
        "examples": "count",
        "loss": "metric",
        "counts": "metric",
    }


def test_a_step_of_the_server_starts_from_the_mean_that_counts(bench, tmp_path, monkeypatch):
    """FedAvgM's first step takes the mean as it is, and its second goes on in the direction of the first."""
    answering(bench, monkeypatch, write=lambda prompt: "rest and drink", own=lambda prompt: "")
    parts = rule(AggregationConfig(server="fedavgm"))
    stepping, _ = perform(FewFedWeight(method().config, parts), bench, tmp_path / "fedavgm")
    plain, _ = perform(method(), bench, tmp_path / "plain")
    assert stepping.rows[1]["heldout_loss"] == pytest.approx(plain.rows[1]["heldout_loss"], abs=1e-5)
    assert furthest(stepping.adapter, plain.adapter) > 1e-4
    assert stepping.rows[2]["counts"]["mean.by_size"] == 1


def test_error_is_measured_by_rouge_l_on_own_records(bench, monkeypatch):
    truth = {r.instruction: r.output for site in sites() for r in site.records}

    def right(prompt):
        return next(output for instruction, output in truth.items() if instruction in prompt)

    answering(bench, monkeypatch, own=lambda prompt: right(prompt) if "kidney" in prompt else "nothing of the kind")
    cohort, _, ask = one_round(bench)
    replies = method().improve(cohort, ask)
    assert [reply["skill"] for reply in replies] == [pytest.approx(6.9, abs=0.01), 0.0, 0.0]
    assert [reply["examples"] for reply in replies] == [6, 3, 9]


def test_private_records_weigh_one_and_pseudo_records_by_their_energy(bench, monkeypatch):
    answering(bench, monkeypatch, write=lambda prompt: f"ask the nurse about {len(prompt)} tablets")
    trained = {}
    train = Cohort.train

    def spy(self, shards, starts, lr, purpose, **options):
        trained[purpose] = (shards, starts, options)
        return train(self, shards, starts, lr, purpose, **options)

    monkeypatch.setattr(Cohort, "train", spy)
    cohort, start, ask = one_round(bench)
    method(pseudo_weight=0.5, weight_temperature=2.0).improve(cohort, ask)
    shards, starts, options = trained["weighted"]
    assert [len(shard) for shard in shards] == [12, 6, 18]
    assert all(own is start for own in starts)
    familiar = train(cohort, cohort.own(), [start] * 3, 1e-3, "private")
    for k, (shard, weights) in enumerate(zip(shards, options["weights"], strict=True)):
        own, pseudo = shard[: len(shard) // 2], shard[len(shard) // 2 :]
        assert [item.ids for item in own] == [item.ids for item in cohort.own()[k]]
        assert all(a.ids[: a.start] == b.ids[: b.start] and a.ids != b.ids for a, b in zip(own, pseudo, strict=True))
        energies = bench.energies([familiar[k].state] * len(pseudo), pseudo, temperature=1.0)
        expected = [1.0] * len(own) + [0.5 * w for w in energy_weights(energies, 2.0, 5.0)]
        assert weights == pytest.approx(expected, abs=1e-4)


def test_empty_and_too_long_pseudo_responses_are_dropped_and_counted(bench, monkeypatch):
    def say(prompt):
        return " " if "kidney" in prompt else "word " * 400 if "heart" in prompt else "rest and drink"

    answering(bench, monkeypatch, write=say)
    cohort, _, ask = one_round(bench)
    counts = [reply["counts"] for reply in method().improve(cohort, ask)]
    assert counts == [{"pseudo.empty": 6}, {"pseudo.does_not_fit": 3}, {"pseudo.used": 9}]


def test_pseudo_responses_that_were_cut_off_keep_their_complete_sentences(bench, monkeypatch):
    """Training puts an end mark behind every response, so what is cut off must end with a sentence."""

    def say(prompt):
        if "kidney" in prompt:
            return "Rest. Drink water. And then", False
        return ("and then and then", False) if "heart" in prompt else "Rest and drink"

    asked = answering(bench, monkeypatch, write=say)
    shards = {}
    train = Cohort.train

    def spy(self, own, starts, lr, purpose, **options):
        shards[purpose] = own
        return train(self, own, starts, lr, purpose, **options)

    monkeypatch.setattr(Cohort, "train", spy)
    cohort, _, ask = one_round(bench)
    counts = [reply["counts"] for reply in method().improve(cohort, ask)]
    assert counts == [
        {"pseudo.used": 6, "pseudo.cut_off": 6},
        {"pseudo.no_sentence": 3, "pseudo.cut_off": 3},
        {"pseudo.used": 9},
    ]
    pseudo = shards["weighted"][0][6:]
    ends = {bench.tokenizer.decode(item.ids[item.start : -1]).strip() for item in pseudo}
    expected = bench.tokenizer.decode(bench.tokenizer("Rest. Drink water.")["input_ids"])
    assert {end.replace(" ", "") for end in ends} == {expected.replace(" ", "")}
    assert all(item.ids[-1] == bench.tokenizer.eos_token_id for item in pseudo)
    assert [options["halt"] for options in asked] == [goes_round]


def test_the_plan():
    found = [method().forecast(SitePart([None] * size, 1, True, LocalTraining(batch_size=1))) for size in (10, 1)]
    assert found[0].steps == LocalTraining().epochs * (10 + 20)
    assert sum(one.tokens for one in found) == 8 * (10 + 2 + 1 + 1)


def test_what_a_site_says_of_its_skill_and_counts_is_held_to_what_there_is():
    """One number that is too large would be all of the mean."""
    state = {"w": torch.zeros(2)}
    refused = method()._unfit(SimpleNamespace(adapter=state, round=1), "improve")

    def unfit(fields):
        return refused(Reply("a", fields))

    fields = {"adapter": state, "examples": 1, "loss": 0.5, "counts": {"pseudo.used": 2}, "skill": skill(0.0)}
    assert unfit(fields) is None and unfit(fields | {"skill": 0.0, "counts": {}}) is None
    for told in (None, "1", [1.0], 1e300, 7.0, -0.1, torch.ones(2), {}):
        assert unfit(fields | {"skill": told}) == "'skill' is no number from 0 to 6.91"
    assert "'skill'" in unfit({name: told for name, told in fields.items() if name != "skill"})
    for told in (None, [1], {"pseudo.used": -1}, {"pseudo.used": 2, "site kidney lies": 1}):
        assert "'counts' is not" in unfit(fields | {"counts": told})
