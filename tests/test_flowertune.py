"""FlowerTune's challenges: the presets do as the benchmark does, on invented rows with the columns of its data sets."""

import csv
import math
import re
import tomllib
import zipfile
from functools import cache
from pathlib import Path

import datasets
import huggingface_hub
import pytest
from transformers import MistralConfig

pytest.importorskip("lm_eval")

from lm_eval import tasks as harness_tasks
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as CHOSEN_BY_PEFT

from murmura.data.hub import is_hub_id
from murmura.experiment import Experiment
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.prepare import prepare
from murmura.experiment.run import run
from murmura.runs import read
from tests.experiment.small import write_lines
from tests.pages import EXAMPLES

ROOT = EXAMPLES.parent
SITES = {"general-nlp": (20, 2), "finance": (50, 5), "medical": (20, 2), "code": (10, 2)}
"""How many there are, and how many of them a round asks."""
TRAINED_ON = {
    "general-nlp": "flwrlabs/alpaca-gpt4",
    "finance": "flwrlabs/fingpt-sentiment-train",
    "medical": "flwrlabs/medical-meadow-medical-flashcards",
    "code": "flwrlabs/code-alpaca-20k",
}
TFNS = {"bearish": 0, "bullish": 1, "calm": 2}
MEANS = {"bearish": "negative", "bullish": "positive", "calm": "neutral"}
MARKS = [["right", "wrong", "worse", "worst"], ["wrong", "worse", "worst", "right"], ["wrong", "right", "worse", "bad"]]
SUBJECTS = {"stem": 19, "social_sciences": 12, "humanities": 13}
"""Of MMLU, as the benchmark counts them."""
FIGURES = {
    "general-nlp": {f"lm_eval.mmlu_{group}.acc_n": 3 * count for group, count in SUBJECTS.items()},
    "finance": {"fpb_n": 3, "fiqa_n": 3, "tfns_n": 6},
    "medical": {
        **{f"lm_eval.{task}.acc_n": 3 for task in ("pubmedqa_labelled", "careqa_en")},
        **{f"lm_eval.{task}.acc_norm_n": 3 for task in ("medmcqa", "medqa_4options")},
    },
    "code": {"humaneval_n": 2},
}
challenges = pytest.mark.parametrize("name", SITES)


def row(name, number):
    """A row of what a challenge trains on."""
    asked, input = f"explain result {number}", f"the patient {number}" if number % 2 else ""
    if name == "finance":
        asked, input = "name the summary", f"profit {number}"
    if name == "medical":
        asked, input = "answer this question truthfully", f"explain dose {number}"
    more = {"text": "the whole"} if name == "general-nlp" else {}
    return {"instruction": asked, "input": input, "output": f"take dose {number}"} | more


def flowertune(name, row):
    """What FlowerTune trains on, but for a space behind a question without input."""
    asked = {"general-nlp": row["instruction"], "medical": row["input"]}.get(name)
    asked = f"{row['instruction']} {row['input']}".rstrip() if asked is None else asked
    task = "Below is an instruction that describes a task. Write a response that appropriately completes the request."
    return f"{task}\n### Instruction:\n{asked}\n### Response: {row['output']}"


def options(names, **asked):
    """Three questions whose options stand in columns; ``asked`` gives the others, of the place of the right one."""
    return [
        dict(zip(names, marks, strict=True)) | {column: of(marks.index("right")) for column, of in asked.items()}
        for marks in MARKS
    ]


def hub_sets(path, config):
    """The splits of a set that a challenge trains on or asks; a KeyError where there is none."""
    if path == "cais/mmlu" and config:
        asked = [{"question": f"{config}?", "choices": marks, "answer": marks.index("right")} for marks in MARKS]
        return {"test": asked, "dev": asked[:1]}
    trained = {(path, None): {"train": [row(name, n) for n in range(120)]} for name, path in TRAINED_ON.items()}
    mcqa = options(["opa", "opb", "opc", "opd"], question=lambda at: "which?", cop=lambda at: at)
    usmle = options([f"ending{k}" for k in range(4)], sent1=lambda at: "who?", label=lambda at: at)
    care = options([f"op{k}" for k in range(1, 5)], question=lambda at: "what?", cop=lambda at: at + 1)
    pubmed = [
        {"question": f"is it {word}", "context": {"contexts": ["one", "two"]}, "final_decision": word}
        for word in ("yes", "no", "maybe")
    ]
    tweets = [{"text": f"{word} {n}", "label": label} for word, label in TFNS.items() for n in range(2)]
    programs = [
        {
            "task_id": f"HumanEval/{n}",
            "prompt": f"def more{n}(x):\n    ''' One more. '''\n",
            "canonical_solution": "    return x + 1\n",
            "test": "def check(candidate):\n    assert candidate(1) == 2\n",
            "entry_point": f"more{n}",
        }
        for n in range(2)
    ]
    return (
        trained
        | {
            ("openlifescienceai/medmcqa", None): {"train": mcqa[:1], "validation": mcqa, "test": mcqa[:2]},
            ("GBaker/MedQA-USMLE-4-options-hf", None): {"train": usmle[:1], "validation": usmle[:2], "test": usmle},
            ("HPAI-BSC/CareQA", "CareQA_en"): {"test": care},
            ("qiaojin/PubMedQA", "pqa_labeled"): {"train": pubmed},
            ("zeroshot/twitter-financial-news-sentiment", None): {"train": tweets[:1], "validation": tweets},
            ("openai/openai_humaneval", None): {"test": programs},
            ("pauri32/fiqa-2018", None): FIQA,
        }
    )[path, config]


