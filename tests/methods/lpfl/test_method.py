"""LP-FL: whole runs on a tiny model of each kind."""

from copy import deepcopy
from functools import cache, wraps
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from murmura.aggregation.config import AggregationConfig
from murmura.data.cloze import Cloze
from murmura.data.records import Labelled
from murmura.errors import ConfigError, DataError
from murmura.federation.engines.local import LocalEngine
from murmura.federation.server.checkpoint import latest
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.server.rounds import Server
from murmura.federation.site.site import Site
from murmura.federation.site.store import SiteStore
from murmura.federation.wire.messages import Ask, Reply
from murmura.measure.config import EvaluationConfig
from murmura.measure.ensemble import pattern_accuracies
from murmura.measure.evaluation_set import EvaluationSet
from murmura.measure.labelled import Validation, pattern_scores
from murmura.measure.monitor import Monitor
from murmura.measure.verbs import Measuring
from murmura.methods import build
from murmura.methods.lpfl.config import LPFLConfig
from murmura.methods.lpfl.method import _unlike
from murmura.model_runtime import ModelRuntime
from murmura.streams import Stream
from murmura.tasks import LABELLED
from murmura.tasks.labelled import LabelledReading
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining, LoraSpec
from tests.conftest import make_llama
from tests.experiment.small import VERBALISER, method_with, texts
from tests.federation.world import begun, connect, failing, lying, verbs_of
from tests.methods.harness import same


def config(**options):
    defaults = {
        "rounds": 3,
        "labelled_records": 4,
        "verbaliser": VERBALISER,
        "patterns": ("{text} it was {blank}", "{text} in short it is {blank}"),
    }
    if options.get("annotate", True) and options.get("rounds") != 2:
        defaults["gate"] = 0.0
    return LPFLConfig(**defaults | options)


class World:
    def __init__(
        self,
        model,
        tokenizer,
        folder,
        options=None,
        *,
        engine=LocalEngine,
        sites=None,
        lora=True,
        rule=None,
        lr=None,
        every=9,
        attacks=False,
    ):
        settings = options or config()
        method = build(settings, AggregationConfig(rule=rule or "mean"))
        bank = Bank(model, LoraSpec(rank=4, alpha=8, targets=("all-linear",)) if lora else None)
        cloze = Cloze(
            settings.patterns,
            settings.verbaliser,
            tokenizer,
            48,
            masked=not bank.head.is_decoder,
            several_tokens="average",
            reduction=settings.reduction,
        )
        reading = LabelledReading(cloze, sample_pattern=settings.sample_pattern)
        training = LocalTraining(lr=lr or (0.02 if lora else 0.003), batch_size=4, epochs=2, schedule="constant")
        self.bench = ModelRuntime(bank, tokenizer, reading, training, max_length=48, slots=8 if lora else 1)
        self.public = EvaluationSet(
            LABELLED,
            texts(20, 90),
            validation=Validation(texts(10, 91), weighs=settings.pattern_weights == "validation"),
        )
        self.sites = sites or [
            Site(f"site-{k}", texts(size, k), kept=SiteStore(folder / "private" / f"site-{k}", f"site-{k}"))
            for k, size in enumerate((16, 12))
        ]
        self.method, stream = method, Stream(12)  # of both sites' four labels, two are of each kind
        engine = connect(engine, self.sites, method, self.bench, stream, LABELLED)
        self.fleet = Fleet(engine, verbs_of(method, LABELLED), Ledger(), stream)
        run = begun(folder)
        monitor = Monitor(self.bench, self.public, EvaluationConfig(every=every, attacks=attacks), stream)
        self.server = Server(
            self.bench, self.fleet, monitor, run, stream, bank.initial(stream / "adapter"), method.rule
        )

    def lead(self):
        self.method.lead(self.server, self.fleet)
        return self

    @property
    def rows(self):
        return self.server.rows


