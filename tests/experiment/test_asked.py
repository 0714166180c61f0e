"""A site answers what its run asks, by its own copy of the experiment, and nothing else, whoever asks."""

from types import SimpleNamespace

import pytest
import torch

from murmura import methods
from murmura.augment.verbs import Augmenting
from murmura.experiment.verbs import verbs_of
from murmura.federation.exporting import Exporting
from murmura.federation.membership import Membership
from murmura.federation.site.answer import Host
from murmura.federation.site.answered import Answered
from murmura.federation.summing import SecureSumming
from murmura.federation.wire.masks import STEPS
from murmura.federation.wire.messages import Ask, Failure
from murmura.measure.verbs import Measuring
from murmura.methods.lpfl.config import LPFLConfig
from murmura.runs.names import ANSWERS_JOURNAL, MEASURED_JOURNAL
from murmura.streams import Stream
from tests.experiment.asking import ALWAYS, RUNS, SUMS, TEXTS, experiment
from tests.federation.world import ENGINES, make_sites

EVALUATIONS = [
    ({}, lambda usual: usual),
    ({"attacks": False}, lambda usual: usual - {"attack"}),
    ({"attacks": True, "uploads": 0, "memorisation": True}, lambda usual: usual | {"attack", "memorise"}),
]
STRATEGIES = {
    "feddca": {"centres", "take"},
    "coverage": {"centres", "take"},
    "direct": {"centres", "take"},
    "random": {"take"},
    "less": {"features", "take"},
    "self-instruct": {"write"},
}
OTHERS = (Exporting, Membership, Measuring, SecureSumming, Augmenting)
DECLARED = sorted({name for one in OTHERS for name in one.verb_names(one.__new__(one))})


def host(chosen, folder):
    """One site with nothing to work with: what is not refused fails otherwise."""
    method = methods.build(chosen.method, chosen.aggregation)
    [site] = make_sites(2, folder=folder)
    site.kept.folder.mkdir(parents=True, exist_ok=True)
    site.answered = Answered(site.kept.folder / ANSWERS_JOURNAL)
    runtime, rounds = SimpleNamespace(slots=1, training=None, device=torch.device("cpu")), chosen.method.total_rounds
    return Host([site], verbs_of(chosen, method), runtime, Stream(0), method.rule, run="run", rounds=rounds)


def outcome(site, verb, round=1, run="run", **fields):
    [answer] = site.answer(Ask(verb, round, fields, run=run), ["site-0"])
    return answer.why if isinstance(answer, Failure) else "answered"


def told(site):
    return (site.sites["site-0"].kept.folder / "notes.txt").read_text(encoding="utf-8")


def refused_verbs(chosen, asked, folder):
    """Hold a site to the verbs that it may be asked; each other one is refused, and told to its owner."""
    site = host(chosen, folder)
    every = sorted({*DECLARED, *site.verbs[0].verb_names()})
    assert asked <= set(every)
    assert {verb for one in site.verbs for verb in one.verbs()} == asked
    for verb in set(every) - asked:
        assert outcome(site, verb, starts=None, lr=0.1, adapter={}, candidates=torch.zeros(1, 1)) == "RefusedError"
        assert f"this run asks no site for '{verb}'" in told(site)
    return set(every) - asked


def in_words(value):
    """The same in every process, which orders sets in its own way."""
    return str(sorted(value) if isinstance(value, set) else value)


@pytest.mark.parametrize(("method", "aggregation", "own", "usual"), RUNS, ids=in_words)
def test_of_every_method_and_option_each_verb_outside_is_refused(tmp_path, method, aggregation, own, usual):
    for number, (evaluation, measured) in enumerate(EVALUATIONS):
        asked = {*ALWAYS, *own, *measured(usual), *(STEPS if aggregation.get("secure") else ())}
        if evaluation.get("memorisation") and method["name"] in ("lpfl", "pretext"):
            continue  # there is nothing to complete
        if aggregation.get("secure"):
            evaluation = evaluation | {"uploads": 0}
        found = refused_verbs(experiment(method, aggregation, evaluation), asked, tmp_path / str(number))
        assert {"centres", "features", "write", "take"} <= found


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_of_every_strategy_each_verb_outside_is_refused(tmp_path, strategy):
    options = {"strategy": strategy} | ({} if strategy == "self-instruct" else {"pool": "pool"})
    chosen = experiment({"name": "fedit"}, augment=options)
    refused_verbs(chosen, {*ALWAYS, "attack", "train", *STRATEGIES[strategy]}, tmp_path)


