"""A plan's figures against what a run of the same experiment really does."""

import json
import shutil
from collections import Counter
from dataclasses import asdict

import pytest
from safetensors.torch import load_file

import murmura.federation.site.cohort
import murmura.model_runtime
from murmura.errors import ConfigError, DataError, ModelError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.federation.server import publication
from murmura.federation.wire.messages import size
from tests.experiment.small import ALGORITHMS, HELDOUT, SIZES, record, write_data, write_lines

METHODS = {name: ALGORITHMS[name] for name in ("fedavg", "scaffold", "fedadam", "fedavgm", "centralised", "local")}
METHODS["beta 1"] = {"method": {"name": "fewfedpit", "beta": 1.0}}
WRITERS = {
    "fewfedpit": {"name": "fewfedpit", "keep": 2, "instruction_tokens": 8, "example_tokens": 8},
    "fedmit": {"name": "fedmit", "keep": 2, "instruction_tokens": 8, "example_tokens": 8},
    "locit-sg": {"name": "locit-sg", "keep": 2, "instruction_tokens": 8, "example_tokens": 8},
    "fewfedweight": {"name": "fewfedweight", "answer_tokens": 8},
}
PROTECTED = {
    "dpfedavg": {"name": "dpfedavg", "noise_multiplier": 1.0},
    "dpftrl": {"name": "dpftrl", "noise_multiplier": 1.0},
    "dplora": {"name": "dplora", "noise_multiplier": 1.0},
    "tfedavg": {"name": "tfedavg"},
    "cmfl": {"name": "cmfl"},
}

FAILURES = {("commit", "unkept")}  # what leaves only where something has gone wrong


def fields(expected):
    return {(row.verb, row.field) for row in expected.disclosure}


@pytest.fixture
def watched(monkeypatch, no_page):
    """Optimiser steps and tokens written, by round, of a run that is made meanwhile."""
    steps, tokens = Counter(), Counter()
    train, complete = murmura.federation.site.cohort.train, murmura.model_runtime.complete
    Cohort = murmura.federation.site.cohort.Cohort
    now = [0]

    def noting_the_round(self, *parts):
        begin(self, *parts)
        now[0] = self.round

    def counting_steps(*parts, **options):
        results = train(*parts, **options)
        steps[now[0]] += sum(result.steps for result in results)
        return results

    def counting_tokens(*parts, **options):
        written = complete(*parts, **options)
        tokens[now[0]] += sum(len(text.ids) for text in written)
        return written

    begin = Cohort.__init__
    monkeypatch.setattr(Cohort, "__init__", noting_the_round)
    monkeypatch.setattr("murmura.federation.site.cohort.train", counting_steps)
    monkeypatch.setattr("murmura.model_runtime.complete", counting_tokens)
    return steps, tokens


@pytest.mark.parametrize("sections", METHODS.values(), ids=METHODS)
def test_steps_bytes_and_sites_are_those_of_the_run(make, watched, sections):
    experiment = make(**sections)
    expected = dry_run(experiment)
    result = run(experiment)
    steps, _ = watched
    assert [planned.steps for planned in expected.rounds] == [steps[round] for round in (1, 2)]
    assert [site.steps for site in expected.sites] == ([5] if experiment.method.name == "centralised" else [3, 2])
    reported = json.loads((result.folder / "sites.json").read_text())
    planned = [{k: v for k, v in asdict(site).items() if k not in ("labelled", "steps")} for site in expected.sites]
    assert planned == reported
    released = json.loads((result.folder / "disclosure.json").read_text())
    if experiment.method.name == "centralised":  # where only the records travel, before the first round
        [brought] = [row["bytes"] for row in released if row["kind"] == "records"]
        assert [(row["bytes_up"], row["bytes_down"]) for row in result.rows] == [(brought, 0), (0, 0), (0, 0)]
        assert [(planned.bytes_up, planned.bytes_down) for planned in expected.rounds] == [(0, 0)] * 2 and brought > 0
    else:
        uploaded = sum(row["bytes"] for row in released if row["kind"] == "weights")
        assert sum(planned.bytes_up for planned in expected.rounds) == uploaded
        for planned, row in zip(expected.rounds, result.rows[1:], strict=True):
            # The ask's only other field is the learning rate.
            rate = round(row["bytes_down"] - planned.bytes_down)
            assert rate == planned.sites * size({"lr": 5e-3}) if row["round"] == 1 else rate < planned.sites * 40
    assert fields(expected) == {(row["verb"], row["field"]) for row in released} | FAILURES
    assert_disk(expected, result.folder)
    adapters = [load_file(path) for path in result.folder.rglob("adapter_model.safetensors")]
    assert len(adapters) == (len(SIZES) if experiment.method.name == "local" else 1)
    assert all(any(state[name].abs().max() > 0 for name in state if "lora_B" in name) for state in adapters)