@pytest.fixture(params=["llama", "bert"])
def model(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def plain(tokenizer, tmp_path_factory):
    """A run by default and its folder, which is made once and left as it is."""

    def made():
        folder = tmp_path_factory.mktemp("plain")
        return folder, World(make_llama(tokenizer), tokenizer, folder, every=3).lead()

    return cache(made)


def test_it_learns_and_annotates_everything(model, tokenizer, tmp_path):
    world = World(model, tokenizer, tmp_path, every=1, attacks=True).lead()
    first, last = world.rows[0], world.rows[-1]
    assert last["heldout_loss"] < first["heldout_loss"]
    assert last["accuracy"] >= 0.7
    assert last["train_loss"] < 0.7
    for site in world.sites:
        assert site.store["pool"] == []
        assert sorted([*site.store["labelled"], *(i for i, _ in site.store["annotated"])]) == list(range(site.size))
        assert all(abs(sum(row) - 1) < 1e-9 for _, row in site.store["annotated"])
    assert [row.get("annotated") for row in world.rows] == [None, 6 + 4, 6 + 4, None]
    assert [row.get("left_unlabelled") for row in world.rows] == [None, 6 + 4, 0, None]
    assert all(row["events"] == [] for row in world.rows)
    assert 0.5 <= world.rows[2]["pseudo_accuracy"] <= 1
    assert last["calibration"] and sum(n for _, _, n in last["calibration"]) == last["accuracy_n"] == 20
    right = sum(given[label] for label, given in last["confusion"].items())
    assert (
        right / 20 == last["accuracy"] and sum(map(sum, (given.values() for given in last["confusion"].values()))) == 20
    )
    assert last["validation_accuracy_n"] == len(world.public.validation.records)
    assert [row.get("pseudo_accuracy_n") for row in world.rows] == [None, 6 + 4, 6 + 4, None]
    assert "member_rouge" not in last  # there is no response to complete


def test_a_site_that_missed_all_training_annotates_too(llama, tokenizer, tmp_path):
    away = failing(LocalEngine, lambda site, ask: (site, ask.verb) == ("site-1", "train") and ask.round == 1)
    world = World(llama, tokenizer, tmp_path, config(), engine=away).lead()
    assert [row.get("annotated") for row in world.rows] == [None, 6 + 4, 6 + 4, None]


def test_a_site_that_has_only_annotated_has_no_model_of_its_own_to_measure(llama, tokenizer, tmp_path, monkeypatch):
    """Where sites keep a factor, it would count with the model that all begin with."""
    assessed = []
    assess = Measuring.assess

    def seen(self, cohort, ask):
        assessed.extend(site.name for site in cohort.sites)
        return assess(self, cohort, ask)

    monkeypatch.setattr(Measuring, "assess", wraps(assess)(seen))
    away = failing(LocalEngine, lambda site, ask: (site, ask.verb) == ("site-1", "train"))
    World(llama, tokenizer, tmp_path, config(pattern_weights="uniform"), rule="fedsa", engine=away).lead()
    assert set(assessed) == {"site-0"}


def test_what_cannot_be_counted_of_annotating_is_left_out(llama, tokenizer, tmp_path):
    world = World(llama, tokenizer, tmp_path, config(), engine=lying(LocalEngine, {"annotate": {}})).lead()
    assert [row.get("annotated") for row in world.rows] == [None, 6, 6, None]
    assert any("site-1 to 'annotate' is left out" in one for one in world.rows[1]["events"])
    told = {"annotated": 2, "left": 0}
    assert all(_unlike(Reply("site-1", fields)) is None for fields in (told, told | {"right": 2}))
    for fields in ({"annotated": 2}, told | {"right": "all"}, told | {"right": 3}):
        assert _unlike(Reply("site-1", fields)), fields


def test_a_closed_gate_annotates_nothing_until_the_last_event_and_both_are_told(llama, tokenizer, tmp_path, capsys):
    options = config(gate=0.99, rounds=4)
    world = World(llama, tokenizer, tmp_path, options, every=1)
    turned = {"bad": "good", "good": "bad"}  # no model that learns gets over the gate
    validation = world.public.validation
    validation.records = [Labelled(r.text, turned[r.label]) for r in validation.records]
    world.lead()
    assert [row.get("annotated") for row in world.rows] == [None, None, None, 12 + 8, None]
    assert [row.get("left_unlabelled") for row in world.rows] == [None, None, None, 0, None]
    first, _, third = (f"{row['validation_accuracy']:.3g}" for row in world.rows[1:4])
    events = [row["events"] for row in world.rows]
    assert [len(some) for some in events] == [0, 1, 1, 1, 0]
    assert events[1] == [f"the gate kept sites from annotating: validation accuracy {first} is not above 0.99"]
    assert events[3] == [
        f"all 20 texts left were annotated by a model of validation accuracy {third}, which the gate (0.99) would have "
        "kept from it"
    ]
    shown = capsys.readouterr().err
    assert f"round 3: {events[3][0]}\n" in shown
    assert "annotated 20, left unlabelled 0, " in shown


def test_annotating_all_at_once_is_told_where_the_gate_would_have_kept_it():
    """In two rounds nothing waits for a gate; without a validation set nobody knows what it would have done."""
    told = (
        "all 20 texts left were annotated by a model of validation accuracy 0.57, which the gate (0.7) would have kept "
        "from it"
    )
    method, server = build(config(rounds=2), AggregationConfig()), SimpleNamespace(note=lambda *_: None)
    server.ask = lambda *_, **__: [Reply("site-0", {"annotated": 20, "left": 0})]
    for accuracy, expected in ((0.57, [told]), (0.71, []), (None, [])):
        events = []
        server.event = events.append
        method._event(server, SimpleNamespace(sites=["site-0"]), 1, accuracy, [1.0, 1.0])
        assert events == expected, accuracy


@pytest.mark.parametrize("options", [{"select": "confidence", "hard": True}, {"select": "balanced"}])
def test_other_ways_to_annotate(llama, tokenizer, tmp_path, options):
    world = World(llama, tokenizer, tmp_path, config(**options)).lead()
    rows = [row for site in world.sites for _, row in site.store["annotated"]]
    assert len(rows) == 12 + 8
    assert all(set(row) == {0.0, 1.0} for row in rows) == ("hard" in options)


def annotated(world):
    """The labels that sites' annotated texts were given, by index, of every site."""
    return [np.array([row for _, row in sorted(site.store["annotated"])]) for site in world.sites]


def test_a_temperature_makes_labels_less_sure(llama, tokenizer, tmp_path):
    """Both runs train alike up to their only event, so that they label the same texts by the same scores."""

    def labels(temperature):
        options, alone = config(rounds=2, temperature=temperature), [Site("one", texts(8, 5))]
        return annotated(World(deepcopy(llama), tokenizer, tmp_path, options, sites=alone).lead())

    one, four = labels(1), labels(4)
    for sharp, flat in zip(one, four, strict=True):
        expected = sharp ** (1 / 4)  # softmax(s/T) is softmax(s) to the power of 1/T, made to sum to 1
        assert np.allclose(flat, expected / expected.sum(axis=1, keepdims=True), atol=1e-5)


def test_a_sum_of_words_is_sharper_than_their_mean(llama, tokenizer, tmp_path):
    """With two words of each label, and a model that hardly learns, sum doubles every score."""
    options = {"rounds": 2, "pattern_weights": "uniform"}
    plain = World(deepcopy(llama), tokenizer, tmp_path, config(**options), lr=1e-6).lead()
    assert plain.server.store["patterns"] == [1.0, 1.0]
    mean = annotated(plain)
    total = annotated(World(llama, tokenizer, tmp_path, config(**options, reduction="sum"), lr=1e-6).lead())
    for one, two in zip(mean, total, strict=True):
        assert np.allclose(two, one**2 / (one**2).sum(axis=1, keepdims=True), atol=1e-5)
        assert np.abs(two - one).max() > 1e-3


def test_pattern_weights_are_accuracies_by_default(plain):
    _, world = plain()
    records = world.public.validation.records
    scores = pattern_scores(world.bench, [world.server.adapter] * len(records), [r.text for r in records])
    truth = [("bad", "good").index(r.label) for r in records]
    assert world.server.store["patterns"] == list(pattern_accuracies(scores, truth))


def test_the_accuracy_on_the_validation_set_is_told_in_rounds_that_are_not_evaluated_too(plain):
    rows = plain()[1].rows
    assert ["accuracy" in row for row in rows] == [True, False, False, True]
    assert all(0 <= row["validation_accuracy"] <= 1 for row in rows)


def test_a_share_of_labels_is_kept(llama, tokenizer, tmp_path):
    options = config(labelled_records=None, labelled_share=0.25, annotate=False, rounds=1)
    world = World(llama, tokenizer, tmp_path, options).lead()
    assert [len(site.store["labelled"]) for site in world.sites] == [4, 3]  # of 16 and 12


def test_by_labels_alone_no_more_is_used_and_members_have_a_label_that_is_known(llama, tokenizer, tmp_path):
    world = World(llama, tokenizer, tmp_path, config(annotate=False), every=1, attacks=True).lead()
    for site in world.sites:
        known = [site.records[index] for index in site.store["labelled"]]
        assert world.method.members(site, world.server.stream) == known
    assert [row["attacks"]["attack"]["members"] for row in world.rows] == [4 + 4] * 4
    assert all(site.store["annotated"] == [] and len(site.store["pool"]) == site.size - 4 for site in world.sites)
    assert all("pseudo_accuracy" not in row for row in world.rows)
    assert world.method.verbs() == ["train"]


def test_a_threshold_lets_texts_wait_until_the_last_event(llama, tokenizer, tmp_path):
    """No model of this size is so sure before it has learnt; then everything is annotated all the same."""
    world = World(llama, tokenizer, tmp_path, config(threshold=0.999999), lr=1e-6).lead()
    assert [row.get("annotated") for row in world.rows] == [None, 0, 12 + 8, None]


def test_a_pool_may_be_used_up_before_the_last_event(llama, tokenizer, tmp_path):
    world = World(llama, tokenizer, tmp_path, config(rounds=4, chunk=1.0), sites=[Site("one", texts(6, 5))]).lead()
    assert [row.get("annotated") for row in world.rows] == [None, 2, 0, 0, None]


@pytest.mark.parametrize(("sample", "passes"), [(False, 2), (True, 1)])
def test_a_record_is_trained_on_in_all_patterns_or_one(llama, tokenizer, tmp_path, monkeypatch, sample, passes):
    world = World(llama, tokenizer, tmp_path, config(sample_pattern=sample, annotate=False, rounds=1))
    rows, read = [], world.bench.bank.head.logits_at

    def counting(ids, *rest):
        if torch.is_grad_enabled():
            rows.append(len(ids))
        return read(ids, *rest)

    monkeypatch.setattr(world.bench.bank.head, "logits_at", counting)
    world.lead()
    assert sum(rows) == passes * 2 * (4 + 4)  # epochs, labelled texts of both sites


def test_what_sites_annotated_rests_with_them(plain):
    folder, world = plain()
    kept = latest(folder / "checkpoint")
    [site, _] = world.sites
    assert SiteStore(site.kept.folder, site.name).rewind(kept.round)["annotated"] == site.store["annotated"] != []
    assert same(kept.server["adapter"], world.server.adapter)


def test_where_sites_keep_a_factor_no_site_sees_the_validation_records(llama, tokenizer, tmp_path, monkeypatch):
    """Sites measure models of their own, with the held-out records alone; the server's adapter has B = 0, and its
    accuracy would be that of the base model in every round."""
    asked, payload = [], Ask.payload
    monkeypatch.setattr(Ask, "payload", lambda self, site: asked.append(payload(self, site)) or asked[-1])
    options = config(pattern_weights="uniform")
    world = World(llama, tokenizer, tmp_path, options, rule="fedsa", every=3, attacks=True).lead()
    assert ["accuracy" in row for row in world.rows] == [True, False, False, True]
    assert ["validation_accuracy" in row for row in world.rows] == [True, False, False, False]
    assert world.rows[-1]["heldout_loss"] < world.rows[0]["heldout_loss"]
    sent = [fields for fields in asked if "heldout" in fields]
    texts_sent = {record["text"] for fields in sent for record in fields["heldout"] + fields["nonmembers"]}
    assert sent and texts_sent.isdisjoint(record.text for record in world.public.validation.records)


@pytest.mark.parametrize("rule", ["ffa", "fedex"])
def test_aggregation_rules(llama, tokenizer, tmp_path, rule):
    world = World(llama, tokenizer, tmp_path, rule=rule).lead()
    assert world.rows[-1]["heldout_loss"] < world.rows[0]["heldout_loss"]


@pytest.mark.parametrize("options", [{"gate": 0.7, "pattern_weights": "uniform"}, {"gate": 0.0}])
def test_a_server_without_a_model_has_nothing_to_validate(options):
    """Under fedsa its adapter's B is zero for ever, so that gate and weights would be those of the base model."""
    with pytest.raises(ConfigError, match="no model to validate") as error:
        method_with(config(**options).model_dump(), rule="fedsa")
    assert "pattern_weights = 'uniform'" in error.value.fix


def test_the_threshold_is_on_labels_at_their_temperature(llama, tokenizer, tmp_path):
    """At T = 1000 every label is as likely as the other, so that nothing is above a threshold."""
    for temperature, taken in ((1.0, 2), (1000.0, 0)):
        options, alone = config(threshold=0.501, temperature=temperature), [Site("one", texts(8, 5))]
        world = World(deepcopy(llama), tokenizer, tmp_path / str(temperature), options, sites=alone).lead()
        assert world.rows[1]["annotated"] == taken


def test_all_parameters(bert, tokenizer, tmp_path):
    world = World(bert, tokenizer, tmp_path, lora=False).lead()
    assert world.rows[-1]["heldout_loss"] < world.rows[0]["heldout_loss"]


def test_records_without_a_label_are_the_pool(llama, tokenizer, tmp_path):
    records = [Labelled(r.text, r.label if k < 6 else "") for k, r in enumerate(texts(14, 5))]
    world = World(llama, tokenizer, tmp_path, config(labelled_records=None), sites=[Site("one", records)]).lead()
    assert world.sites[0].store["labelled"] == list(range(6))
    assert all("pseudo_accuracy" not in row for row in world.rows)  # nobody knows the truth


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([Labelled("rash", "")] * 3, "no record has a label"),
        ([Labelled("rash", "bad"), Labelled("help", "good")], "no unlabelled text"),
    ],
)
def test_a_site_that_cannot_take_part_is_named(llama, tokenizer, tmp_path, records, message):
    world = World(llama, tokenizer, tmp_path, config(labelled_records=None), sites=[Site("one", records)])
    with pytest.raises(DataError, match=message) as error:
        world.lead()
    assert error.value.where == "site one"


def test_other_rounds_are_refused_only_where_they_decide_how_much_is_annotated():
    assert not config(annotate=False).fixed_on_resume
    assert config().fixed_on_resume
