"""Tasks of lm-evaluation-harness: found, checked, and what is told of them."""

import random
from pathlib import Path

import datasets
import numpy as np
import pytest

pytest.importorskip("lm_eval")

from lm_eval.tasks import manager

from murmura.errors import ConfigError, DataError
from murmura.experiment import Experiment
from murmura.measure.catalogue import described, figure, measured
from murmura.measure.figure import interval
from murmura.measure.harness.tasks import TaskResult, headline, load
from tests.federation.world import make_workbench
from tests.measure.harness.small import write_tasks
from tests.pages import EXAMPLES
from tests.training.helpers import random_state


def only(monkeypatch, folder):
    """Let the harness have the tasks of one of its folders: to read all takes long."""
    monkeypatch.setattr(manager, "__file__", str(Path(manager.__file__).parent / folder / "manager.py"))


def test_tasks_of_ones_own_are_measured_for_each_adapter(tokenizer, tmp_path):
    bench = make_workbench(tokenizer)
    asked = load(write_tasks(tmp_path), limit=4)
    assert [len(asked.questions_of(name)) for name in ("doses", "visits")] == [4, 3]
    assert {"which dose 3 for the patient", "Question: how many visits 2\nAnswer:"} <= set(asked.subjects)
    assert asked.questions[0] == ("doses", "Question: which dose 0 for the patient\nAnswer:")
    found = asked.measure(bench, [random_state(bench.bank, seed, scale=0.5) for seed in (1, 2)])
    keys = ["lm_eval.doses.acc_norm", "lm_eval.visits.exact_match"]
    for one in found:
        assert list(one) == [key for name in keys for key in (name, f"{name}_n")]
        assert (one[f"{keys[0]}_n"], one[f"{keys[1]}_n"]) == (4, 3)
        assert one[keys[0]] * 4 == int(one[keys[0]] * 4)
    assert asked.measure(bench, [random_state(bench.bank, 2, scale=0.5)]) == found[1:]  # and again the same


def test_answered_questions_are_the_same_each_time(tokenizer, tmp_path, monkeypatch):
    """Drawn from the task's other questions."""
    _, path = write_tasks(tmp_path)
    (tmp_path / "visits.yaml").write_text((tmp_path / "visits.yaml").read_text() + "fewshot_split: test\n")
    bench, seen = make_workbench(tokenizer), []

    def write(adapters, prompts, *args, **more):
        seen.append([tokenizer.decode(prompt) for prompt in prompts])
        return [Written("0")] * len(prompts)

    monkeypatch.setattr(bench, "write", write)
    asked = load([path], few_shot=1)
    asked.measure(bench, [None, None])
    asked.measure(bench, [None])
    assert seen[0] == seen[1] == seen[2] and all(text.count("Question:") == 2 for text in seen[0])


@pytest.mark.parametrize("lines", ["", "fewshot_config: {sampler: first_n}\n"])
def test_more_answered_questions_than_a_task_has_are_refused_before_any_is_asked(tmp_path, lines):
    """Of three questions two are left beside the one that is asked."""
    _, path = write_tasks(tmp_path)
    (tmp_path / "visits.yaml").write_text((tmp_path / "visits.yaml").read_text() + f"fewshot_split: test\n{lines}")
    assert len(load([path], few_shot=2).questions) == 3
    with pytest.raises(ConfigError, match=r"tasks: visits: .* asked with 3 answered ones before each .*--few-shot"):
        load([path], few_shot=3)


@pytest.mark.parametrize("read", ["by_map", "by_own_numbers", "whole"])
def test_a_task_that_shuffles_has_the_same_questions_wherever_they_are_read(tmp_path, read):
    """Options, as GPQA does, which a machine caches, and with examples by numbers of its own; or the questions
    themselves, which none does."""
    found, states = [], []
    for seed in (1, 2):
        folder = tmp_path / f"machine-{seed}"
        folder.mkdir()
        path, _ = write_tasks(folder)
        (folder / "reading.py").write_text(SHUFFLING)
        (folder / "doses.yaml").write_text(
            (folder / "doses.yaml").read_text() + f"process_docs: !function reading.{read}\n"
        )
        random.seed(seed)
        np.random.seed(seed)
        states.append((random.getstate(), np.random.get_state()[1].tolist()))
        asked = load([path])
        found += [[str(doc) for doc in asked.each["doses"].eval_docs] for _ in range(2)]
        states.append((random.getstate(), np.random.get_state()[1].tolist()))
    assert found[0] == found[1] == found[2] == found[3]
    assert [str(doc) for doc in asked.each["doses"].fewshot_docs()] == found[-1]
    assert states[0] == states[1] and states[2] == states[3]


SHUFFLING = """\
import random

own = random.Random(42)

def by_own_numbers(docs):
    return docs.map(lambda doc: {"options": own.sample(doc["options"], 3)})

def by_map(docs):
    return docs.map(lambda doc: {"options": random.sample(doc["options"], 3)})

def whole(docs):
    return docs.shuffle()
"""