def assert_disk(expected, folder):
    """It holds three checkpoints and the adapters."""
    final = "sites" if expected.plan.method.title in ("Local only", "LocIT+SG") else "adapter"
    assert expected.disk == 3 * numbers(folder, "round-0002*") + numbers(folder / final) + tokenizers(folder / final)


@pytest.mark.parametrize(
    "options", [{"rule": "fedsa"}, {"rule": "fedex"}, {"rule": "flora"}, {"travel": "int8"}, {"travel": "bfloat16"}]
)
def test_the_disk_holds_what_a_rule_keeps(make, watched, options):
    """Each site's adapter, or a residual beside the global one; or what rounding has left out of each site's upload."""
    experiment = make(aggregation=options, evaluation={"attacks": False})
    expected = dry_run(experiment)
    folder = run(experiment).folder
    final = "sites" if options.get("rule") == "fedsa" else "adapter"
    assert expected.disk == 3 * numbers(folder, "round-0002*") + numbers(folder / final) + tokenizers(folder / final)


def tokenizers(folder):
    """Bytes of all tokenizers in a folder, on one line each."""
    files = [json.loads(path.read_text()) for path in folder.rglob("tokenizer.json")]
    return sum(len(json.dumps(file, ensure_ascii=False, separators=(",", ":")).encode()) for file in files)


def numbers(folder, generation="*"):
    """Bytes of all floating-point tensors in a folder, or of one generation of what the server and sites keep in it;
    what counts rounds is left out."""
    paths = {path for found in folder.rglob(generation) for path in (found, *found.rglob("*"))}
    files = [load_file(path) for path in paths if path.suffix == ".safetensors"]
    return sum(tensor.nbytes for file in files for tensor in file.values() if tensor.is_floating_point())


@pytest.mark.parametrize("method", WRITERS.values(), ids=WRITERS)
def test_what_is_not_known_before_is_planned_at_its_most(make, watched, method):
    experiment = make(method=method, evaluation={"sample": 1})
    expected = dry_run(experiment)
    result = run(experiment)
    steps, tokens = watched
    for round, planned in enumerate(expected.rounds, start=1):
        assert steps[round] <= planned.steps
        assert 0 < tokens[round] <= expected.count("tokens to write") + expected.count("tokens to measure")
        # Beside adapters, an ask holds a learning rate and little else.
        assert 0 <= result.rows[round]["bytes_down"] - planned.bytes_down < 40 * planned.sites
    assert 0 < tokens[0] <= expected.count("tokens to measure")
    released = json.loads((result.folder / "disclosure.json").read_text())
    uploaded = sum(row["bytes"] for row in released if row["kind"] == "weights")
    assert sum(planned.bytes_up for planned in expected.rounds) == uploaded
    assert fields(expected) == {(row["verb"], row["field"]) for row in released} | FAILURES
    assert_disk(expected, result.folder)


@pytest.mark.parametrize("method", PROTECTED.values(), ids=PROTECTED)
def test_attacks_on_uploads_are_announced_in_whatever_form_those_travel(make, watched, method):
    experiment = make(method=method | {"rounds": 1}, evaluation={"attacks": True, "sample": 1})
    expected = dry_run(experiment)
    released = json.loads((run(experiment).folder / "disclosure.json").read_text())
    assert fields(expected) == {(row["verb"], row["field"]) for row in released} | FAILURES
    assert ("attack", "upload_tally") in fields(expected)
    assert 0 < watched[1][1] <= expected.count("tokens to measure")


