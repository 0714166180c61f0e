"""Whole runs on preferences: federated DPO (OpenFedLLM's FedDPO, Ye et al. 2024)."""

import json
import math

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from murmura.audit.run import Options, audit
from murmura.cli import app
from murmura.data.records import Instruction
from murmura.data.templates import template
from murmura.errors import ConfigError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.experiment.trained import Trained
from murmura.judge.pairs import answered, asked_of
from murmura.report.page import render
from murmura.runs import read
from murmura.training.adapter import load_peft
from tests.experiment.small import ATTACKED, experiment, write_lines

ASKED = ("the fever", "the rash", "a blood test", "the tablets", "the new dose", "food", "the skin", "a short visit")


def pairs(*numbers):
    """Pairs of which the one that sends the patient to the doctor is preferred."""
    return [
        {
            "prompt": f"the patient asks about {ASKED[number % len(ASKED)]} on day {number}",
            "chosen": "please call the doctor on monday",
            "rejected": "the letter is with the heart",
        }
        for number in numbers
    ]


@pytest.fixture
def made(tmp_path, llama_folder):
    for site, numbers in {"north": range(6), "south": range(6, 10)}.items():
        write_lines(tmp_path / "sites" / f"{site}.jsonl", pairs(*numbers))
    write_lines(tmp_path / "heldout.jsonl", pairs(*range(20, 26)))

    def build(method=None, **sections):
        given = {"training": {"lr": 0.01, "batch_size": 4, "epochs": 2}} | sections
        given["evaluation"] = {"uploads": 2, "sample": 16} | sections.get("evaluation", {})
        given["data"] = {"kind": "preference", "template": "alpaca"} | sections.get("data", {})
        return experiment(tmp_path, llama_folder, method, **given)

    return build


@pytest.mark.parametrize(
    ("method", "aggregation"),
    [({"name": "fedit"}, {}), ({"name": "fedit"}, {"local": {"kind": "scaffold"}}), ({"name": "centralised"}, {})],
    ids=["fedavg", "scaffold", "centralised"],
)
@pytest.mark.usefixtures("no_page")
def test_sites_come_to_prefer_what_people_do(made, method, aggregation):
    result = run(made({**method, "rounds": 2}, aggregation=aggregation))
    first, *_, last = result.rows
    assert first["heldout_loss"] == pytest.approx(math.log(2), abs=1e-6) and first["preference_accuracy"] == 0.5
    assert last["heldout_loss"] < first["heldout_loss"] - 0.005 and last["preference_accuracy"] == 1.0
    load_peft(result.folder / "adapter")


def test_preferences_are_attacked_and_reported(made):
    result = run(made({"rounds": 1}, evaluation=ATTACKED))
    assert 0 <= result.rows[-1]["attack_auc"] <= 1
    page = (result.folder / "report.html").read_text()
    assert "Preferred answers found" in page and "mean DPO loss over the pairs" in page


def test_rewards_are_told_against_the_adapter_that_a_run_begins_with(made, tmp_path):
    begun = run(made({"rounds": 1})).folder / "adapter"
    asked = made({"rounds": 1}, model={"adapter": str(begun)}, run={"folder": str(tmp_path / "again")})
    rows = run(asked).rows
    assert rows[0]["heldout_loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert rows[1]["heldout_loss"] < rows[0]["heldout_loss"] and rows[1]["train_loss"] < math.log(2) + 0.01


def test_what_was_trained_is_asked_and_judged(made, tmp_path):
    """The model answers prompts in the template of the run, greedily, as one that was tuned on instructions does."""
    made_run = made({"rounds": 1}, run={"decode_dtype": "model"}, training={"lr": 0.3})
    folder, out = run(made_run).folder, tmp_path / "answers.jsonl"
    file = write_lines(
        tmp_path / "new.jsonl", [{"prompt": pair["prompt"], "input": "at night"} for pair in pairs(30, 31)]
    )
    found = CliRunner().invoke(app, ["answer", str(folder), str(file), "--out", str(out), "--tokens", "8"])
    assert found.exit_code == 0, found.output
    trained = Trained.load(folder)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(made_run.model.name), folder / "adapter")
    for pair, row in zip(pairs(30, 31), map(json.loads, out.read_text().splitlines()), strict=True):
        ids = trained.runtime.prompt_ids(template("alpaca").prompt(Instruction(pair["prompt"], "at night")))
        written = model.generate(torch.tensor([ids]), max_new_tokens=8, do_sample=False)[0, len(ids) :]
        assert row["answer"] == trained.runtime.tokenizer.decode(written, skip_special_tokens=True).strip()
        assert row["instruction"] == pair["prompt"] and row["input"] == "at night"
    asked = asked_of(trained.experiment, folder, None, 80)
    assert set(asked) == {Instruction(pair["prompt"]) for pair in pairs(*range(20, 26))}
    twice = write_lines(tmp_path / "twice.jsonl", [{"prompt": "the fever"}] * 2)  # as where it has several pairs
    assert asked_of(trained.experiment, folder, twice, 80) == [Instruction("the fever")]
    write_lines(twice, [{"prompt": "the \r\nfever"}, {"prompt": "the cough"}, {"prompt": "the fever"}])
    assert asked_of(trained.experiment, folder, twice, 80) == [Instruction("the fever"), Instruction("the cough")]
    assert [one.question for one in answered(folder, None, asked, 4)] == [one.instruction for one in asked]
    chat = CliRunner().invoke(app, ["chat", str(folder), "--tokens", "4"], input="the fever\n")
    assert chat.exit_code == 0 and "> the fever" in chat.output


def test_a_dry_run_counts_pairs(made):
    found = dry_run(made())
    assert [site.steps for site in found.sites] == [4, 2]
    dry_run(made(aggregation={"local": {"kind": "fedprox"}, "server": {"kind": "fedadam"}}))  # goes with them


@pytest.mark.parametrize(
    ("method", "sections", "why"),
    [
        ({"name": "fewfedpit"}, {}, "'preference' records do not go with the method"),
        ({"name": "dplora"}, {}, "'preference' records do not go with the method"),
        ({"name": "pretext", "public": "x"}, {}, "'preference' records do not go with the method"),
        ({}, {"audit": {"canaries": 2}}, "preference records have no room for a secret"),
        ({}, {"evaluation": {"sample": 4}}, "it does nothing with preferences: nothing is written"),
        ({}, {"data": {"kind": "instruction"}, "training": {"dpo_beta": 0.5}}, "no answer is preferred to another"),
    ],
)
def test_what_makes_no_sense_with_preferences_is_refused(made, method, sections, why):
    with pytest.raises(ConfigError, match=why):
        dry_run(made(method, **sections))


def test_a_run_is_audited(made):
    folder = run(made({"name": "fedit", "rounds": 1}, evaluation={"attacks": False})).folder
    found = audit(folder, Options())
    [model] = found.models
    assert (model.target, model.strongest, model.members, model.others) == ("model", "loss difference", 10, 6)
    assert not (found.extraction or found.written or found.synthetic or found.unlike)
    assert "others, too few to say much" in render([read(folder)])