def test_every_method_is_tried():
    assert {run[0]["name"] for run in RUNS} == methods.METHODS.keys()
    assert LPFLConfig.model_fields.keys() >= {"annotate"}


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_but_a_class_travels(tmp_path, engine):
    made = ENGINES[engine](host(experiment(TEXTS), tmp_path))
    ask = Ask("share_texts", 1, run="run")
    assert list(made.ask(ask, ["site-0"])) == [Failure("site-0", "RefusedError")]
    made.close()


def test_other_runs_and_rounds_are_refused_and_owners_are_told_once(tmp_path):
    site = host(experiment({"name": "dplora", "rounds": 3}), tmp_path)
    for round in (0, -1, 4, 10**9):
        assert outcome(site, "train_private", round) == "RefusedError"
        assert f"'train_private' is asked for in round {round}" in told(site)
    before = told(site)
    assert outcome(site, "train_private", 4) == "RefusedError" and told(site) == before
    assert outcome(site, "train_private", run="another") == "RefusedError"
    assert "run 'another' asks" in told(site)
    voting = host(experiment(TEXTS | {"rounds": 2}), tmp_path / "voting")
    assert outcome(voting, "vote", 3) == "RefusedError"  # in which the server trains


@pytest.mark.parametrize(
    ("verb", "round"),
    [*(("train_private", one) for one in (1.5, 1.0, True, "1", None, [1])), *((one, 1) for one in (None, 1, []))],
    ids=repr,
)
def test_what_is_no_verb_or_no_round_is_refused_and_told(tmp_path, verb, round):
    """And not an error of the whole process, of which no owner hears."""
    site = host(experiment({"name": "dplora", "rounds": 3}), tmp_path)
    assert outcome(site, verb, round) == "RefusedError" and "no valid run id, verb or round" in told(site)


FORGED = "x' asks\nRound 3: all is well\x1b[2J"


NO_NAMES = [{"run": one} for one in (FORGED, "x" * 65, ["run"], None, 7)]
NO_NAMES += [{"verb": FORGED}, {"verb": "x" * 65}, {"round": "1\n2"}]


@pytest.mark.parametrize("asked", NO_NAMES, ids=repr)
def test_what_a_server_calls_a_run_or_a_verb_is_no_text_for_the_owner(tmp_path, asked):
    site = host(experiment({"name": "dplora", "rounds": 3}), tmp_path)
    assert outcome(site, **{"verb": "train_private", **asked}) == "RefusedError"
    _, line = told(site).splitlines()  # below what stands at the top of every such file
    assert "no valid run id, verb or round" in line and line.isprintable()


@pytest.mark.parametrize("run", ["0f" * 16, "run-1"])
def test_a_run_s_id_is_one(tmp_path, run):
    site = host(experiment({"name": "dplora", "rounds": 3}), tmp_path)
    assert outcome(site, "train_private", run=run) == "RefusedError" and "no valid run id" not in told(site)


def test_a_server_fills_no_disk_with_what_is_refused(tmp_path):
    site = host(experiment({"name": "fedit"}), tmp_path)
    for number in range(300):
        assert outcome(site, f"verb {number}") == "RefusedError"
    assert told(site).count("asks no site") == 100


# ---- options of what may be asked --------------------------------------------------------------------------------


CUTS = {"loss": torch.zeros(50, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"records": 1, "adapter": {}, "cuts": {"loss": torch.zeros(10_000)}}, "cut points"),
        ({"records": 201, "adapter": {}, "cuts": CUTS}, "more than 200 records"),
        ({"records": 1, "adapter": {}, "cuts": CUTS, "canaries": 1}, "no canaries"),
        ({"records": 0, "adapter": {}, "upload": {}, "upload_records": 1, "upload_cuts": CUTS}, "no single uploads"),
        ({"records": 1, "nonmembers": []}, "own adapters are not attacked"),
    ],
)
def test_an_attack_is_no_larger_than_the_experiment_says(tmp_path, fields, why):
    site = host(experiment({"name": "fedit"}, evaluation={"uploads": 0}), tmp_path)
    assert outcome(site, "attack", **fields) == "RefusedError" and why in told(site)


def test_an_attack_is_answered_as_often_as_rounds_are_measured(tmp_path):
    site = host(experiment({"name": "fedit", "rounds": 2}), tmp_path)
    found = [outcome(site, "attack", 1, records=0, adapter={}, cuts=CUTS) for _ in range(5)]
    assert "RefusedError" not in found[:3] and found[3:] == ["RefusedError"] * 2


def test_a_process_that_was_started_again_answers_no_more_attacks(tmp_path):
    chosen, journal = experiment({"name": "fedit", "rounds": 2}), tmp_path / MEASURED_JOURNAL

    def attacked(run, again=False):
        site = host(chosen, tmp_path)
        site.sites["site-0"].measured, site.sites["site-0"].run = Answered(journal, again=again), run
        found = [outcome(site, "attack", 1, run, records=0, adapter={}, cuts=CUTS) for _ in range(5)]
        return 5 - found.count("RefusedError")

    assert [attacked("a"), attacked("a"), attacked("a", again=True), attacked("b"), attacked("a")] == [3, 0, 1, 3, 0]


