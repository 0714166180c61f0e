"""A whole comparison of tiny models, whose runs are made in this process."""

import json
import re
import shutil
import tomllib
from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import tomli_w
from safetensors.torch import load_file, save_file

from murmura.augment import writing
from murmura.compare import comparison as comparison_module
from murmura.compare import jobs
from murmura.compare.arms import load
from murmura.compare.comparison import Comparison
from murmura.compare.files import write
from murmura.compare.jobs import FIGURES, PICTURE, TABLE
from murmura.compare.outcome import with_search
from murmura.compare.remarks import remarks
from murmura.compare.view import answers, markdown, section
from murmura.data.records import Instruction
from murmura.drafting.draft import Drafts
from murmura.errors import CheckpointError, ConfigError, RunError
from murmura.methods.dplora.method import DPLoRA
from murmura.privacy import odometer, run_ledgers
from murmura.privacy.standing import rounded
from murmura.report.card import run_card
from murmura.report.content import ReportSection
from murmura.report.in_short import COST, in_short
from murmura.report.sections.guarantee import guarantee
from murmura.report.sheet import sheet
from murmura.report.table import table as table_of
from murmura.runs.folder import RunFolder
from murmura.runs.names import CHOSEN_BY, CONFIG, ENVIRONMENT, REPORT, SUMMARY
from murmura.runs.record import read
from murmura.status.status import look
from murmura.status.view import lines
from murmura.units import bound
from tests.compare.conftest import ARMS, RATES
from tests.report.blocks import said, tables


def test_an_arm_at_a_given_rate_is_not_searched_and_that_is_told(comparison, begun):
    control = {"name": "control", "rates": RATES[:1], "model": {"trainable": "all"}}
    whole = comparison(seeds=1, arms=[{"name": "FedAvg"}, control])
    outcome = whole.carry_out(1, whole.check())
    assert begun == [*(f"FedAvg-rate{rate:g}-seed10000" for rate in RATES), "FedAvg-seed0", "control-seed0"]
    assert [one.rate for one in outcome.results][1] == RATES[0] and not outcome.results[1].tried
    assert tomllib.loads(outcome.results[1].runs[0].config)["model"]["trainable"] == "all"
    assert any("but control, whose rate was given, trained" in remark for remark in outcome.remarks)


def test_a_control_has_the_rate_of_the_arm_that_it_controls_and_its_epsilon_counts_that_search(comparison, begun):
    again = {"method": ARMS[1]["method"], "training": {"clip": 0.5}}
    control = {"name": "control", "rate_of": "private"} | again
    whole = comparison(seeds=1, arms=[{"name": "FedAvg"}, control, ARMS[1]])
    outcome = whole.carry_out(1, whole.check())
    assert not any(name.startswith("control-rate") for name in begun)
    assert begun[-2:] == ["control-seed0", "private-seed0"]
    _, own, private = outcome.results
    assert own.rate == private.rate and own.tried == private.tried
    # The same noise, and the same search: without it, ε would be that of one run.
    assert own.epsilon == pytest.approx(private.epsilon) and own.epsilon > max(_by_itself(own.runs.values())) + 1
    assert not any("does not count what its rate was found by" in remark for remark in outcome.remarks)
    given = comparison(seeds=1, arms=[{"name": "FedAvg"}, {"name": "given", "rates": RATES[:1]} | again])
    remarks = given.carry_out(1, given.check()).remarks
    assert "The ε of given does not count what its rate was found by." in remarks


def test_a_search_of_an_arm_whose_name_begins_like_anothers_is_not_counted_twice(comparison):
    names = ["private", "private-rate-control", "private-rate0.01"]
    arms = [ARMS[1] | {"name": name, "training": {"clip": 0.5 + i}} for i, name in enumerate(names)]
    whole = comparison(seeds=1, rates=[1e-5, 2e-3], arms=arms)
    _search_has_begun(whole)
    for arm in whole.arms:
        own = sorted(job.folder for job in whole.searches if job.arm is arm)
        assert len(own) == 2 and whole._ever_searched(arm) == own


