"""What a finished run has left answers as transformers and peft have it."""

import json

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from murmura.cli import app
from murmura.data.records import Instruction
from murmura.errors import CheckpointError, ConfigError
from murmura.experiment.config import Experiment
from murmura.experiment.run import run
from murmura.experiment.trained import Trained, finished, require_answers
from tests.experiment import small

pytestmark = pytest.mark.usefixtures("no_page")

ASKED = [Instruction("explain the heart result 2"), Instruction("explain the skin result 1", "letter 4")]


@pytest.fixture
def folder(make):
    return run(make(method={"rounds": 2}, run={"decode_dtype": "model"}, training={"lr": 0.3})).folder


def by_transformers(model, tokenizer, record, tokens):
    """Greedily, and what was written alone."""
    content = {"role": "user", "content": record.instruction} | ({"input": record.input} if record.input else {})
    prompt = tokenizer.apply_chat_template([content], add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        written = model.generate(**prompt, max_new_tokens=tokens, do_sample=False)
    return tokenizer.decode(written[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)


def test_answers_are_those_of_peft_and_of_the_base_model(folder, llama_folder):
    trained = Trained.load(folder)
    base = AutoModelForCausalLM.from_pretrained(llama_folder)
    tokenizer = AutoTokenizer.from_pretrained(folder / "adapter")
    written = trained.answers(ASKED, [trained.before, trained.after], 12)
    for record, one in zip(ASKED, written[:2], strict=True):
        assert one.text == by_transformers(base, tokenizer, record, 12)
    model = PeftModel.from_pretrained(base, folder / "adapter")
    for record, one in zip(ASKED, written[2:], strict=True):
        assert one.text == by_transformers(model, tokenizer, record, 12)
    assert [one.text for one in written[:2]] != [one.text for one in written[2:]]


def test_a_model_that_was_trained_whole_has_its_before_too(make, llama_folder):
    where = run(make(method={"rounds": 1}, model={"trainable": "all"}, run={"decode_dtype": "model"})).folder
    trained = Trained.load(where)
    base, whole = (AutoModelForCausalLM.from_pretrained(one) for one in (llama_folder, where / "model"))
    tokenizer = AutoTokenizer.from_pretrained(where / "model")
    before, after = trained.answers(ASKED[:1], [trained.before, trained.after], 8)
    assert before.text == by_transformers(base, tokenizer, ASKED[0], 8)
    assert after.text == by_transformers(whole, tokenizer, ASKED[0], 8)
    with pytest.raises(ConfigError, match="one model for all sites"):
        Trained.load(where, "heart")


def test_a_sites_own_adapter_is_asked_for_by_its_name(make):
    where = run(make(method={"name": "local", "rounds": 1})).folder
    with pytest.raises(ConfigError, match=r"each site keeps an adapter.*--site heart \| skin"):
        Trained.load(where)
    assert Trained.load(where, "heart").after.keys() == Trained.load(where, "skin").after.keys()


def test_what_an_experiment_names_is_not_looked_for_among_what_its_run_has_left(make, tmp_path, monkeypatch):
    """Sites' own adapters lie in a folder that is called as the records are."""
    monkeypatch.chdir(tmp_path)
    table = make(method={"name": "local", "rounds": 1}).tables()
    table["data"] |= {"train": "sites", "heldout": "heldout.jsonl"}
    begun = Experiment.of(table)
    where = run(begun).folder
    assert (where / "sites" / "heart").is_dir()
    assert finished(where).data == begun.data


def test_what_cannot_answer_is_refused(folder, tmp_path):
    with pytest.raises(CheckpointError, match="no such run folder"):
        finished(tmp_path / "nowhere")
    (folder / "evaluation.json").write_text("{")  # which evaluating again mends
    assert finished(folder).method.rounds
    with pytest.raises(ConfigError, match="one adapter for all sites"):
        Trained.load(folder, "heart")
    summary = (folder / "summary.json").read_text()
    (folder / "summary.json").unlink()
    with pytest.raises(CheckpointError, match="not finished"):
        finished(folder)
    config = folder / "config.toml"
    (folder / "summary.json").write_text(summary)
    documents = config.read_text().replace('kind = "instruction"', 'kind = "document"')
    config.write_text(documents.replace("sample = 0\n", "sample = 16\n"))
    with pytest.raises(ConfigError, match="answers no instructions"):
        require_answers(folder)


class TestCommands:
    def rows(self, tmp_path):
        return small.write_lines(
            tmp_path / "new.jsonl", [{"instruction": one.instruction, "input": one.input} for one in ASKED]
        )

    def test_a_file_is_answered_line_by_line(self, folder, tmp_path):
        file, out = self.rows(tmp_path), tmp_path / "answers.jsonl"
        words = ["answer", str(folder), str(file), "--out", str(out), "--base", "--tokens", "6"]
        found = CliRunner().invoke(app, words)
        assert found.exit_code == 0, found.output
        trained = Trained.load(folder)
        told = [json.loads(line) for line in out.read_text().splitlines()]
        written = trained.answers(ASKED, [trained.after, trained.before], 6)
        assert [row["answer"] for row in told] == [one.text.strip() for one in written[:2]]
        assert [row["before"] for row in told] == [one.text.strip() for one in written[2:]]
        assert [row["line"] for row in told] == [1, 2] and told[1]["input"] == "letter 4"
        again = CliRunner().invoke(app, words)
        assert again.exit_code == 2 and "already exists" in again.output

    def test_questions_that_leave_no_room_are_not_counted_as_answered(self, folder, tmp_path):
        long = "the patient asks " * 2000
        file = small.write_lines(tmp_path / "new.jsonl", [{"instruction": one} for one in ("the rash", long)])
        out = tmp_path / "answers.jsonl"
        words = ["answer", str(folder), str(file), "--out", str(out), "--tokens", "6"]
        told = " ".join(CliRunner().invoke(app, words).output.split())
        assert "1 question without an answer, since it fills the model's context: line 2 1 question answered:" in told
        assert json.loads(out.read_text().splitlines()[1])["finished"] is False

    def test_a_bad_row_is_named_and_nothing_is_written(self, folder, tmp_path):
        file = small.write_lines(tmp_path / "new.jsonl", [{"instruction": "a"}, {"instruction": ""}])
        out = tmp_path / "answers.jsonl"
        found = CliRunner().invoke(app, ["answer", str(folder), str(file), "--out", str(out)])
        assert found.exit_code == 2 and "new.jsonl:2" in found.output and not out.exists()
        own = CliRunner().invoke(app, ["answer", str(folder), str(file), "--out", str(file)])
        assert own.exit_code == 2 and "would be overwritten" in own.output

    def test_a_column_is_called_as_the_runs_own(self, folder, tmp_path):
        config = folder / "config.toml"
        config.write_text(config.read_text().replace("[data.fields]", '[data.fields]\ninstruction = "question"'))
        file, out = small.write_lines(tmp_path / "new.csv.jsonl", [{"asked": "a"}]), tmp_path / "answers.jsonl"
        found = CliRunner().invoke(app, ["answer", str(folder), str(file), "--out", str(out)])
        assert found.exit_code == 2 and "Call the column that holds it 'question'" in " ".join(found.output.split())

    @pytest.mark.parametrize("place", ["config.toml", "summary.json", "adapter/adapter_model.safetensors"])
    def test_no_file_of_the_run_is_written_over(self, folder, tmp_path, place):
        out = folder / place
        before = out.read_bytes()
        words = ["answer", str(folder), str(self.rows(tmp_path)), "--out", str(out), "--overwrite"]
        found = CliRunner().invoke(app, words)
        assert found.exit_code == 2 and "this is the run's own" in found.output
        assert out.read_bytes() == before

    def test_lines_from_a_pipe_are_answered_before_and_after(self, folder):
        found = CliRunner().invoke(app, ["chat", str(folder), "--tokens", "4"], input="explain the heart\n\nand now\n")
        assert found.exit_code == 0, found.output
        assert (
            found.output.count("before") == 2 == found.output.count("after") and "> explain the heart" in found.output
        )

    def test_bytes_that_are_no_text_are_replaced(self, folder):
        found = CliRunner().invoke(app, ["chat", str(folder), "--tokens", "4"], input=b"\xff\xfe explain the heart\n")
        assert found.exit_code == 0 and "> \ufffd\ufffd explain the heart" in found.output, found.output