def test_fewfedpit_counts_both_branches_and_every_attempt(make):
    pit = {"name": "fewfedpit", "keep": 4, "rounds": 3}
    expected = dry_run(make(method=pit))
    assert [site.steps for site in expected.sites] == [3 + 2, 2 + 2]
    assert expected.count("tokens to write") == 2 * (6 * 8 * 64 + 3 * 8 * 192)
    assert [planned.steps for planned in dry_run(make(method=pit | {"accumulate": True})).rounds] == [9, 13, 17]
    joint = dry_run(make(method=pit | {"name": "fedmit"}))
    assert [site.steps for site in joint.sites] == [3 + 5, 2 + 4]  # the judge, then both kinds together
    alone = dry_run(make(method=pit | {"beta": 0.0, "judge": "global"}))
    assert [site.steps for site in alone.sites] == [2, 2]


def test_sampled_rounds_are_those_of_the_run(make, watched):
    experiment = make(method={"sites_per_round": 1, "rounds": 5}, evaluation={"attacks": False, "every": 5})
    expected = dry_run(experiment)
    run(experiment)
    assert {planned.sites for planned in expected.rounds} == {1}
    assert {planned.steps for planned in expected.rounds} == {2, 3}
    assert [planned.steps for planned in expected.rounds] == [watched[0][round] for round in range(1, 6)]