def _fiqa(scores):
    return [{"sentence": f"share {score}", "sentiment_score": score, "format": "post"} for score in scores]


FIQA = {"train": _fiqa([-0.5, -0.1, 0.0, 0.09]), "validation": _fiqa([0.1, 0.7]), "test": _fiqa([-0.11, 0.3, 0.05])}


@pytest.fixture(scope="module")
def index():
    """Of the harness's own tasks the folders that challenges ask are looked through, and once: all take ten seconds."""
    asked = [Path(harness_tasks.__file__).parent / name for name in ("mmlu/default", "medmcqa", "medqa", "careqa")]
    everything = harness_tasks.TaskManager

    @cache
    def of(*, include_defaults, include_path):
        return everything(include_defaults=False, include_path=[*(asked if include_defaults else ()), include_path])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness_tasks, "TaskManager", of)
        yield


@pytest.fixture(autouse=True)
def hub(monkeypatch, tmp_path):
    """A hub that holds the invented rows, and the PhraseBank's file."""

    def load_dataset(path, name=None, split=None, **more):
        found = {one: datasets.Dataset.from_list(rows) for one, rows in hub_sets(path, name).items()}
        return found[split] if split else datasets.DatasetDict(found)

    def download(repo, file, *, repo_type):
        assert (repo, repo_type) == ("takala/financial_phrasebank", "dataset")
        (tmp_path / "hub" / file).parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(tmp_path / "hub" / file, "w") as packed:
            packed.writestr("FinancialPhraseBank-v1.0/Sentences_50Agree.txt", "\r\n".join(PHRASES).encode("latin-1"))
        return str(tmp_path / "hub" / file)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)


PHRASES = [
    *("Mänttä's profit rose to 3 @ 5@positive", "\x85 loss@negative", "Sales stood still@neutral"),
    *(f"Sales were {n}@{('negative', 'neutral', 'positive')[n % 3]}" for n in range(9)),
]


@pytest.fixture
def places(tmp_path, monkeypatch, llama_folder):
    """For a challenge, what is put in the place of its model and its records, and few short steps."""
    monkeypatch.chdir(tmp_path)

    def of(name):
        rows = [row(name, number) for number in range(120)]
        steps = {"method.rounds": 1, "training.max_steps": 1, "training.batch_size": 2}
        model = {"model.name": str(llama_folder), "model.quantization": None, "model.dtype": "float32"}
        records = {"data.train": str(write_lines(tmp_path / "train.jsonl", rows)), "data.heldout_records": 4}
        short = {"evaluation.attack_records": 4, "evaluation.sample": 1, "run.folder": str(tmp_path / "run")}
        if name == "code":
            short["evaluation.benchmarks.humaneval.tokens"] = 8
        if name == "finance":
            exec(_program(), {})
        return model | records | steps | short

    return of


def _program():
    return re.search(r"```python\n(.*?)```", (ROOT / "docs" / "flowertune.md").read_text(encoding="utf-8"), re.S)[1]


def load(name, set=None):
    return Experiment.load(EXAMPLES / "papers" / f"flowertune-{name}.toml", set=set)


@challenges
def test_values_are_the_benchmark_s(name):
    experiment = load(name)
    training, method, lora = experiment.training, experiment.method, experiment.lora
    assert (
        tomllib.loads((EXAMPLES / "papers" / f"flowertune-{name}.toml").read_text())["data"]["train"]
        == (TRAINED_ON[name])
    )
    assert is_hub_id(TRAINED_ON[name])
    assert (experiment.model.name, experiment.model.quantization) == ("mistralai/Mistral-7B-v0.3", "4bit")
    assert (lora.rank, lora.alpha, lora.dropout) == (32, 64, 0.075)
    assert list(lora.targets) == CHOSEN_BY_PEFT["mistral"]
    assert (experiment.data.sites.count, method.sites_per_round) == SITES[name]
    assert (experiment.data.sites.scheme, experiment.data.max_length) == ("iid", 512)
    assert (method.name, method.rounds, experiment.aggregation.rule.kind) == ("fedit", 200, "mean")
    assert (training.max_steps, training.batch_size, training.optimizer, training.clip) == (10, 16, "adamw", 1.0)
    rates = [training.rate(t, method.rounds) for t in range(200)]
    theirs = [1e-6 + 0.5 * (5e-5 - 1e-6) * (1 + math.cos(math.pi * t / 200)) for t in range(1, 201)]
    assert rates[1:] == pytest.approx(theirs[:-1]) and rates[0] == 5e-5