def _search_has_begun(whole):
    for job in whole.searches:
        job.folder.mkdir(parents=True)
        (job.folder / CONFIG).write_text(job.experiment.dump())
        (job.folder / ENVIRONMENT).touch()


@pytest.mark.parametrize("more", [{}, {"audit": {"keep": True, "canaries": 2}}, {"personal": {"steps": 9}}])
def test_the_search_of_an_arm_counts_under_whatever_name_it_was_made(comparison, table, more):
    """A new name does not undo what it has seen; and of another folder the user says what counts."""
    table |= more
    before = comparison(seeds=1, arms=[ARMS[1]])
    _search_has_begun(before)
    old = sorted(job.folder for job in before.searches)
    after = comparison(seeds=1, rates=[2e-3], arms=[ARMS[1] | {"name": "renamed"}])
    [arm], [run] = after.arms, after.runs({"renamed": 2e-3})
    assert after._ever_searched(arm) == old == list(run.chosen_by)
    assert run.experiment.run.chosen_by == list(map(str, old))
    other = comparison(seeds=1, arms=[ARMS[1] | {"training": {"clip": 0.5}, "name": "other"}])
    assert other._ever_searched(other.arms[0]) == []
    (old[0] / CONFIG).write_text("[run]\n[method]\ntorn")  # it may have been one
    assert other._ever_searched(other.arms[0]) == old[:1]


@pytest.mark.parametrize(
    ("changed", "arm"),
    [
        ({}, {"training": {"tokens_per_pass": 64, "precision": "float32"}}),
        ({"budget": {"folder": "accounts", "epsilon": 20.0}}, {}),
        ({"tracking": {"to": ["tensorboard"]}}, {}),
        ({"run": {"min_replies": 2, "decode_dtype": "model"}}, {}),
        ({"data": {"train": "others", "heldout": "heldout.jsonl", "max_length": 64}}, {}),
        ({"evaluation": {"sample": 0}, "personal": {}, "audit": {"canaries": 2}}, {}),
        ({}, {"method": {"delta": 1e-6, "accountant": "rdp", "adjacency": "replace-one"}}),
    ],
)
def test_a_renamed_arm_s_search_counts_whatever_else_was_changed_that_makes_no_other_arm(
    comparison, table, changed, arm
):
    private = {"name": "dplora", "noise_multiplier": 1.0}
    before = comparison(seeds=1, arms=[{"name": "private", "method": private}])
    _search_has_begun(before)
    table |= changed
    renamed = {"name": "renamed"} | arm | {"method": private | arm.get("method", {})}
    after = comparison(seeds=1, arms=[renamed])
    assert after._ever_searched(after.arms[0]) == sorted(job.folder for job in before.searches)
    other = comparison(seeds=1, arms=[renamed | {"lora": {"rank": 3}}])
    assert other._ever_searched(other.arms[0]) == []


def test_a_renamed_arm_s_search_counts_wherever_its_files_are_now(comparison, table, tmp_path):
    def arm(name, place, **more):
        return {"name": name, "augment": {"pool": f"{place}/pool", "site_encoder": f"{place}/encoder"} | more}

    for place in ("here", "there"):
        (tmp_path / place / "encoder").mkdir(parents=True)
        (tmp_path / place / "pool").mkdir()
    before = comparison(seeds=1, arms=[arm("centres", "here", noise_multiplier=1.0)])
    _search_has_begun(before)
    after = comparison(seeds=1, arms=[arm("renamed", "there", noise_multiplier=1.0, noise_delta=1e-6)])
    assert after._ever_searched(after.arms[0]) == sorted(job.folder for job in before.searches)
    more = comparison(seeds=1, arms=[arm("renamed", "there", noise_multiplier=1.0, clusters=3)])
    assert more._ever_searched(more.arms[0]) == []


