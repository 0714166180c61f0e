"""A whole run on documents: texts with nothing to answer."""

import json

import pytest
import torch

from murmura.data.records import Document
from murmura.errors import ConfigError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.measure.evaluation_set import EvaluationSet
from murmura.measure.heldout import losses
from murmura.tasks import DOCUMENT
from murmura.training.adapter import load_peft
from tests.experiment.small import ATTACKED, BY_DEFAULT, context, experiment, write_lines
from tests.training.helpers import hf_batch

TEXTS = [f"the patient takes the {word} dose with food and calls the clinic before visit" for word in "abcdefghijklm"]


@pytest.fixture
def make(tmp_path, deep_folder):
    parts = {"sites/heart.jsonl": TEXTS[:6], "sites/skin.jsonl": TEXTS[6:9], "heldout.jsonl": TEXTS[9:]}
    for name, texts in parts.items():
        write_lines(tmp_path / name, [{"text": text} for text in texts])

    def build(method=None, **sections):
        data = {"kind": "document", **sections.pop("data", {})}
        evaluation = {"sample": 16, "uploads": 2} | sections.pop("evaluation", {})  # as they are if not given
        training = {"lr": 0.02}
        return experiment(
            tmp_path, deep_folder, method, data=data, evaluation=evaluation, training=training, **sections
        )

    return build


@pytest.mark.parametrize("engine", ["local", pytest.param("processes", marks=pytest.mark.slow)])
def test_fedavg_learns_from_documents(make, engine, forked_workers):
    asked = make({"rounds": 3}, run={"engine": engine}, evaluation=ATTACKED)
    result = run(asked)
    first, last = result.rows[0], result.rows[-1]
    assert last["heldout_loss"] < first["heldout_loss"] - 0.1 and last["train_loss"] < first["heldout_loss"]
    assert not any("rouge" in name for row in result.rows for name in row)
    assert first["attack_auc"] == 0.5 and last["attack_auc"] > 0.5 and "upload_auc" in last
    released = {row["verb"] for row in json.loads((result.folder / "disclosure.json").read_text())}
    assert released == {"join", "train", "attack"}
    page = (result.folder / "report.html").read_text(encoding="utf-8")
    assert "Leakage (AUC)" in page and "How badly the model predicts texts" in page and "Next-token accuracy" in page
    assert "good answers" not in page and "Held-out ROUGE-L" not in page


def test_the_loss_is_that_of_every_next_token(make):
    asked = make({"rounds": 1})
    folder = run(asked).folder
    place = context(asked)
    bench, records = place.runtime("server"), [Document(text) for text in TEXTS[9:]]
    adapter, _ = load_peft(folder / "adapter")
    place.model.bank.load([adapter])
    items = bench.tokenise_fitting(records)
    place.model.bank.route(torch.zeros(len(items), dtype=torch.long))
    with torch.no_grad():
        batch = hf_batch(items)
        found = place.model.bank.model(**batch)
    public = EvaluationSet(DOCUMENT, records)
    assert losses(bench, public, [adapter]) == [pytest.approx(found.loss.item(), abs=1e-4)]
    labels = batch["labels"][:, 1:]
    right = (found.logits[:, :-1].argmax(-1) == labels)[labels != -100]
    [figures] = public.measure(bench, [adapter])
    assert figures["heldout_accuracy"] == pytest.approx(right.float().mean().item())


def test_a_plan_of_it(make):
    made = dry_run(make(evaluation=BY_DEFAULT))
    assert [(site.records, site.used, site.truncated) for site in made.sites] == [(6, 6, 0), (3, 3, 0)]
    assert made.example in TEXTS and made.count("tokens to measure") == 0
    assert {row.verb for row in made.disclosure} == {"join", "commit", "train", "attack"}


def test_documents_that_are_too_long_are_cut_and_counted(make):
    made = dry_run(make(data={"max_length": 16}))
    assert all(site.truncated == site.used for site in made.sites)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"data": {"template": "chat"}}, "template: it does nothing with documents"),
        ({"evaluation": {"memorisation": True}}, "memorisation: it does nothing with documents"),
        ({"evaluation": {"choices": {"file": "heldout.jsonl"}}}, "choices: it does nothing with documents"),
        ({"data": {"kind": "labelled"}}, "works with instruction or document or preference records"),
    ],
)
def test_options_that_do_nothing_are_refused(make, sections, message):
    with pytest.raises(ConfigError) as error:
        make(**sections)
    assert message in str(error.value)


def test_a_method_that_needs_responses_refuses_documents(make):
    with pytest.raises(ConfigError, match="works with instruction records alone"):
        make({"name": "fewfedpit"})