def test_feddca_s_medical_questions_are_mmlu_s_own_of_six_subjects(monkeypatch):
    def hub(path, name, **_):
        rows = [{"question": f"{name} {k}", "choices": list("wxyz"), "answer": k % 4} for k in range(6)]
        assert path == "cais/mmlu"
        return datasets.DatasetDict(test=datasets.Dataset.from_list(rows[:3]), dev=datasets.Dataset.from_list(rows[1:]))

    monkeypatch.setattr(datasets, "load_dataset", hub)
    only(monkeypatch, "mmlu/default")
    preset = Experiment.load(EXAMPLES / "papers" / "feddca-medical.toml").evaluation.benchmarks
    asked = load(preset.tasks, few_shot=preset.few_shot)
    subjects = "anatomy clinical_knowledge college_biology college_medicine medical_genetics professional_medicine"
    assert asked.questions == [
        (f"mmlu_{subject}", f"{subject} {k}\nA. w\nB. x\nC. y\nD. z\nAnswer:")
        for subject in subjects.split()
        for k in range(3)
    ]
    task = asked.each["mmlu_college_biology"]
    told = task.fewshot_context(task.eval_docs[0], num_fewshot=2)
    assert told.startswith("The following are multiple choice questions (with answers) about college biology.\n\n")
    assert "college_biology 1\n" in told and told.count("Answer: ") == 2 and told.endswith("Answer:")


def test_no_question_of_pubmedqa_stands_with_its_answer_before_itself(monkeypatch):
    """All are of one split, the answered ones too."""
    rows = [{"question": f"is it {k}", "context": {"contexts": ["so"]}, "final_decision": "yes"} for k in range(6)]
    monkeypatch.setattr(
        datasets, "load_dataset", lambda **_: datasets.DatasetDict(train=datasets.Dataset.from_list(rows))
    )
    only(monkeypatch, "pubmedqa")
    [task] = load(["pubmedqa_labelled"], few_shot=5).each.values()
    told = [task.fewshot_context(doc, num_fewshot=5) for doc in task.eval_docs]
    assert all(text.count(row["question"]) == 1 for text, row in zip(told, rows, strict=True))


def test_the_form_template_asks_in_the_runs_template(tokenizer, tmp_path, monkeypatch):
    bench, seen = make_workbench(tokenizer), []
    monkeypatch.setattr(
        bench, "write", lambda adapters, prompts, *args, **more: seen.extend(prompts) or [Written("0")] * len(prompts)
    )
    paths = write_tasks(tmp_path)[1:]
    for form in ("plain", "template"):
        [found] = load(paths, form=form).measure(bench, [None])
        assert found["lm_eval.visits.exact_match"] == pytest.approx(1 / 3)  # one of three answers is 0
    plain, template = (tokenizer.decode(seen[place]) for place in (0, 3))
    assert plain == "Question: how many visits 0\nAnswer:"
    assert template.startswith("<|im_start|>user\nQuestion: how many visits 0\nAnswer:<|im_end|>")


class Written:
    def __init__(self, text):
        self.text = text


def test_what_is_wrong_with_a_task_is_told_with_its_place(tmp_path):
    [path, _] = write_tasks(tmp_path)
    with pytest.raises(ConfigError, match=r"there is no such file"):
        load([str(tmp_path / "none.yaml")])
    (tmp_path / "none.yaml").write_text("metric_list: []")
    with pytest.raises(ConfigError, match=r"names no task"):
        load([str(tmp_path / "none.yaml")])
    (tmp_path / "doses.jsonl").unlink()
    with pytest.raises(DataError, match=r"evaluation.benchmarks.tasks: doses: the task cannot be loaded"):
        load([path])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("unsafe_code: true\n", "runs programs that a model wrote in this very process"),
        ("generation_kwargs: {do_sample: true, temperature: 0.8}\n", "draws answers at random"),
        ("generation_kwargs: {temperature: 0.7}\n", "draws answers at random"),  # which the harness takes to mean so
    ],
)
def test_what_is_not_measured_here_is_refused(tmp_path, lines, message):
    _, path = write_tasks(tmp_path)
    text = (tmp_path / "visits.yaml").read_text()
    (tmp_path / "visits.yaml").write_text(
        "".join(line + "\n" for line in text.splitlines() if "generation_kwargs" not in line or "unsafe" in lines)
        + lines
    )
    with pytest.raises(ConfigError, match=message):
        load([path])


def test_answers_that_the_model_has_no_room_for_are_refused_before_any_is_written(tmp_path):
    asked = load(write_tasks(tmp_path))
    asked.require_room(None)
    asked.require_room(10)  # eight tokens of an answer, one of the question, and one that the bank reads besides
    with pytest.raises(ConfigError, match="tasks: visits: answers may have 8 tokens, and the model reads 8"):
        asked.require_room(9)