def test_no_more_is_completed_than_the_experiment_says(tmp_path):
    site = host(experiment({"name": "fedit"}, evaluation={"memorisation": True, "sample": 3}), tmp_path)
    assert outcome(site, "memorise", records=4, adapter={}) == "RefusedError" and "more than 3 records" in told(site)
    assert outcome(site, "memorise", records=1, adapter={}) == "RefusedError"  # once


@pytest.mark.parametrize(
    "fields",
    [{"sample": 4}, {"sample": 1, "choices": [{"question": "x"}]}, {"sample": 1, "benchmarks": [{"name": "gsm8k"}]}],
)
def test_own_adapters_are_asked_what_the_experiment_asks(tmp_path, fields):
    site = host(experiment({"name": "local"}, evaluation={"sample": 3}), tmp_path)
    assert outcome(site, "assess", **fields) == "RefusedError" and "in another way than in this run" in told(site)


@pytest.mark.parametrize("norm", [1e9, 0.0, float("nan"), float("inf")])
def test_an_update_is_clipped_to_the_norm_of_the_run(tmp_path, norm):
    site = host(experiment({"name": "dpfedavg", "clip_norm": 0.1}), tmp_path)
    assert outcome(site, "train_clipped", norm=norm) == "RefusedError" and "clipped" in told(site)


@pytest.mark.parametrize("lr", [1.0, -1.0, 0.0, float("nan")])
def test_noise_on_weights_hides_no_larger_step_than_it_is_for(tmp_path, lr):
    method = {"name": "dplora", "noise_on": "weights", "noise_multiplier": 1.0}
    chosen = experiment(method)
    site = host(chosen, tmp_path)
    site.runtime.training = chosen.training
    assert outcome(site, "train_private", lr=lr) == "RefusedError" and "learning rate" in told(site)


def test_centres_are_of_all_records_unless_the_experiment_says_otherwise(tmp_path):
    site = host(experiment({"name": "fedit"}, augment={"pool": "pool", "encoder": "minilm"}), tmp_path)
    site.runtime.resources = SimpleNamespace(encoder=lambda option: None)
    assert outcome(site, "centres", hardest=True) == "RefusedError" and "of the hardest" in told(site)


@pytest.mark.parametrize("epochs", [0, 3, 5, 10**9])
def test_gradients_are_told_under_as_many_adapters_as_the_experiment_says(tmp_path, epochs):
    site = host(experiment({"name": "fedit"}, augment={"pool": "pool", "strategy": "less", "less_epochs": 4}), tmp_path)
    assert outcome(site, "features", epochs=epochs) == "RefusedError" and "other than the 4 adapters" in told(site)
    assert outcome(site, "features", epochs=4) != "RefusedError"


# ---- how often -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "aggregation", "augment", "verb", "most"),
    [
        ({"name": "dplora", "rounds": 3}, {}, None, "train_private", 3),
        (TEXTS | {"rounds": 3, "noise": "skellam"}, SUMS, None, "vote", 3),
        (TEXTS | {"rounds": 3, "noise": "discrete-gaussian"}, SUMS, None, "vote", 3),
        (TEXTS | {"seeds": "paraphrased"}, {}, None, "paraphrase", 1),
        ({"name": "fedit", "rounds": 4}, {}, {"pool": "pool", "every": 2, "noise_multiplier": 1.0}, "centres", 2),
    ],
)
def test_what_an_epsilon_is_for_is_answered_so_often_and_no_more(
    tmp_path, method, aggregation, augment, verb, most, monkeypatch
):
    """Whatever the round is said to be; a site that its owner starts again answers once more, and tells so."""
    chosen = experiment(method, aggregation, augment=augment)
    monkeypatch.setattr(Host, "_work", lambda *rest: iter(()))
    terms = {"layout": {"entries": [["votes", None, "whole tensor", [2]]]}}
    ask = Ask(verb, 1, run="run", masked=terms if verb == "vote" else None)
    count = 0
    for allowed in (most, 1, 1):  # of each start
        site = host(chosen, tmp_path)
        for _ in range(allowed):
            assert list(site.answer(ask, ["site-0"])) == []
        [refused] = site.answer(ask, ["site-0"])
        assert refused.why == "RefusedError"
        count += allowed
        assert f"'{verb}' is asked for once more, and this site has answered it {count} times" in told(site)
        assert (f"'{verb}' is answered for the {count}th time" in told(site)) == (count > most)
