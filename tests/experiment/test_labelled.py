"""A user's table of texts with a few labels: plan, run, report, and labels for new texts."""

import csv
import io
import json
import re
import shutil
import tomllib

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from murmura import models
from murmura.cli import MISTAKE, app
from murmura.data.cloze import Cloze
from murmura.errors import CheckpointError, ConfigError, DataError
from murmura.experiment import Experiment
from murmura.experiment.export import export
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.timing import timing
from murmura.experiment.forecast.view import show
from murmura.experiment.predict import Classifier
from murmura.experiment.run import run
from murmura.measure.ensemble import ensemble, soft_labels
from tests.experiment.small import VERBALISER, texts, write_lines
from tests.report.runs import real, write_run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Texts of two departments, most without a label, and labelled ones that are held out."""
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path / "notes.csv",
        [(r.text, r.label if k % 4 < 2 else "", f"d{k // 4 % 2}") for k, r in enumerate(texts(40, 1))],
    )
    write(tmp_path / "public.csv", [(r.text, r.label, "") for r in texts(24, 2)])
    return tmp_path


def write(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("note", "verdict", "department"), *rows])


@pytest.fixture
def make(folder, llama_folder):
    def build(**sections):
        table = {
            "run": {"name": "notes"},
            "model": {"name": str(llama_folder)},
            "lora": {"rank": 4, "alpha": 8},
            "data": {
                "train": "notes.csv",
                "heldout": "public.csv",
                "fields": {"text": "note", "label": "verdict"},
                "max_length": 48,
                "sites": {"by": "column", "column": "department"},
            },
            "training": {"lr": 0.02, "batch_size": 4, "epochs": 2},
            "method": {
                "name": "lpfl",
                "rounds": 2,
                "several_tokens": "average",
                "verbaliser": {label: list(words) for label, words in VERBALISER.items()},
                "patterns": ["{text} it was {blank}", "{text} in short it is {blank}"],
            },
        }
        for name, options in sections.items():
            table[name] = {**table.get(name, {}), **options}
        return Experiment.of(table, base=folder)

    return build


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("labels") / "run"


@pytest.fixture
def labels(make, folder, kept, no_page):
    """A copy of a run that labels, which is made once."""
    if not kept.exists():
        shutil.copytree(run(make()).folder, kept)
    return shutil.copytree(kept, folder / "copy")


def test_a_table_with_a_few_labels_becomes_a_classifier(make, folder):
    result = run(make())
    last = result.rows[-1]
    assert last["heldout_loss"] < result.rows[0]["heldout_loss"]
    page = (result.folder / "report.html").read_text()
    assert "Accuracy" in page and "Calibration" in page and "Leakage of single uploads" in page
    classifier = Classifier(result.folder)
    assert classifier.labels == ("bad", "good")
    found = classifier.label([r.text for r in texts(10, 7)])
    right = sum(name == r.label for (name, _), r in zip(found, texts(10, 7), strict=True))
    assert right >= 8
    kept = json.loads((result.folder / "outcomes" / "classifier.json").read_text())
    assert len(kept["weights"]) == 2


def test_what_is_handed_over_labels_texts_as_the_run_does_by_its_card_alone(labels, tmp_path):
    made = export(labels, tmp_path / "given", "merged")
    card = (made / "README.md").read_text()
    method = tomllib.loads(card.split("```toml\n")[1].split("```")[0])["method"]
    told = re.search(r"by these weights, in the order of patterns: (.*)\.", card)
    assert told, "else nobody knows how much each pattern counts"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(made), AutoTokenizer.from_pretrained(made)
    cloze = Cloze(method["patterns"], method["verbaliser"], tokenizer, 48, False, several_tokens="average")
    some = [record.text for record in texts(10, 7)]
    scores = np.empty((len(some), len(cloze.patterns), len(cloze.labels)))
    for text, items in enumerate(cloze.tokenise_all(some)):
        for pattern, item in enumerate(items):
            with torch.no_grad():
                read = model(torch.tensor([item.ids[:-1]])).logits[0, -1, cloze.tokens]
            scores[text, pattern] = (read @ torch.tensor(cloze.weights).T).numpy()
    found = soft_labels(ensemble(scores, [float(one) for one in told[1].split(", ")]))
    assert np.allclose(found, [row for _, row in Classifier(labels).label(some)], atol=1e-3)


@pytest.mark.parametrize("trainable", ["adapter", "all"])
def test_the_time_of_a_run_counts_steps_annotation_and_measuring(make, trainable):
    found = timing(dry_run(make(model={"trainable": trainable})))
    assert min(map(found.of, ("training", "writing", "measuring"))) > 0


def test_predict_writes_a_table(labels, folder):
    write(folder / "new.csv", [(r.text, "", "") for r in texts(6, 8)])
    done = CliRunner().invoke(app, ["predict", str(labels), str(folder / "new.csv")])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader((folder / "new.labels.csv").open()))
    assert [row["text"] for row in rows] == [r.text for r in texts(6, 8)]
    for row in rows:
        probabilities = {name: float(row[f"p({name})"]) for name in ("bad", "good")}
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)
        assert row["label"] == max(probabilities, key=probabilities.get)
    again = CliRunner().invoke(app, ["predict", str(labels), str(folder / "new.csv")])
    assert again.exit_code == 2 and "already exists" in again.output
    words = ["predict", str(labels), str(folder / "new.csv"), "--out", str(labels / "summary.json")]
    before = (labels / "summary.json").read_bytes()
    own = CliRunner().invoke(app, [*words, "--overwrite"])
    assert own.exit_code == 2 and "this is the run's own" in own.output
    assert (labels / "summary.json").read_bytes() == before


def test_predict_takes_another_column_another_file_and_may_overwrite(labels, folder):
    with (folder / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("remark", "note"), ("rash", "other"), ("help", "other")])
    (folder / "mine.csv").write_text("what was there before")
    arguments = ["predict", str(labels), str(folder / "new.csv"), "--text", "remark", "--out", "mine.csv"]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2 and (folder / "mine.csv").read_text() == "what was there before"
    done = CliRunner().invoke(app, [*arguments, "--overwrite"])
    assert done.exit_code == 0, done.output
    assert [row["text"] for row in csv.DictReader((folder / "mine.csv").open())] == ["rash", "help"]


def test_texts_are_labelled_block_by_block_and_none_is_kept(labels, monkeypatch):
    classifier = Classifier(labels)
    some = [r.text for r in texts(7, 8)]
    whole = list(classifier.label(some))
    monkeypatch.setattr("murmura.experiment.predict._AT_ONCE", 3)
    blocks = list(classifier.label(some))
    assert [name for name, _ in blocks] == [name for name, _ in whole]
    assert [row.tolist() for _, row in blocks] == [pytest.approx(row.tolist(), abs=1e-6) for _, row in whole]
    assert not classifier._cloze._known


def test_predict_makes_the_folder_or_tells_before_it_labels(labels, folder, monkeypatch):
    write(folder / "new.csv", [("rash", "", "")])
    arguments = ["predict", str(labels), str(folder / "new.csv"), "--out"]
    assert CliRunner().invoke(app, [*arguments, "new/folder/labels.csv"]).exit_code == 0
    assert [row["text"] for row in csv.DictReader((folder / "new" / "folder" / "labels.csv").open())] == ["rash"]
    monkeypatch.setattr("murmura.models.load", None)  # it is not come to
    refused = CliRunner().invoke(app, [*arguments, "new.csv/labels.csv"])
    assert refused.exit_code == 2 and "the file of labels cannot be written" in refused.output


def test_the_same_with_sites_that_keep_a_factor(make, folder):
    result = run(make(aggregation={"rule": "fedsa"}, method={"pattern_weights": "uniform"}))
    with pytest.raises(ConfigError, match="each site keeps an adapter of its own") as error:
        Classifier(result.folder)
    assert "--site d0 | d1" in error.value.fix
    (_, one), (_, other) = (next(Classifier(result.folder, name).label(["rash"])) for name in ("d0", "d1"))
    assert one.shape == (2,) and (one != other).any()
    write(folder / "new.csv", [("rash", "", "")])
    for name, expected in (("d0", one), ("d1", other)):
        arguments = ["predict", str(result.folder), str(folder / "new.csv"), "--out", f"{name}.csv", "--site", name]
        assert CliRunner().invoke(app, arguments).exit_code == 0
        row = next(csv.DictReader((folder / f"{name}.csv").open()))
        assert float(row["p(bad)"]) == pytest.approx(expected[0], abs=1e-6)


@pytest.mark.parametrize("automatic", ["float32", "bfloat16"], ids=["CPU", "GPU"])
def test_all_parameters(make, monkeypatch, automatic):
    load = models.load

    def elsewhere(name, task, dtype, *options):
        return load(name, task, automatic if dtype == "auto" else dtype, *options)

    monkeypatch.setattr("murmura.models.load", elsewhere)
    result = run(make(model={"trainable": "all"}, training={"lr": 0.002}))
    assert [row.shape for _, row in Classifier(result.folder).label(["rash", "help"])] == [(2,), (2,)]


def test_a_plan_of_it(make):
    found = dry_run(make())
    assert found.plan.method.title == "LP-FL"
    assert found.count("tokens to write") == found.count("tokens to measure") == 0
    assert found.example.endswith("it is {blank}")
    assert {row.verb for row in found.disclosure} == {"join", "commit", "train", "annotate", "attack"}
    sites = found.rounds[0].sites
    adapters = sites * found.model.trainable * 4
    assert [round.bytes_up for round in found.rounds] == [adapters] * 2
    assert [round.bytes_down for round in found.rounds] == [2 * adapters, adapters]  # the first annotates, too


def test_a_plan_counts_what_is_trained_on(make):
    """Two sites of twenty texts, ten of them labelled; a third of the others is annotated after each round."""
    method = {"rounds": 4, "gate": 0.5}
    found = dry_run(make(method=method, training={"epochs": 1, "batch_size": 1}))
    assert [(site.used, site.labelled, site.steps) for site in found.sites] == [(20, 10, 10)] * 2
    assert [round.steps for round in found.rounds] == [2 * n for n in (10, 14, 18, 20)]
    assert (len(found.heldout), len(found.plan.records.public.validation.records)) == (12, 12)
    alone = dry_run(make(method={"rounds": 2, "annotate": False}, training={"epochs": 1, "batch_size": 1}))
    assert [round.steps for round in alone.rounds] == [20] * 2
    few = dry_run(make(method=method | {"labelled_records": 4, "chunk": 0.1}, training={"epochs": 1, "batch_size": 1}))
    assert [round.steps for round in few.rounds] == [2 * n for n in (4, 6, 8, 20)]


def test_a_plan_shows_patterns_labels_and_the_validation_set(make):
    console = Console(file=io.StringIO(), width=120, highlight=False)
    show(dry_run(make()), console)
    text = console.file.getvalue()
    lines = {line.split()[0]: " ".join(line.split()) for line in text.splitlines() if line.strip()}
    assert lines["patterns"].startswith("patterns {text} it was {blank} · {text} in short it is {blank}, at most 48")
    assert "template" not in text and "The first held-out record, in its patterns" in text
    assert "12 held out to measure and 12 to validate" in text
    assert lines["site"].startswith("site records used labelled") and lines["d0"].startswith("d0 20 20 10")
    assert lines["all"].startswith("all 2 40 40 20")


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"method": {"verbaliser": {"bad": ["bad"], "fine": ["good"]}}}, "no words are given for the labels of"),
        ({"method": {"labelled_records": 40}}, "no unlabelled text to annotate"),
        ({"method": {"patterns": ["{blank} is what it was {text}"]}}, "goes on after"),
        ({"method": {"several_tokens": "refuse"}}, "token"),
        ({"data": {"max_length": 600}}, "records may have 600 tokens, and the model reads 512 at most"),
    ],
)
def test_what_cannot_be_is_told(make, sections, message):
    if "labelled_records" in sections.get("method", {}):
        sections["data"] = {
            "train": "public.csv",
            "heldout": None,
            "heldout_records": 8,
            "sites": {"by": "partition", "count": 2},
        }
    experiment = make(**sections)
    with pytest.raises((ConfigError, DataError), match=message):
        dry_run(experiment)
    with pytest.raises((ConfigError, DataError), match=message):
        run(experiment)
    assert not (experiment.run.path / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("sections", "option"),
    [
        ({"data": {"template": "chat"}}, "template"),
        ({"evaluation": {"sample": 4}}, "sample"),
        ({"evaluation": {"memorisation": True}}, "memorisation"),
    ],
)
def test_options_of_instructions_do_nothing_here_and_say_so(make, sections, option):
    with pytest.raises(ConfigError, match=f"{option}: it does nothing with labelled records"):
        make(**sections)


@pytest.mark.usefixtures("no_page")
def test_rounds_may_not_change_where_they_make_the_schedule(make):
    run(make(method={"rounds": 2}))
    with pytest.raises(ConfigError, match="started with 2; rounds decide"):
        run(make(method={"rounds": 3}), resume=True)
    alone = {"annotate": False, "rounds": 1}
    run(make(method=alone), overwrite=True)
    assert run(make(method=alone | {"rounds": 2}), resume=True).rows[-1]["round"] == 2


def test_a_baseline_is_measured_on_the_same_texts(make):
    shared = {"pattern_weights": "uniform", "validation_records": 8, "rounds": 3}
    arms = [dry_run(make(method=shared | options)) for options in ({}, {"annotate": False})]
    assert [len(arm.heldout) for arm in arms] == [24 - 8] * 2


def test_a_text_without_a_label_may_not_be_held_out_too(make, folder):
    overlap = [(r.text, "", "d0") for r in texts(24, 2)[:3]]
    rest = [(r.text, r.label if k % 4 < 2 else "", f"d{k // 4 % 2}") for k, r in enumerate(texts(40, 1))]
    write(folder / "notes.csv", [*overlap, *rest])
    with pytest.raises(DataError, match=r"public\.csv: 3 public records are also private"):
        dry_run(make())
    found = dry_run(make(data={"skip_bad": True}))
    assert (len(found.heldout), found.unused("bad"), found.unused("overlap")) == ((24 - 3 + 1) // 2, 0, 3)


def test_records_are_held_out_among_those_with_a_label(make):
    """Twenty of forty texts have one."""
    found = dry_run(make(data={"heldout": None, "heldout_records": 12}))
    assert len(found.heldout) == 6  # and as many to validate


def test_an_unknown_label_is_told_with_its_file(make, folder):
    write(folder / "public.csv", [(r.text, "mixed", "") for r in texts(24, 2)])
    with pytest.raises(DataError, match=r"labels of 24 of 64 records:\n  .*public\.csv:2: 'mixed'"):
        dry_run(make())


def test_unknown_labels_are_counted_and_may_be_left_out(make, folder, capsys):
    rows = [(r.text, r.label if k % 4 < 2 else "", f"d{k // 4 % 2}") for k, r in enumerate(texts(40, 1))]
    rows += [(f"another one {n}", "mixed", "d1") for n in range(3)]
    write(folder / "notes.csv", rows)
    write(folder / "public.csv", [(r.text, r.label if k else "1.5", "") for k, r in enumerate(texts(24, 2))])
    with pytest.raises(
        DataError, match=r"(?s)4 of 67 records:.*notes\.csv:42: 'mixed'.*public\.csv:2: '1\.5'.*--skip-bad"
    ):
        dry_run(make())
    result = run(make(data={"skip_bad": True}, method={"annotate": False, "rounds": 1}))
    assert json.loads((result.folder / "data.json").read_text()) == {
        "bad": 4,
        "overlap": 0,
        "heldout": 0,
        "train": 0,
        "person_at": None,
        "asked": 0,
    }
    assert "4 bad records are left out" in capsys.readouterr().err
    sites = json.loads((result.folder / "sites.json").read_text())
    assert [(site["records"], site["used"]) for site in sites] == [(20, 20), (23, 20)]
    write(folder / "public.csv", [(r.text, "mixed", "") for r in texts(24, 2)])
    with pytest.raises(DataError, match=r"public\.csv: no held-out record can be used\. Look at their labels"):
        dry_run(make(data={"skip_bad": True}))


def test_a_text_in_place_of_a_label_is_not_quoted(make, folder):
    rows = [(f"{r.text}, which she has told nobody yet", f"case {k}", f"d{k % 2}") for k, r in enumerate(texts(40, 1))]
    write(folder / "notes.csv", rows)
    with pytest.raises(DataError, match=r"(?s)a text of \d+ characters.*label column \(data\.fields\)") as error:
        dry_run(make(data={"fields": {"text": "verdict", "label": "note"}}))
    assert "told nobody" not in str(error.value)


def test_labels_may_have_space_around_them(make, folder):
    write(folder / "public.csv", [(r.text, f" {r.label} ", "") for r in texts(24, 2)])
    assert len(dry_run(make()).heldout) == 12


def test_predict_leaves_out_empty_texts_if_told_to(labels, folder):
    (folder / "new.csv").write_text('note\nrash\n" "\nhelp\n')
    arguments = ["predict", str(labels), str(folder / "new.csv")]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2 and "--skip-bad" in refused.output
    done = CliRunner().invoke(app, [*arguments, "--skip-bad"])
    assert done.exit_code == 0 and "2 texts labelled, 1 row left out" in done.output
    assert [row["line"] for row in csv.DictReader((folder / "new.labels.csv").open())] == ["2", "4"]


def test_predict_says_where_each_text_stands_in_its_file(labels, folder):
    (folder / "new.csv").write_text('id,note\nm1,"rash\nand fever"\nm2,help\n')
    (folder / "new.jsonl").write_text('{"note": "rash"}\n\n{"note": "help"}\n')
    parquet.write_table(pyarrow.table({"note": ["rash", "help"]}), folder / "new.parquet")
    for name, places in (("new.csv", ["2", "4"]), ("new.jsonl", ["1", "3"]), ("new.parquet", ["1", "2"])):
        done = CliRunner().invoke(app, ["predict", str(labels), name, "--out", "out.csv", "--overwrite"])
        assert done.exit_code == 0, done.output
        assert [row["line"] for row in csv.DictReader((folder / "out.csv").open())] == places


def test_predict_names_the_run_that_is_not_there_before_it_reads(folder):
    write_lines(folder / "other.jsonl", [{"remark": "rash"}])
    done = CliRunner().invoke(app, ["predict", str(folder / "nope"), str(folder / "other.jsonl")])
    assert done.exit_code == MISTAKE
    assert "nope: there is no such run folder. Give a folder" in done.stderr


@pytest.mark.parametrize("name", ["other.jsonl", "other.csv"])
def test_predict_tells_how_to_name_the_column_of_the_texts(labels, folder, name):
    write_lines(folder / "other.jsonl", [{"remark": "rash"}])
    (folder / "other.csv").write_text("remark\nrash\n")
    done = CliRunner().invoke(app, ["predict", str(labels), str(folder / name)])
    assert done.exit_code == MISTAKE
    assert "'note'" in done.stderr and "--text 'COLUMN'" in done.stderr and "fields" not in done.stderr


@pytest.mark.parametrize("out", ["new.csv", "../{folder}/new.csv", "link.csv"])
def test_predict_does_not_replace_its_texts(labels, folder, out):
    write(folder / "new.csv", [("rash", "", "")])
    (folder / "link.csv").symlink_to("new.csv")
    before = (folder / "new.csv").read_bytes()
    arguments = ["predict", str(labels), "new.csv", "--out", out.format(folder=folder.name), "--overwrite"]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2 and "would be overwritten" in refused.output
    assert (folder / "new.csv").read_bytes() == before


def test_predict_tells_how_many_texts_do_not_fit(labels, folder, monkeypatch):
    monkeypatch.setattr("murmura.experiment.predict._AT_ONCE", 2)
    write(folder / "new.csv", [("rash " * count, "", "") for count in (100, 1, 200)])
    done = CliRunner().invoke(app, ["predict", str(labels), "new.csv"])
    assert done.exit_code == 0 and "2 texts were shortened to 48 tokens" in done.output
    write(folder / "new.csv", [("rash", "", "")])
    assert "shortened" not in CliRunner().invoke(app, ["predict", str(labels), "new.csv", "--overwrite"]).output


def test_a_run_of_another_kind_is_no_classifier(folder):
    other = "train = 'sites'\nheldout_records = 4\n"
    with pytest.raises(ConfigError, match="the run has made no classifier"):
        Classifier(write_run(folder / "runs" / "a", more=other))
    with pytest.raises(
        CheckpointError, match=r"the run is not finished\. Finish it first: `murmura run \.\.\. --resume`"
    ):
        Classifier(write_run(folder / "runs" / "b", more=other, finished=False))
    with pytest.raises(CheckpointError, match="Finish it first: `murmura serve FEDERATION --resume`"):
        Classifier(real(folder / "runs" / "b"))
    with pytest.raises(CheckpointError, match=r"not a run folder .* Runs inside it: a, b"):
        Classifier(folder / "runs")