def test_nothing_is_written_and_no_weights_are_read(make, llama_folder, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(llama_folder, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    before = sorted(tmp_path.rglob("*"))
    expected = dry_run(make(model={"name": str(bare)}))
    assert sorted(tmp_path.rglob("*")) == before
    assert expected.plan.unknown == []
    # Two layers, q [32, 32] and v [16, 32], rank 2.
    assert expected.model.trainable == 2 * ((32 + 32) + (32 + 16))
    assert expected.model.trainable == dry_run(make()).model.trainable


def test_sizes_of_the_base(make, llama_folder):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(llama_folder)
    count = sum(parameter.numel() for parameter in model.parameters())
    linear = sum(
        m.weight.numel() for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"
    )
    found = dry_run(make(model={"device": "cpu"})).model
    assert (found.parameters, found.base_bytes) == (count, 4 * count)
    half = dry_run(make(model={"dtype": "bfloat16", "quantization": "int8"})).model
    assert half.base_bytes == 2 * (count - linear) + linear
    whole = dry_run(make(model={"trainable": "all", "dtype": "float32"}))
    assert (whole.model.trainable, whole.model.base_bytes) == (count, 0)
    assert whole.memory.adapters == 4 * 4 * count  # one slot: weights, gradients, two moments


def test_all_parameters_train_in_float32_on_a_gpu_too(make):
    whole = [
        dry_run(make(model={"trainable": "all", "device": "cuda"} | dtype)) for dtype in ({}, {"dtype": "float32"})
    ]
    assert whole[0].memory == whole[1].memory
    adapter = [dry_run(make(model={"device": "cuda"} | dtype)) for dtype in ({}, {"dtype": "bfloat16"})]
    assert adapter[0].memory == adapter[1].memory


def test_memory_grows_with_the_slots_that_are_used(make):
    adapter = dry_run(make()).model.trainable * 4
    assert dry_run(make()).memory.adapters == 2 * 4 * adapter  # two sites
    assert dry_run(make(run={"slots": 1})).memory.adapters == 4 * adapter
    assert dry_run(make(training={"optimizer": "sgd"})).memory.adapters == 2 * 2 * adapter
    memory = dry_run(make(model={"device": "cpu"})).memory
    assert memory.total == memory.libraries + memory.base + memory.adapters + memory.passing
    workers = dry_run(make(model={"device": "cpu"}, run={"engine": "processes", "workers": 3})).memory
    assert workers.processes == 4 and workers.total == 4 * memory.total  # the server has a model too
    one = dry_run(make(training={"batch_size": 100, "tokens_per_pass": 1000})).memory.passing
    two = dry_run(make(training={"batch_size": 100, "tokens_per_pass": 2000})).memory.passing
    assert one < two


def test_records_that_do_not_fit_are_counted(make, tmp_path):
    long = record("skin", 7) | {"input": "please call the clinic " * 60}
    endless = record("skin", 8) | {"output": "please call the clinic " * 60}
    write_lines(tmp_path / "sites" / "skin.jsonl", [record("skin", 0), long, endless])
    skin = dry_run(make()).sites[1]
    assert (skin.records, skin.used, skin.truncated, skin.dropped, skin.steps) == (3, 2, 1, 1, 1)


def test_bad_records_are_counted_or_named(make, tmp_path):
    write_lines(tmp_path / "sites" / "skin.jsonl", [record("skin", 0), {"instruction": "explain"}])
    assert dry_run(make(data={"skip_bad": True})).unused("bad") == 1
    with pytest.raises(DataError, match=r"skin\.jsonl:2"):
        dry_run(make())


def test_a_model_that_is_out_of_reach_leaves_the_rest(make):
    found = dry_run(make(model={"name": "nobody/nothing"}))
    assert found.model is None and found.memory is None and found.disk is None
    assert found.count("tokens to measure") is None
    assert len(found.plan.unknown) == 1 and "nobody/nothing" in found.plan.unknown[0]
    assert [(site.records, site.used) for site in found.sites] == [(size, None) for size in SIZES.values()]
    assert [(r.sites, r.steps, r.bytes_up) for r in found.rounds] == [(2, 5, None)] * 2
    assert found.example.startswith("Below is an instruction")
    assert any("as if every record fitted" in note for note in found.notes)


def test_records_that_are_out_of_reach_leave_the_rest(make):
    hub = {"train": "nobody/nothing", "heldout": None, "heldout_records": 5}
    found = dry_run(make(data=hub | {"sites": {"by": "partition", "count": 3}}, method={"sites_per_round": 2}))
    assert found.sites is None and found.heldout is None and found.unused("bad") is None and found.example is None
    assert len(found.plan.unknown) == 1 and found.plan.unknown[0].startswith("The records: nobody/nothing")
    adapter = found.model.trainable * 4
    assert [(r.sites, r.steps, r.bytes_up) for r in found.rounds] == [(2, None, 2 * adapter)] * 2
    assert found.memory.slots == 2
    assert {row.verb for row in found.disclosure} == {"join", "commit", "train", "attack"}
    unsure = dry_run(make(data=hub | {"sites": {"by": "column", "column": "owner"}}))
    assert [(r.sites, r.bytes_up) for r in unsure.rounds] == [(None, None)] * 2 and unsure.memory is None


def test_mistakes_in_names_are_not_taken_for_a_lack_of_network(make, tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        dry_run(make(data={"train": str(tmp_path / "nowhere")}))
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        dry_run(make(model={"name": str(tmp_path / "nowhere")}))
    with pytest.raises(ModelError, match=r"no module of the model is called q_prj.*q_proj"):
        dry_run(make(lora={"targets": ["q_prj"]}))
    with pytest.raises(ConfigError, match="template"):
        dry_run(make(data={"template": "alpacca"}))


def test_a_masked_model_is_refused(make, bert, tokenizer, tmp_path):
    bert.save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    with pytest.raises(ModelError, match="masked"):
        dry_run(make(model={"name": str(tmp_path / "bert")}))


def test_clusters_are_stood_in_for_and_the_plan_says_so(make, tmp_path, monkeypatch):
    monkeypatch.setattr("murmura.experiment.sites.Encoder.embed", lambda *_: pytest.fail("an encoder was loaded"))
    write_lines(tmp_path / "all.jsonl", [record("heart", number) for number in range(40)])
    partition = {"by": "partition", "count": 4, "scheme": "dirichlet-equal"}
    found = dry_run(
        make(data={"train": "all.jsonl", "few_shot": {"clusters": 5, "per_cluster": 4}, "sites": partition})
    )
    assert sum(site.records for site in found.sites) <= 20
    assert max(site.records for site in found.sites) - min(site.records for site in found.sites) <= 1
    assert any("Random vectors stand in" in note for note in found.notes)
    assert not any("Random vectors" in note for note in dry_run(make()).notes)


def test_a_folder_with_a_run_is_noted(make, no_page):
    run(make(method={"rounds": 1}, evaluation={"attacks": False}))
    assert any("already holds a run" in note for note in dry_run(make()).notes)


def test_the_example_is_public(make, tmp_path):
    write_data(tmp_path)
    found = dry_run(make())
    assert "kidney" in found.example and len(found.heldout) == HELDOUT


def test_records_of_the_sites_own_to_measure_with_are_disclosed(make):
    for data, expected in (({}, []), ({"heldout": None, "heldout_records": 4}, [4]), ({"nonmember_records": 2}, [2])):
        found = [one for one in dry_run(make(data=data)).disclosure if one.verb == "(set apart)"]
        assert [one.messages for one in found] == expected
        assert all((one.kind, one.protection) == ("records", None) for one in found)


def test_pooling_is_disclosed(make):
    first = dry_run(make(method={"name": "centralised"})).disclosure[0]
    assert (first.verb, first.kind, first.messages) == ("(set-up)", "records", sum(SIZES.values()))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"name": "fedit"}, ["none"]),
        ({"name": "dplora", "epsilon": 4.0}, ["ε = 4.000 by", "record-level", "Poisson"]),
        ({"name": "dplora", "noise_multiplier": 0.0}, ["none"]),
        ({"name": "dplora", "preset": "paper"}, ["ε = ", "record-level"]),
        ({"name": "dpfedavg", "epsilon": 2.0}, ["ε = 2.000 by exact", "site-level"]),
        ({"name": "dpftrl", "epsilon": 2.0}, ["ε = 2.000 by exact", "site-level"]),
    ],
)
def test_what_would_be_guaranteed(make, options, told):
    private = options["name"] != "fedit"
    found = dry_run(make(method={**options, "rounds": 3}, training={"batch_size": 1} if private else {}))
    assert all(words in found.guarantee for words in told), found.guarantee