def test_runs_that_the_file_names_count_in_the_epsilon_of_a_comparison_too(comparison, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table["run"] = {"chosen_by": ["runs/before"]}
    [run] = comparison(seeds=1, rates=[], arms=[ARMS[1]]).runs({"private": 2e-3})
    assert run.experiment.run.chosen_by == [str(tmp_path / "runs/before")]


def test_runs_that_the_file_of_an_arm_names_count_for_a_control_of_another_file_that_has_its_rate(
    table, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    del table["compare"]
    own = table | {"run": {"chosen_by": ["runs/before"]}, "method": ARMS[1]["method"]}
    control = {"name": "control", "rate_of": "DP-LoRA ε=8", "training": {"clip": 0.5}, "method": own["method"]}
    files = [tmp_path / "own.toml", tmp_path / "controls.toml"]
    for file, one in zip(files, (own, table | {"compare": {"arms": [control]}}), strict=True):
        file.write_text(tomli_w.dumps(one))
    found = Comparison(*load(files), tmp_path / "out").runs({"DP-LoRA ε=8": 2e-3, "control": 2e-3})
    assert {job.arm.name for job in found} == {"DP-LoRA ε=8", "control"}
    assert all(job.chosen_by == (tmp_path / "runs/before",) for job in found)


def test_every_arm_is_searched_alike_and_run_with_every_seed_at_its_best_rate(comparison, begun, tmp_path):
    whole = comparison()
    outcome = whole.carry_out(1, whole.check())
    assert begun[:4] == [f"{arm}-rate{rate:g}-seed10000" for arm in ("FedAvg", "private") for rate in RATES]
    assert begun[4:] == [f"{arm}-seed{seed}" for seed in (0, 1) for arm in ("FedAvg", "private")]
    searched = [read(folder) for folder in (tmp_path / "out" / "search").iterdir() if folder.is_dir()]
    assert len(searched) == 4 and not any("attack_auc" in run.last.values for run in searched)  # it chooses no rate
    for one in outcome.results:
        assert len(one.values("attack_auc")) == 2
        assert len(one.tried) == 2 and one.rate == min(one.tried, key=lambda tried: tried.utility).rate
        for seed, record in one.runs.items():
            kept = tomllib.loads(record.config)
            assert (kept["run"]["seed"], kept["training"]["lr"]) == (seed, one.rate)
    plain, private = outcome.results
    assert plain.epsilon is None
    assert private.epsilon > max(_by_itself(private.runs.values())) + 1
    assert plain.steps == 2 * 1  # eight records of two sites in batches of eight
    assert any(remark.startswith("Each ε is for an arm that was fixed beforehand") for remark in outcome.remarks)
    assert any("Whoever keeps them all" in remark for remark in outcome.remarks)
    _pages_are_right(outcome, whole, tmp_path)
    _what_is_handed_over_tells_the_search(outcome, private, tmp_path)
    _a_search_counts_also_when_it_is_asked_for_no_more(comparison, private)


def _by_itself(runs):
    return [odometer.together([run_ledgers.read(run.folder)], "record", 1e-5).value for run in runs]


def _what_is_handed_over_tells_the_search(outcome, private, tmp_path):
    """Whoever is given one run's model, card, sheet or page is told the ε of all that its rate was chosen by."""
    told = bound(private.epsilon)
    assert all(run.last.values["epsilon"] == private.epsilon for run in private.runs.values())
    copy = shutil.copytree(private.runs[0].folder, tmp_path / "copy", ignore=shutil.ignore_patterns("private"))
    for run in (*private.runs.values(), read(copy)):
        [row] = table_of([run])
        page = [ReportSection("", "", [in_short([row])]), guarantee([row])]
        for words in (
            (run.folder / "adapter" / "README.md").read_text(),
            run_card(run, "DP-LoRA"),
            *(" ".join(map(repr, sections)) for sections in (page, sheet(row))),
            " ".join(value for _, value in lines(look(run.folder))),
        ):
            assert told in words and "other runs over the same records" in words and "An attack that is" not in words
    seen = guarantee(table_of([with_search(private, run) for run in private.runs.values()]))
    assert {row[1].split()[0] for row in tables(seen)[0]} == {bound(private.epsilon)}
    assert said(seen) == "" and not any("made before" in remark for remark in outcome.remarks)
    [row] = table_of(list(private.runs.values()))  # seeds share a row, and what they chose by is seen once
    every = [run_ledgers.read(place) for place in (*private.searched, *(run.folder for run in row.runs))]
    both = bound(rounded(odometer.together(every, "record", 1e-5).value, 8.0))
    assert row.cells["epsilon"].together == f"all 2 runs and those that options were chosen by: {both}"


def _a_search_counts_also_when_it_is_asked_for_no_more(comparison, private):
    """Whoever has seen what it led to has seen it, with whichever rates the comparison goes on."""
    again = comparison(rates=[private.rate], arms=[ARMS[1]])
    [one] = again.carry_out(1, again.check()).results
    assert again.searches == [] and one.epsilon == private.epsilon
    told = " ".join(remarks([one], one.kind, again.config, again.arms))
    assert "what its rate was found by" not in told and "made before" not in told
    elsewhere = [folder.parent.parent / "other" / folder.name for folder in one.searched]  # of the same names
    more = replace(one, searched=[*one.searched, *elsewhere])
    assert "made before" in " ".join(remarks([more], one.kind, again.config, again.arms))
    kept = one.runs[0].folder / CONFIG
    kept.write_text(re.sub(r"chosen_by = \[[^]]*\]", "", kept.read_text()))  # as of a run that came before the search
    (one.runs[0].folder / CHOSEN_BY).unlink()
    found = again.carry_out(1, again.check()).remarks
    assert any(remark.startswith("Runs of private were made before some of what was searched") for remark in found)
    for folder in again.folder.glob("search/private-*/"):
        (folder / "summary.json").unlink(
            missing_ok=True
        )  # as of one that was stopped: its ledgers are there all the same
    [one] = again.carry_out(1, again.check()).results
    assert one.epsilon == private.epsilon
    control = comparison(arms=[ARMS[0], ARMS[1] | {"rate_of": "FedAvg"}])
    counted = {folder.name.partition("-rate")[0] for folder in control._ever_searched(control.arms[1])}
    assert counted == {"FedAvg", "private"}  # its own search was before it took another arm's rate


def _pages_are_right(outcome, whole, tmp_path):
    page = write(outcome, whole.folder).read_text()
    told = json.loads((whole.folder / FIGURES).read_text())
    table = (whole.folder / TABLE).read_text()
    assert outcome.choice.sentences[0] in page and outcome.choice.sentences[0] in table
    assert "<h1>Comparison</h1>" in page
    named = write(replace(outcome, name="clinics"), whole.folder).read_text()
    assert "<h1>Comparison: clinics</h1>" in named
    assert told["chosen"] == outcome.choice.arm and [one["arm"] for one in told["arms"]] == ["FedAvg", "private"]
    for one, arm in zip(outcome.results, told["arms"], strict=True):
        assert {int(seed): value for seed, value in arm["figures"]["heldout_loss"].items()} == one.values(
            "heldout_loss"
        )
        assert re.search(rf"\| {one.arm}[^|]*\| {one.utility.mean:.3f}", table)
    picture = ElementTree.fromstring((whole.folder / PICTURE).read_text())
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"FedAvg", "private"} <= set(texts)
    assert not re.search(r"var\(--(?!ink|muted|rule|paper|series)", (whole.folder / PICTURE).read_text())


def test_two_processes_do_not_make_one_comparison(comparison, begun, tmp_path):
    deep = comparison(rates=[], seeds=1)
    planned = deep.check()
    kept = tmp_path / "out" / ".murmura-states" / "states"
    kept.mkdir(parents=True)
    with RunFolder(tmp_path / "out").locked(), pytest.raises(CheckpointError, match="another process is running"):
        deep.carry_out(1, planned)
    assert kept.exists() and not begun


def test_finished_runs_are_kept_and_only_what_is_new_is_run(comparison, begun):
    first = comparison(rates=[], seeds=1, arms=ARMS[:1])
    first.carry_out(1, first.check())
    again = comparison(rates=[], seeds=2, arms=[*ARMS[:1], {"name": "wider", "lora": {"rank": 3}}])
    begun.clear()
    outcome = again.carry_out(2, again.check())
    assert sorted(begun) == ["FedAvg-seed1", "wider-seed0", "wider-seed1"]
    assert all(len(one.runs) == 2 for one in outcome.results)
    assert any("Up to 2 runs shared the machine" in remark for remark in outcome.remarks)
    assert not any("place in the file" in remark for remark in outcome.remarks)  # all layers have adapters
    for at_once in (1, 8):  # nothing is left to run, so no more and no fewer have shared it
        told = again.carry_out(at_once, again.check()).remarks
        assert [remark for remark in told if "shared the machine" in remark] == [
            "Up to 2 runs shared the machine, and took longer than they do alone."
        ]


def test_only_runs_whose_times_are_told_count_as_sharing_the_machine(comparison, begun):
    """Two search side by side, and then there is one alone."""
    whole = comparison(seeds=1, arms=ARMS[:1])
    assert not any("shared" in remark for remark in whole.carry_out(2, whole.check()).remarks)
    assert [place.parent.name for place in whole.folder.rglob("at_once.json")] == ["runs"]


def test_how_many_shared_the_machine_is_known_where_nothing_could_be_compared_yet(comparison, begun, monkeypatch):
    arms, plain = [*ARMS, {"name": "wider", "lora": {"rank": 3}}], jobs._run
    whole = comparison(rates=[], seeds=2, arms=arms)

    def the_reference_fails(job, at_once, under_way):
        return jobs.Ended(1.0, "it broke") if job.arm.name == "FedAvg" else plain(job, at_once, under_way)

    with monkeypatch.context() as patch, pytest.raises(RunError):
        patch.setattr(jobs, "_run", the_reference_fails)
        whole.carry_out(4, whole.check())
    for reference, told in (("private", False), ("wider", True)):  # of a run with an ε no time is told
        other = comparison(
            rates=[], seeds=2, reference=reference, arms=[one for one in arms if one["name"] == reference]
        )
        remarks = other.carry_out(1, other.check()).remarks
        assert any("runs shared the machine" in remark for remark in remarks) == told


@pytest.mark.parametrize(
    ("method", "training", "steps"),
    [
        ({"name": "dpfedavg"}, {}, None),
        ({"name": "dpfedavg"}, {"max_steps": 2}, None),
        ({"name": "dplora", "epsilon": 8.0}, {"max_steps": 2}, 4),
        ({"name": "fedit"}, {}, 2),
    ],
)
def test_steps_that_tell_of_private_records_are_in_no_table(comparison, begun, method, training, steps):
    """How many a site's epochs come to follows from its records, on which an ε counts."""
    whole = comparison(rates=[], seeds=1, arms=[{"name": "only", "method": method, "training": training}])
    planned = whole.check()
    assert planned["only"].steps
    outcome = whole.carry_out(1, planned)
    assert outcome.results[0].steps == steps
    write(outcome, whole.folder)
    assert json.loads((whole.folder / FIGURES).read_text())["arms"][0]["steps"] == steps


def test_runs_of_another_machine_or_in_other_numbers_are_told(comparison, begun):
    first = comparison(rates=[], seeds=1)
    assert not any("made alike" in remark for remark in first.carry_out(1, first.check()).remarks)
    kept = first.folder / "runs" / "FedAvg-seed0" / ENVIRONMENT
    made = json.loads(kept.read_text())
    kept.write_text(json.dumps(made | {"device": "cuda: NVIDIA H200", "training_precision": "bfloat16"}))
    outcome = first.carry_out(1, first.check())
    told = " ".join(outcome.remarks)
    assert re.search(r"Not all runs were made alike \(cuda: NVIDIA H200 in bfloat16.*: FedAvg; cpu", told)
    told = " ".join(answers(outcome).answers[COST])
    assert "Times cannot be compared with one another: not all runs were made alike." in told


def test_where_the_reference_has_failed_another_one_is_named(comparison, begun, monkeypatch):
    whole, plain = comparison(rates=[], seeds=1), jobs._run

    def the_first_fails(job, at_once, under_way):
        return jobs.Ended(1.0, "it broke") if job.arm.name == "FedAvg" else plain(job, at_once, under_way)

    monkeypatch.setattr(jobs, "_run", the_first_fails)
    with pytest.raises(RunError) as caught:
        whole.carry_out(1, whole.check())
    assert "it broke" in str(caught.value) and caught.value.fix.endswith("--reference 'private'.")


def test_where_nothing_is_left_to_run_nothing_is_worked_out_that_decides_whether_it_may_begin(
    comparison, begun, monkeypatch
):
    whole = comparison(rates=[], seeds=1)
    planned = whole.check()
    outcome = whole.carry_out(1, planned)
    monkeypatch.setattr(DPLoRA, "guarantee", lambda *_: pytest.fail("an ε was worked out for no run"))
    monkeypatch.setattr(RunFolder, "require_room", lambda *_: pytest.fail("no run needs room"))
    found = whole.check()
    assert {arm: one.steps for arm, one in found.items()} == {arm: one.steps for arm, one in planned.items()}
    assert section(whole.carry_out(1, found)) == section(outcome)
    with pytest.raises(pytest.fail.Exception):
        comparison(rates=[], seeds=2).check()


def test_arms_with_other_weights_of_one_model_are_refused(comparison, begun, tmp_path, table, llama_folder):
    shutil.copytree(llama_folder, tmp_path / "model")
    table["model"]["name"], weights = "model", tmp_path / "model" / "model.safetensors"
    first = comparison(rates=[], seeds=[0], arms=ARMS[:1])
    first.carry_out(1, first.check())
    save_file({name: 2 * tensor for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"FedAvg-seed0: .*model.name.*: model.safetensors changed"):
        comparison(rates=[], seeds=[0]).check()


def test_what_is_said_of_records_is_said_once_and_not_for_each_arm(comparison, tmp_path, capsys):
    file = tmp_path / "sites" / "heart.jsonl"
    [first, *_] = file.read_text().splitlines()
    with file.open("a") as lines:
        lines.write(first + "\n")  # a site has one twice
    whole = comparison()
    assert whole.check().keys() == {"FedAvg", "private"}
    assert capsys.readouterr().err.count("site heart keeps 1 repeated record") == 1


def test_arms_that_would_be_refused_are_all_named_before_anything_is_run(comparison, begun):
    arms = [
        ARMS[0],
        {
            "name": "bad",
            "method": {"name": "dplora", "epsilon": 8.0},
            "data": {"max_length": 128},
            "aggregation": {"secure": True},
        },
    ]
    with pytest.raises(ConfigError, match=r"(?s)would not start.*bad: "):
        comparison(arms=arms).check()
    assert begun == []


def test_what_is_wrong_with_several_arms_is_said_once(comparison, begun, tmp_path):
    (tmp_path / "sites").rename(tmp_path / "moved")
    with pytest.raises(ConfigError) as caught:
        comparison().check()
    assert str(caught.value).count("there is no such folder") == 1 and "FedAvg and private: " in str(caught.value)


def test_a_run_that_fails_stands_in_no_figure_and_stops_no_other(comparison, begun, monkeypatch):
    whole, plain = comparison(rates=[], seeds=1), jobs._run

    def some_fail(job, at_once, under_way):
        return jobs.Ended(1.0, "it broke") if job.arm.name == "private" else plain(job, at_once, under_way)

    monkeypatch.setattr(jobs, "_run", some_fail)
    outcome = whole.carry_out(1, whole.check())
    assert [one.arm for one in outcome.results] == ["FedAvg"] and "private" in outcome.remarks[0]
    assert "Every arm was to be run with seed 0, on the same records." in markdown(section(outcome))
    with pytest.raises(RunError, match=r"(?s)1 run failed, and stands.*private-seed0:\nit broke") as caught:
        whole.write(outcome)
    assert caught.value.where == str(whole.folder / REPORT) and (whole.folder / REPORT).exists()


def test_what_went_otherwise_than_planned_is_told_beside_the_figures(comparison, begun):
    whole = comparison(rates=[], seeds=1, arms=ARMS[:1])
    assert not any("as planned" in remark for remark in whole.carry_out(1, whole.check()).remarks)
    run = whole.folder / "runs" / "FedAvg-seed0"
    resumed = [{"after": 1, "changed": {}, "events": ["a checkpoint is damaged"]}]
    (run / "resumed.json").write_text(json.dumps(resumed))
    expected = "FedAvg: not all went as planned in 1 of 1 runs (events: {}). What came first ({}): {}."
    assert expected.format(1, "after round 1", "a checkpoint is damaged") in whole.carry_out(1, whole.check()).remarks
    before, after = (run / "metrics.jsonl").read_text().splitlines()
    after = json.dumps(json.loads(after) | {"events": ["heart did not answer", "nor did skin"]})
    (run / "metrics.jsonl").write_text(f"{before}\n{after}\n")
    assert expected.format(3, "round 1", "heart did not answer") in whole.carry_out(1, whole.check()).remarks


def test_what_an_augmented_arm_tells_of_what_it_does_is_no_failure(comparison, begun, monkeypatch):
    written = [Instruction(f"write note {n}", "", f"rest and drink {n}") for n in range(2)]
    monkeypatch.setattr(writing, "draft", lambda runtime, orders, config: [Drafts(written, Counter()) for _ in orders])
    sent = {"name": "more", "augment": {"strategy": "self-instruct", "records": 2}}
    whole = comparison(rates=[], seeds=1, arms=[ARMS[0], sent])
    outcome = whole.carry_out(1, whole.check())
    assert "2 sites have had records written" in outcome.results[1].runs[0].last.told[0]
    assert not any("as planned" in remark for remark in outcome.remarks)


def test_a_rate_that_was_not_tried_with_every_seed_is_not_taken(comparison, begun, monkeypatch):
    whole, plain = comparison(search_seeds=2, seeds=1, arms=[ARMS[0]]), jobs._run

    def some_fail(job, at_once, under_way):
        return (
            jobs.Ended(1.0, "it diverged")
            if (job.rate, job.seed) == (RATES[1], 10_001)
            else plain(job, at_once, under_way)
        )

    monkeypatch.setattr(jobs, "_run", some_fail)
    outcome = whole.carry_out(1, whole.check())
    [one] = outcome.results
    assert [tried.utility is None for tried in one.tried] == [False, True] and one.rate == RATES[0]
    lost = f"The search came to nothing for FedAvg at {RATES[1]:g}: that rate was not among those chosen from."
    assert "Every arm was run with seed 0, on the same records." in markdown(section(outcome))
    assert lost in outcome.remarks and f"{RATES[1]:g} (came to nothing)" in markdown(section(outcome))


def test_an_arm_waits_for_a_run_of_its_search_that_was_ended_from_outside(comparison, begun, monkeypatch, capsys):
    """At the best of its other rates, runs would begin that the same command then refuses."""
    control = {"name": "control", "rate_of": "private", "method": ARMS[1]["method"], "training": {"clip": 0.5}}
    whole, plain = comparison(seeds=1, arms=[*ARMS, control]), jobs._run
    chosen = lambda arm, tried: RATES[0] if tried[0].utility is not None else RATES[1]  # noqa: E731
    monkeypatch.setattr(comparison_module, "best", chosen)

    def one_is_killed(job, at_once, under_way):
        killed = (job.arm.name, job.rate) == ("private", RATES[0])
        return jobs.Ended(1.0, "It was killed.", from_outside=True) if killed else plain(job, at_once, under_way)

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "_run", one_is_killed)
        outcome = whole.carry_out(1, whole.check())
    assert "private: a run of the search for a rate was ended" in capsys.readouterr().err
    assert [one.arm for one in outcome.results] == ["FedAvg"] and "private and control" in outcome.remarks[0]
    assert begun[-1] == "FedAvg-seed0" and not [*(whole.folder / "runs").glob("private-*")]
    begun.clear()
    outcome = whole.carry_out(1, whole.check())
    assert begun == [f"private-rate{RATES[0]:g}-seed10000", "private-seed0", "control-seed0"]
    assert [one.rate for one in outcome.results] == RATES[:1] * 3
    # What has finished runs is left out likewise, once more is searched; but what was ended while its page was made is
    # not waited for.
    search = whole.folder / "search"
    (search / f"private-rate{RATES[0]:g}-seed10000" / SUMMARY).unlink()
    (search / f"FedAvg-rate{RATES[0]:g}-seed10000" / REPORT).unlink()
    monkeypatch.setattr(jobs, "_run", lambda *_: jobs.Ended(1.0, "It was killed.", from_outside=True))
    outcome = whole.carry_out(1, whole.check())
    assert [one.arm for one in outcome.results] == ["FedAvg"]
    assert outcome.remarks[0] == "Left out, since the search for their rate is not over: private and control."
    assert sorted(job.arm.name for job, _ in whole._failed) == ["FedAvg", "private"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_search_that_fails_by_what_may_pass_is_tried_once_more(comparison, begun, monkeypatch, times):
    """Else the same command would come to another rate once it has passed, and refuse the runs at the first one."""
    whole, plain, tries = comparison(seeds=1, arms=ARMS[:1]), jobs._run, []
    chosen = lambda arm, tried: RATES[0] if tried[0].utility is not None else RATES[1]  # noqa: E731
    monkeypatch.setattr(comparison_module, "best", chosen)

    def a_worker_is_gone(job, at_once, under_way):
        tries.extend([job] * (job.searching and job.rate == RATES[0]))
        gone = job in tries and len(tries) <= times
        return jobs.Ended(1.0, "a worker is gone", may_pass=True) if gone else plain(job, at_once, under_way)

    monkeypatch.setattr(jobs, "_run", a_worker_is_gone)
    [one] = whole.carry_out(1, whole.check()).results
    assert len(tries) == 2 and one.rate == RATES[times - 1]
    assert begun.count("FedAvg-seed0") == 1 and bool(whole._failed) == (times == 2)


def test_a_reference_whose_search_came_to_nothing_is_told_with_what_to_do(comparison, begun, monkeypatch):
    whole = comparison(seeds=1, arms=[ARMS[0], ARMS[1] | {"rates": RATES[:1]}])
    plain = comparison_module.best
    nothing = lambda arm, tried: None if arm.name == "FedAvg" else plain(arm, tried)  # noqa: E731
    monkeypatch.setattr(comparison_module, "best", nothing)
    with pytest.raises(RunError, match="the search of FedAvg came to no finite figure at any of its rates") as caught:
        whole.carry_out(1, whole.check())
    assert (
        caught.value.fix
        == "Give FedAvg other rates, or compare with an arm that has finished runs: --reference 'private'."
    )


def test_without_the_reference_there_is_nothing_to_compare(comparison, monkeypatch):
    monkeypatch.setattr(jobs, "_run", lambda job, at_once, under_way: jobs.Ended(1.0, "it broke"))
    whole = comparison(rates=[], seeds=1)
    with pytest.raises(RunError, match="it broke"):
        whole.carry_out(1, whole.check())
