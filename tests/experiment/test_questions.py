"""Questions of benchmarks in a run: read, fitted to the model, asked, judged, and shown."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from murmura import report
from murmura.augment import lead
from murmura.data.texts import text_hash
from murmura.errors import ConfigError, DataError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.view import show
from murmura.experiment.run import run
from murmura.measure.benchmarks import humaneval
from murmura.measure.evaluation_set import EvaluationSet
from murmura.runs import read_all
from murmura.tasks import INSTRUCTION
from tests.experiment.small import GSM8K, SUMS, experiment, write_data, write_lines
from tests.federation.world import instructions

NEWS = [{"text": f"the clinic reports {k}", "label": k % 3} for k in range(4)]
FPB = {"file": "news.jsonl", "labels": ["negative", "neutral", "positive"], "tokens": 3}
HUMANEVAL = {"file": "programs.jsonl", "tokens": 4, "form": "plain"}
PROGRAM = {"prompt": "def f():\n    return 1", "test": "def check(f):\n    assert f() == 1\n", "entry_point": "f"}


@pytest.fixture
def folder(tmp_path):
    write_data(tmp_path)
    for name, rows in (("sums", SUMS), ("news", NEWS), ("programs", [PROGRAM])):
        write_lines(tmp_path / f"{name}.jsonl", rows)
    return tmp_path


def asking(folder, llama, method=None, *, data=None, **benchmarks):
    return experiment(
        folder,
        llama,
        {"rounds": 1} | (method or {}),
        data=data or {},
        evaluation={"attacks": False, "benchmarks": benchmarks},
    )


def test_a_run_measures_them_in_every_measured_round_and_tells_everywhere(folder, llama_folder, capsys, monkeypatch):
    monkeypatch.setattr(humaneval.HumanEval, "prepare", lambda self: None)
    programs = HUMANEVAL | {"uncut": True, "seconds": 2}
    result = run(asking(folder, llama_folder, gsm8k=GSM8K, fpb=FPB, humaneval=programs))
    for row in result.rows:
        assert (row["gsm8k_n"], row["fpb_n"], row["humaneval_n"]) == (5, 4, 1)
        assert sum(row["answers"]["gsm8k"].values()) == 5 and sum(row["answers"]["humaneval"].values()) == 1
        assert row["gsm8k_parsed"] == 1 - row["answers"]["gsm8k"]["no answer found"] / 5
        assert row["humaneval"] == row["answers"]["humaneval"]["right"]
    records = read_all([result.folder])
    assert records[0].last.answers == result.rows[-1]["answers"]
    [row] = report.table(records)
    assert row.cells["fpb"].interval()[-1] == "n = 4"
    assert "GSM8K 0." in capsys.readouterr().err  # the line that ends a round
    page = (result.folder / "report.html").read_text()
    assert "What became of answers" in page and "no answer found" in page and "pass@1" in page
    assert "GSM8K, parsed" in report.markdown([row])


def test_they_may_be_measured_after_the_last_round_alone(folder, llama_folder):
    first, last = run(asking(folder, llama_folder, gsm8k=GSM8K, only_last=True)).rows
    assert "gsm8k" not in first and last["gsm8k_n"] == 5 and "answers" not in first


def test_a_run_without_them_shows_nothing_of_them(folder, llama_folder):
    result = run(experiment(folder, llama_folder, method={"rounds": 1}, evaluation={"attacks": False}))
    page = (result.folder / "report.html").read_text()
    assert "GSM8K" not in page and "What became of answers" not in page


def test_sites_measure_their_own_adapters_but_run_no_programs(folder, llama_folder):
    alone = {"name": "local"}
    last = run(asking(folder, llama_folder, alone, gsm8k=GSM8K)).rows[-1]
    assert last["gsm8k_n"] == 5 and sum(last["answers"]["gsm8k"].values()) == 5
    with pytest.raises(ConfigError, match="no site runs programs that a server sends"):
        dry_run(asking(folder, llama_folder, alone, humaneval=HUMANEVAL))


def test_the_dry_run_counts_questions_and_tokens(folder, llama_folder):
    planned = dry_run(asking(folder, llama_folder, gsm8k=GSM8K | {"records": 3}, fpb=FPB, only_last=True))
    assert planned.count("tokens for benchmarks") == 3 * 4 + 4 * 3
    console = Console(record=True, width=250)
    show(planned, console)
    text = console.export_text()
    assert "3 questions of gsm8k, 4 questions of fpb" in text and "at most 24 " in text
    alone = dry_run(asking(folder, llama_folder, {"name": "local"}, fpb=FPB))
    assert alone.count("tokens for benchmarks") == 2 * 4 * 3  # two sites write
    show(alone, console)
    assert "at most 24, 2 times" in console.export_text()


def test_a_question_without_room_for_its_answer_is_not_asked_and_told(folder, llama_folder, capsys):
    long = {"question": "how many tablets " * 2000, "answer": "#### 2"}
    write_lines(folder / "sums.jsonl", [*SUMS, long])
    planned = dry_run(asking(folder, llama_folder, gsm8k=GSM8K))
    assert len(planned.plan.asked.benchmarks[0].questions) == 5
    told = " ".join(capsys.readouterr().err.split())
    assert "1 question does not fit" in told and "sums.jsonl:6" in told
    with pytest.raises(DataError, match="no question leaves room for an answer of 100000 tokens") as caught:
        dry_run(asking(folder, llama_folder, gsm8k=GSM8K | {"tokens": 100_000}))
    assert "Lower evaluation.benchmarks.gsm8k.tokens" in str(caught.value)


def test_rows_of_a_pool_that_ask_the_same_are_found(folder, llama_folder):
    write_lines(
        folder / "options.jsonl",
        [{"instruction": "which dose", "input": "daily", "options": ["one", "two"], "answer": 1}] * 2,
    )
    wanted = {"choices": {"file": "options.jsonl"}, "benchmarks": {"gsm8k": GSM8K, "fpb": FPB}}
    planned = experiment(folder, llama_folder, evaluation=wanted)
    asked = dry_run(planned).plan.asked
    assert len(asked.choices) == 2
    sentiment = "What is the sentiment of this news? Please choose an answer from {negative/neutral/positive}."
    texts = ["other", "which dose daily", SUMS[2]["question"], f"{sentiment} {NEWS[1]['text']}", "which dose"]
    hashes = np.frombuffer(b"".join(text_hash(text) for text in texts), np.uint8).reshape(-1, 32)
    public = EvaluationSet(INSTRUCTION, instructions(2, 1), choices=asked.choices, asks=asked.asks)
    assert lead.asking(SimpleNamespace(hashes=hashes), public.subjects).tolist() == [1, 2, 3]


def test_a_bad_question_stops_a_run_before_it_begins_or_is_left_out(folder, llama_folder):
    write_lines(folder / "sums.jsonl", [*SUMS, {"question": "how many", "answer": "two"}])
    with pytest.raises(DataError, match=r"sums\.jsonl:6: 'answer' has no line with '####' and a number"):
        run(asking(folder, llama_folder, gsm8k=GSM8K))
    assert not (folder / "run").exists()
    result = run(asking(folder, llama_folder, data={"skip_bad": True}, gsm8k=GSM8K))
    assert result.rows[-1]["gsm8k_n"] == 5
    [left] = json.loads((result.folder / "exclusions.json").read_text())
    assert left["file"].endswith("sums.jsonl") and (left["line"], left["cause"]) == (6, "bad")


def test_a_system_that_does_not_cut_programs_off_is_told_before_a_run_begins(folder, llama_folder, monkeypatch):
    monkeypatch.setattr(humaneval.sandbox, "is_cut", lambda: False)
    with pytest.raises(ConfigError, match="does not keep them from the network"):
        run(asking(folder, llama_folder, humaneval=HUMANEVAL))
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"data": {"kind": "document"}}, r"benchmarks: it does nothing with documents"),
        (
            {
                "method": {
                    "name": "lpfl",
                    "patterns": ["{text} it was {blank}"],
                    "verbaliser": {"a": ["one"], "b": ["two"]},
                }
            },
            r"benchmarks: it does nothing with labelled records",
        ),
    ],
)
def test_kinds_of_record_with_no_template_are_refused(folder, llama_folder, sections, why):
    method = sections.pop("method", {"name": "dplora", "epsilon": 8.0} if "data" in sections else None)
    with pytest.raises(ConfigError, match=why):
        experiment(
            folder,
            llama_folder,
            method,
            evaluation={"sample": 16, "uploads": 2, "benchmarks": {"gsm8k": GSM8K}},
            **sections,
        )