def test_aggregation_rules_are_in_the_bytes(make):
    """A and B are as large as the model says; a residual grows by what the sites add, up to the weight's own rank."""
    ways = {}
    for rule in ("mean", "ffa", "rolora", "fedsa", "fedex", "flora"):
        found = dry_run(make(method={"name": "fedit", "rounds": 4}, aggregation={"rule": rule}))
        ways[rule] = [(round.bytes_down, round.bytes_up) for round in found.rounds]
    state = found.model.state
    a, b = (4 * sum(t.numel() for name, t in state.items() if f".lora_{f}." in name) for f in "AB")
    sites = found.rounds[0].sites
    assert ways["mean"] == [(sites * (a + b), sites * (a + b))] * 4
    assert ways["ffa"] == [(sites * b, sites * b)] * 4
    assert ways["rolora"] == [(sites * (a + b), sites * x) for x in (b, a, b, a)]
    assert ways["fedsa"] == [(sites * a, sites * a)] * 4
    for rule in ("fedex", "flora"):
        downs = [down for down, _ in ways[rule]]
        assert downs[0] == sites * (a + b)
        assert downs == sorted(downs)
        assert downs[1] > downs[0]


def test_the_records_that_attacks_score_are_those_of_the_run(make, monkeypatch, no_page):
    """Members and non-members under the model, and under single uploads; the base model reads each once besides."""
    from murmura.generation import scoring

    scored, read = [], scoring.score

    def counted(what, bank, items, *rest, **options):
        scored.extend([len(items)] * (what is scoring.TOKENS))
        return read(what, bank, items, *rest, **options)

    monkeypatch.setattr("murmura.model_runtime.score", counted)
    asked = make(method={"rounds": 1})
    expected = dry_run(asked)
    run(asked)
    sites = sum(site.records for site in expected.sites)
    assert 0 < sum(scored) <= expected.count("records to attack") + sites + len(expected.heldout)
    assert dry_run(make(evaluation={"attacks": False})).count("records to attack") == 0


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"method": {"name": "local"}},
        {"evaluation": {"attack_records": 5}},
        {"method": PROTECTED["dplora"], "evaluation": {"attacks": True, "attack_records": 6}},
        {"method": {"name": "vanilla-fl"}, "evaluation": {"attack_records": 10}},
        {"audit": {"canaries": 2}},
    ],
)
def test_attacks_compare_as_many_as_a_dry_run_says(make, no_page, monkeypatch, tables):
    """Not those that choose the strongest attack. Where an ε is promised, the run does not say how many they were."""
    whole, plain = [], publication._of_attacks
    monkeypatch.setattr(publication, "_of_attacks", lambda row: whole.append(row) or plain(row))
    tables = {**tables, "method": {"rounds": 1, **tables.get("method", {"name": "fedit"})}}
    asked = make(**tables)
    [note] = [note for note in dry_run(asked).notes if "say little" in note]
    rows = run(asked).rows
    told = (whole or rows)[-1]["attacks"]["attack"]
    assert f"Attacks compare {told['members']} members with {told['others']} non-members, and choose" in note
    assert (rows[-1]["attacks"]["attack"]["members"] is None) == bool(whole)