def test_names_are_held_against_the_harness(monkeypatch):
    only(monkeypatch, "hellaswag")
    with pytest.raises(ConfigError, match=r"has no task 'hellaswagg'.*'hellaswag'"):
        load(["hellaswagg"])
    with pytest.raises(ConfigError, match=r"has no task 'qqq'. `lm-eval ls tasks` lists them"):
        load(["qqq"])


def test_a_group_is_the_mean_over_its_questions():
    """By hand: 3 of 4 and 1 of 2 questions are 4 of 6."""
    first = TaskResult({"acc,none": 0.75}, {"acc,none": np.array([1.0, 1, 1, 0])}, 4)
    second = TaskResult({"acc,none": 0.5}, {"acc,none": np.array([1.0, 0])}, 2)
    found = headline("both", [first, second])
    assert found == {"lm_eval.both.acc": pytest.approx(4 / 6), "lm_eval.both.acc_n": 6}
    low, high = interval(4 / 6, 6)
    assert figure("lm_eval.both.acc").words(found) == f"0.667 ({low:.3f}–{high:.3f}, n = 6)"


def test_the_interval_of_a_mean_is_student_s_and_of_a_share_it_stays_one():
    scipy = pytest.importorskip("scipy.stats")
    singles = np.array([0.2, 0.9, 0.4, 0.7])
    found = headline("mc", [TaskResult({"bleu,none": singles.mean()}, {"bleu,none": singles}, 4)])
    low, high = scipy.t.interval(0.95, 3, singles.mean(), scipy.sem(singles))
    assert (found["lm_eval.mc.bleu_low"], found["lm_eval.mc.bleu_high"]) == pytest.approx((low, high), abs=1e-6)
    rare = np.array([0.0] * 19 + [0.4])
    found = headline("mc", [TaskResult({"f1,none": rare.mean()}, {"f1,none": rare}, 20)])
    assert found["lm_eval.mc.f1_low"] == 0
    found = headline("mc", [TaskResult({"f1,none": 100 * rare.mean()}, {"f1,none": 100 * rare}, 20)])  # in per cent
    assert found["lm_eval.mc.f1_low"] < 0 and found["lm_eval.mc.f1_high"] > 1
    alike = np.full(4, 0.5)  # as of few questions by chance: that is not certain
    found = headline("mc", [TaskResult({"f1,none": 0.5}, {"f1,none": alike}, 4)])
    assert (found["lm_eval.mc.f1_low"], found["lm_eval.mc.f1_high"]) == interval(0.5, 4)
    assert headline("mc", [TaskResult({"bleu,none": 0.5}, {"bleu,none": alike}, 4)]) == {"lm_eval.mc.bleu": 0.5}


def test_a_metric_that_is_no_mean_has_no_interval():
    found = headline("text", [TaskResult({"word_perplexity,none": 12.5}, {}, 4)])
    assert found == {"lm_eval.text.word_perplexity": 12.5}
    assert figure("lm_eval.text.word_perplexity").better == "lower"


def test_the_metric_of_a_task_is_one_that_people_quote():
    values = dict.fromkeys(["acc,none", "acc_norm,none"], 0.5)
    assert TaskResult(values, {}, 1).first == "acc_norm,none"
    assert (
        TaskResult({"f1,none": 0.1, "exact_match,strict": 0.2, "exact_match,loose": 0.3}, {}, 1).first
        == "exact_match,strict"
    )
    assert TaskResult({"mc2,none": 0.1}, {}, 1).first == "mc2,none"


def test_a_task_without_a_number_is_named():
    with pytest.raises(ConfigError, match="tasks: odd: no metric of the task is a number"):
        headline("odd", [TaskResult({}, {}, 1)])
    assert headline("some", [TaskResult({}, {}, 1), TaskResult({"acc,none": 0.5}, {}, 2)]) == {"lm_eval.some.acc": 0.5}


def test_a_task_without_a_metric_is_refused_before_it_is_asked(tmp_path):
    path, _ = write_tasks(tmp_path)
    yaml = tmp_path / "doses.yaml"
    yaml.write_text(yaml.read_text().replace("[{metric: acc}, {metric: acc_norm}]", "[]"))
    with pytest.raises(ConfigError, match="tasks: doses: the task has no metric"):
        load([path])


def test_every_task_has_its_words():
    key = "lm_eval.gsm8k.exact_match,strict-match"
    one = figure(key)
    assert one.title == "gsm8k (exact_match, strict-match)" and one.better == "higher" and one.column == "measured"
    assert "read by its filter strict-match" in one.meaning
    assert figure("lm_eval.own.new_metric").better == ""
    row = {key: 0.5, f"{key}_n": 2, "heldout_loss": 1.0}
    assert [one.key for one in measured(row)] == ["heldout_loss", key]
    assert [one.key for one in described(row) if one.key.startswith("lm_eval.")] == [key]