@challenges
def test_records_are_read_and_worded_as_there_and_questions_with_their_answers(name, places, index):
    """From the hub, by id, split and columns."""
    plan = prepare(load(name, {key: value for key, value in places(name).items() if key != "data.train"}))
    trained, asked = plan.records.people, plan.asked
    assert len(trained.sites) == SITES[name][0]
    template = plan.context.reading.template
    made = [template.prompt(one) + " " + one.output for site in trained.sites for one in site.records]
    assert len(made) == 116
    assert set(made) <= {flowertune(name, row(name, number)) for number in range(120)}
    counts = {f"{one.benchmark.name}_n": len(one.questions) for one in asked.benchmarks}
    for one in asked.benchmarks:
        if name == "finance":
            said = ["none of it" if label == "neutral" else label for label in map(_sentiment, one.questions)]
        else:
            assert one.benchmark.plain(one.questions[0]) == one.questions[0].prompt
            assert one.benchmark.config.form == "plain"
            said = ["    return x + 1\n"] * len(one.questions)
        assert all(verdict.right for verdict in one.benchmark.judge(one.questions, said))
    for group, tasks in asked.harness.tasks.items() if asked.harness else ():
        docs = [(task, doc) for task in tasks.values() for doc in task.eval_docs]
        assert all(_right(task, doc) in task.doc_to_text(doc) for task, doc in docs)
        metric = "acc_norm" if group in ("medmcqa", "medqa_4options") else "acc"
        counts[f"lm_eval.{group}.{metric}_n"] = len(docs)
        assert {task.get_config("num_fewshot") for task in tasks.values()} == {0}
    assert counts == FIGURES[name]


def _sentiment(question):
    """Of an invented text, by its words."""
    first, _, rest = question.text.partition(" ")
    if first == "share":
        return "negative" if float(rest) < -0.1 else "neutral" if float(rest) < 0.1 else "positive"
    return MEANS.get(first) or next(line.rsplit("@", 1)[1] for line in PHRASES if line.startswith(f"{question.text}@"))


def _right(task, doc):
    """What a question's text has in it where its right answer is read as it should be."""
    target = task.doc_to_target(doc)
    if "final_decision" in doc:
        assert "Abstract: one\ntwo\nQuestion: " in task.doc_to_text(doc)
        return f"is it {target if isinstance(target, str) else task.doc_to_choice(doc)[target]}"
    return f"{task.doc_to_choice(doc)[int(target)]}. right\n"


@challenges
def test_a_round_is_planned_trained_and_measured(name, places, index):
    experiment = load(name, places(name))
    assert [planned.sites for planned in dry_run(experiment).rounds] == [SITES[name][1]]
    result = run(experiment)
    record = read(result.folder)
    assert record.last.number == 1 and record.last.values["train_loss"] > 0
    for one in record.rounds:
        assert {key: one.values.get(key) for key in FIGURES[name]} == FIGURES[name]
    assert (result.folder / "adapter" / "adapter_model.safetensors").exists()


def test_quarters_of_the_finance_questions_are_the_ones_that_are_asked_there(places):
    places("finance")
    fiqa = [(row["sentence"],) for split in FIQA for row in FIQA[split]]
    for file, whole in (("fpb.csv", [line.rsplit("@", 1) for line in PHRASES]), ("fiqa.csv", fiqa)):
        drawn = datasets.Dataset.from_dict({"n": range(len(whole))}).train_test_split(0.25, seed=42)["test"]["n"]
        with Path(file).open(encoding="utf-8", newline="") as lines:
            assert [one["text"] for one in csv.DictReader(lines)] == [whole[n][0] for n in drawn]


@pytest.mark.parametrize("name", ["general-nlp", "finance"])
def test_bytes_of_the_real_model_are_within_the_benchmark_s_budget(name, places, tokenizer, tmp_path):
    """Of 200,000 MB; an adapter has 13,631,488 parameters of 4 bytes, 52 MiB."""
    config = MistralConfig(vocab_size=32768, num_key_value_heads=8, architectures=["MistralForCausalLM"])
    config.save_pretrained(tmp_path / "mistral")
    tokenizer.save_pretrained(tmp_path / "mistral")
    kept = ("data.train", "data.heldout_records", "model.quantization")
    changed = {key: value for key, value in places(name).items() if key in kept}
    found = dry_run(load(name, changed | {"model.name": str(tmp_path / "mistral"), "evaluation.benchmarks": None}))
    assert found.model.trainable == 32 * 32 * (2 * 4096 + 4096 + 1024) == 13_631_488
    travelled = sum(planned.bytes_up + planned.bytes_down for planned in found.rounds) / 2**20
    assert travelled == pytest.approx(52 * 2 * SITES[name][1] * 200, rel=0.01) and travelled < 200_000