def test_an_attack_that_will_say_little_is_noted_with_what_to_do(make):
    [note] = [note for note in dry_run(make()).notes if "say little" in note]
    assert "data.nonmember_records" in note
    [note] = [
        note for note in dry_run(make(data={"heldout": None, "heldout_records": 4})).notes if "say little" in note
    ]
    assert "(data.heldout_records)" in note and "nonmember_records" not in note  # which is refused without data.heldout
    assert not any("say little" in note for note in dry_run(make(evaluation={"attacks": False})).notes)


@pytest.mark.parametrize("method", [PROTECTED["dplora"], PROTECTED["dpfedavg"], PROTECTED["tfedavg"]])
def test_that_attacks_ask_small_sites_as_much_as_large_ones_is_noted_with_what_to_do(make, tmp_path, method):
    def noted(most, **tables):
        asked = make(**{"method": method, "evaluation": {"attacks": True, "attack_records": most}} | tables)
        return [note for note in dry_run(asked).notes if "as much of a small site" in note]

    [note] = noted(10)  # the larger of both sites has 6 records
    assert "evaluation.attack_records = 100 all" in note  # no product of the larger one's number
    assert not noted(12) and not noted(6, evaluation={"attacks": False})
    assert not noted(6, method={"name": "fedit"}) and not noted(6, method={"name": "local"})
    write_lines(tmp_path / "all.jsonl", [record("lung", number) for number in range(9)])
    assert not noted(4, data={"train": "all.jsonl", "sites": {"by": "partition", "count": 2}})


def test_where_members_are_few_nobody_is_told_to_hold_out_more_of_them(make, monkeypatch):
    asked = make(data={"heldout": None, "heldout_records": 4})
    monkeypatch.setattr("murmura.experiment.forecast.notes._compared", lambda *_: ((14, 28), 0))
    [note] = [note for note in dry_run(asked).notes if "say little" in note]
    assert "14 members" in note and "more records to train on" in note and "old out" not in note


def test_more_replies_than_sites_that_are_asked_are_noted(make):
    assert not any("min_replies" in note for note in dry_run(make(run={"min_replies": 2})).notes)
    for cohort, asked in ((None, "2 sites"), (1, "1 site"), (20, "2 sites")):
        options = {} if cohort is None else {"sites_per_round": cohort}
        found = dry_run(make({"name": "fedit", "rounds": 1, **options}, run={"min_replies": 9})).notes
        [note] = [note for note in found if "min_replies" in note]
        assert note.startswith(f"run.min_replies is 9, and a round asks {asked} at most: all that are asked")
