"""The studies prepare their data and write experiment files that load; the runs themselves take hours."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import tomli_w
from scipy import stats
from sklearn.metrics import roc_auc_score

from murmura import Experiment, report
from murmura.compare.arms import load as load_arms
from murmura.compare.jobs import Job
from murmura.experiment.run import run as start
from murmura.measure.attacks import ATTACKS
from murmura.retrieval.encoder import Encoder
from murmura.runs import RunFolder, read_all
from murmura.runs.audit import Audit, Written
from murmura.runs.augment import Given, Selection
from tests.augment.public import save_encoder
from tests.conftest import make_encoder
from tests.experiment import small
from tests.methods.pretext.world import texts
from tests.report.runs import write_run


@pytest.fixture
def data(tmp_path):
    """Files of the names and fields that the studies read, with invented rows."""
    medical = [
        {"input": f"What helps cough {k}? It is bad.", "output": f"Rest, case {k}. Drink tea."} for k in range(40)
    ]
    medical = [{"instruction": "Answer."} | row for row in medical]
    finance = [{"text": f"Profit rose by {k} percent .", "label": "positive"} for k in range(40)] * 2
    movie = [{"text": f"a film of {k} hours", "label": k % 2} for k in range(40)]
    rows = {"medical_icliniq": medical, "medical_medinstruct_test": medical, "finance_phrasebank": finance}
    rows |= {"code_codealpaca": medical, "general_seed_tasks": medical}
    rows["sentiment_movie_rt"] = movie
    for name, these in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in these))
    return tmp_path


def test_a_line_ends_at_a_line_feed_alone(study, tmp_path):
    runs, rows = study("runs"), [{"text": "a film\x85 of two\u2028 hours"}, {"text": "another"}]
    runs.write_rows(tmp_path / "rows.jsonl", rows)
    assert runs.read_rows(tmp_path / "rows.jsonl") == rows


def test_a_folder_without_the_data_is_named(study, tmp_path):
    with pytest.raises(SystemExit, match=r"nowhere.rows\.jsonl: no such file; --data"):
        study("runs").read_rows(tmp_path / "nowhere" / "rows.jsonl")


def test_records_become_instructions(study):
    runs = study("runs")
    finance = runs.as_instructions([{"text": "Profit rose .", "label": "positive"}])
    assert finance == [{"instruction": runs.SENTIMENT, "input": "Profit rose .", "output": "positive"}]
    same = [{"instruction": "Answer.", "input": f"What helps cough {k}?", "output": "Tea.", "id": k} for k in range(3)]
    other = {"instruction": "Name a tea.", "input": "", "output": "Mint."}
    found = runs.as_instructions([*same, other, {**other, "instruction": "Answer."}])
    assert [row["instruction"] for row in found] == [f"What helps cough {k}?" for k in range(3)] + [
        "Name a tea.",
        "Answer.",
    ]
    assert found[3] == other and runs.as_instructions([other, same[0]])[1]["instruction"] == "Answer."


def test_shortening_keeps_whole_sentences(study):
    shorten = study("runs").shorten
    assert shorten("One two. Three four five.  Six.", 5) == "One two. Three four five."
    assert shorten("One two three.", 2) == ""


@pytest.mark.parametrize("scale", ["SMALL", "FULL"])
def test_medical(study, data, tmp_path, scale):
    module, out = study("medical"), tmp_path / "out"
    sizes = getattr(module, scale)
    module.prepare(data, out, sizes)
    assert len(study("runs").read_rows(out / "private.jsonl")) == 40
    written = module.comparison("smollm2-135m", "bfloat16", sizes)
    (out / "medical.toml").write_text(tomli_w.dumps(written))
    config, arms = load_arms([out / "medical.toml"])
    assert len(arms) == 12 and len(arms[0].rates) == len(config.rates) > 1
    assert {arm.experiment.method.name for arm in arms} == {"fedit", "fedmit", "fewfedpit", "dplora", "pretext"}
    assert {arm.experiment.model.dtype for arm in arms} == {"bfloat16"}
    written["compare"]["arms"] += module.more(sizes)
    (out / "medical.toml").write_text(tomli_w.dumps(written))
    _, more = load_arms([out / "medical.toml"])
    assert [arm.name for arm in more[:12]] == [arm.name for arm in arms] and len(more) == 16


@pytest.mark.parametrize("scale", ["SMALL", "FULL"])
def test_dplora(study, data, tmp_path, scale):
    module, out = study("dplora"), tmp_path / "out"
    sizes = getattr(module, scale)
    module.prepare(data, out, sizes)
    rows = study("runs").read_rows(out / "questions.jsonl")
    assert len({row["instruction"] for row in rows}) == len(rows) == 40
    table = module.comparison("smollm2-135m", "bfloat16", sizes)
    table["compare"]["arms"] += module.more()
    (out / "dplora.toml").write_text(tomli_w.dumps(table))
    _, arms = load_arms([out / "dplora.toml"])
    experiments = [arm.experiment for arm in arms]
    assert {e.training.optimizer for e in experiments} == {"sgd"} and {len(arm.rates) for arm in arms} == {
        len(sizes.rates)
    }
    assert [e.method.epsilon for e in experiments if e.aggregation.rule.kind == "ffa"] == sizes.epsilons
    assert {e.lora.rank for e in experiments} == {1, module.RANK, 16}


def test_the_table_is_of_all_runs_that_are_there(study, tmp_path):
    there = ["finance-dplora-8-seed0", "finance-dplora-8-seed1", "finance-dplora-8-rank2-seed0", "medical-cmfl-seed0"]
    for name in there:
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text("{}")
    (tmp_path / "finance-cmfl-seed0").mkdir()  # not finished
    names = [f"finance-{arm}" for arm in ("dplora-8", "dplora-8-rank2", "cmfl")]
    assert [folder.name for folder in study("runs").finished(tmp_path, names)] == there[:3]


def test_finished_runs_are_kept(study, tmp_path, monkeypatch):
    runs, started = study("runs"), []
    monkeypatch.setattr(runs.subprocess, "run", lambda command, check: started.append(command))
    for name in ("done", "stopped", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "done" / "summary.json").write_text("{}")
    (tmp_path / "stopped" / "config.toml").write_text("")
    (tmp_path / "stopped" / "checkpoint").mkdir()
    for name in ("done", "stopped", "new"):
        runs.work(tmp_path / name, {"run": {"name": name}})
    assert [command[:4] for command in started] == [[sys.executable, "-m", "murmura", "run"]] * 2
    assert ["--resume" in command for command in started] == [True, False]


@pytest.mark.parametrize("scale", ["SMALL", "FULL"])
@pytest.mark.parametrize("name", ["movie", "finance"])
def test_lpfl(study, data, tmp_path, name, scale):
    module, out = study("lpfl"), tmp_path / "out"
    sizes = getattr(module, scale)
    module.prepare(name, data, out, sizes)
    table = module.comparison(name, 5, "smollm2-135m", "bfloat16", sizes)
    table["compare"]["arms"] += module.whole(sizes)
    (out / "lpfl.toml").write_text(tomli_w.dumps(table))
    config, arms = load_arms([out / "lpfl.toml"])
    assert [arm.name for arm in arms[:4]] == list(module.ARMS) and len(arms) == 6
    # All arms but one read each true label as often, and all are measured on the same texts.
    assert {arm.experiment.training.epochs for arm in (arms[0], *arms[2:])} == {sizes.epochs}
    assert all(arm.experiment.training.max_steps is None for arm in arms)
    assert len({arm.experiment.method.validation_records for arm in arms}) == 1
    assert {len(arm.rates) for arm in arms} == {len(config.rates)}
    assert [arm.experiment.model.trainable for arm in arms] == ["adapter"] * 4 + ["all"] * 2


def test_accuracy_is_told_by_the_number_of_sites(study, tmp_path):
    alone, _, plain, _ = study("lpfl").ARMS
    accuracies = {(1, alone): (0.5, 0.6), (5, alone): (0.75, 0.75), (5, plain): (0.7,)}
    for (sites, arm), own in accuracies.items():
        for seed, accuracy in enumerate(own):
            folder = tmp_path / f"movie-{sites}" / "runs" / f"{arm.replace(' ', '-')}-seed{seed}"
            write_run(folder, seed=seed, rows=[{"round": 0, "accuracy": accuracy}])
    assert study("lpfl").by_sites(tmp_path, "movie", (1, 5)).splitlines() == [
        "| accuracy by the number of sites | 1 | 5 |",
        "| --- | --: | --: |",
        "| labels alone | 0.550 | 0.750 (+0.200 ± 0.050) |",
        "| labels alone, as many steps | – | – |",
        "| LP-FL | – | 0.700 (–) |",
        "| LP-FL, surest first | – | – |",
    ]


@pytest.fixture
def leakage(study, data, tmp_path):
    """A set of the leakage study, ready to run."""

    def load(name, scale="SMALL"):
        module = study("leakage_runs")
        medical, texts = data / "medical_icliniq.jsonl", data / "sentiment_movie_rt.jsonl"
        files = {"clinic": module.CLINIC, "medical": medical, "texts": texts}
        sizes, out = getattr(module, scale), tmp_path / "out"
        task = module.prepare(name, files[name], out, sizes)
        return study("leakage"), module.Study(name, out, sizes, "smollm2-135m", task)

    return load


@pytest.mark.parametrize("scale", ["SMALL", "FULL"])
@pytest.mark.parametrize("name", ["clinic", "medical", "texts"])
def test_leakage(leakage, tmp_path, name, scale):
    _, study = leakage(name, scale)
    for attacked in (False, True):
        found = [Experiment.of(study.experiment(tmp_path / arm, arm, 0, 1e-3, attacked=attacked)) for arm in study.arms]
        assert len({one.dump() for one in found}) == len(found) >= 2
        assert all(one.evaluation.attacks is attacked for one in found)
        assert all(bool(one.audit.canaries) == (attacked and name != "texts") for one in found)


def test_labels_that_nobody_has_words_for_are_refused(study, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"text": "a film", "label": "awful"}) + "\n")
    module = study("leakage_runs")
    with pytest.raises(SystemExit, match="no words for the labels awful"):
        module.prepare("texts", file, tmp_path / "out", module.SMALL)


def test_the_pilot_chooses_the_rate_with_the_least_loss_of_those_that_came_to_an_end(leakage):
    module, study = leakage("clinic")
    folders = study.piloted("fedavg")
    with pytest.raises(SystemExit, match="clinic: no rate of the arm 'fedavg' came to an end"):
        study.rate("fedavg")
    for folder, loss, finished in zip(folders.values(), (2.0, 1.5, 1.9, 1.0), (True, True, True, False), strict=True):
        write_run(folder, finished=finished, rows=[{"round": 0}, {"round": 3, "heldout_loss": loss}])
    assert study.rate("fedavg") == study.rate("beta-1") == list(folders)[1]
    assert study.rate("control") < 1e-6
    assert "| fedavg | 0.001: 2.000, 0.003: 1.500, 0.01: 1.900 | 0.003 |" in module.rates_table(study)


def test_a_job_that_fails_ends_the_study_and_the_jobs_behind_it_do_not_begin(study):
    begun = []

    def job(name, error=None):
        def work():
            begun.append(name)
            if error:
                raise error

        return work

    with pytest.raises(OSError, match="full"):
        study("runs").together([job("a"), job("b", OSError("full")), *map(job, "cdefgh")], 1)
    assert begun == ["a", "b"]


def scored_run(folder, arm, seed, scores, aucs):
    """A finished run with the AUC of its model and of its uploads after each round, and the scores of its records."""
    rows = [{"round": 0}]
    for round, (model, uploads) in enumerate(aucs, 1):
        each = {}
        for target, value in (("attack", model), ("upload", uploads)):
            each[target] = {"attack": "error zone", "members": 3, "others": 2, "each": {"error zone": [value, 0, 1]}}
        rows.append({"round": round, "attacks": each, "attack_auc": model, "upload_auc": uploads})
    write_run(folder, method=arm, seed=seed, rows=rows)
    parts = {part: {name: {"error zone": score} for name, score in own.items()} for part, own in scores.items()}
    (folder.parent / f"{folder.name}.scores.json").write_text(json.dumps(parts))


def test_the_tables_of_leakage_answer_by_pairs_of_records_and_of_runs(leakage, tmp_path, capsys):
    module, study = leakage("clinic")
    others = {f"other {k}": 0.5 + 0.001 * k for k in range(40)}
    for seed in (0, 1):
        for arm, members, aucs in (("fedavg", 0.9, [(0.6, 0.7), (0.9, 0.95)]), ("beta-0", 0.1, [(0.5, 0.5)] * 2)):
            scores = {"members": {f"member {k}": members + 0.001 * k for k in range(40)}, "others": others}
            scored_run(study.folder(arm, seed), arm, seed, scores, aucs)
    (tmp_path / "tables").mkdir()
    module.tables([study], [0, 1], tmp_path / "tables")
    text = (tmp_path / "tables" / "leakage-clinic.table.md").read_text()
    assert "| fedavg − beta-0 | leakage falls with β | +1.000 (+1.000 to +1.000) | yes |" in text
    assert "| fedavg | 1.000 (1.000–1.000) | 2 |" in text
    runs = (tmp_path / "tables" / "leakage-runs.table.md").read_text()
    # uploads: +0.05, +0.05, 0, 0; last round above the first: +0.3, +0.3, 0, 0
    assert "| fedavg | uploads leak more than the aggregate | 2 of 2 | +0.050 | – |" in runs
    assert "| all arms | uploads leak more than the aggregate | 2 of 4 | +0.025 (−0.021 to +0.071) | no |" in runs
    assert "| all arms | leakage rises with rounds | 2 of 4 | +0.150 (−0.126 to +0.426) | no |" in runs


def test_paired_differences_are_on_the_same_records(study):
    paired, rng = study("paired"), np.random.default_rng(0)
    names = [f"record {k}" for k in range(80)]
    hard = dict(zip(names, rng.normal(size=80), strict=True))  # what both runs find hard

    def run(gain):
        scores = {name: score + (gain if k < 40 else 0.0) for k, (name, score) in enumerate(hard.items())}
        return paired.Scored(*({name: scores[name] for name in part} for part in (names[:40], names[40:])))

    one, other = run(0.6), run(0.3)
    truth = [roc_auc_score([1] * 40 + [0] * 40, [*run.members.values(), *run.others.values()]) for run in (one, other)]
    alone, found = [paired.auc([run]) for run in (one, other)], paired.difference([(one, other)])
    assert [run.value for run in alone] == pytest.approx(truth)
    assert found.value == pytest.approx(truth[0] - truth[1])
    assert found.shows and found.low > 0
    assert found.high - found.low < 0.5 * (alone[0].high - alone[0].low)
    same = paired.difference([(one, one), (other, other)])
    assert (same.value, same.low, same.high) == (0, 0, 0) and not same.shows


def test_an_interval_over_runs_is_students(study):
    found = study("paired").over_runs([0.1, 0.2, 0.3, 0.4])
    expected = stats.t.interval(0.95, 3, 0.25, stats.sem([0.1, 0.2, 0.3, 0.4]))
    assert (found.low, found.high) == pytest.approx(expected)


def test_records_are_scored_one_by_one_and_canaries_are_none(study, llama_folder, tmp_path):
    small.write_data(tmp_path)
    training = {"lr": 3e-2, "epochs": 4}
    options = {"method": {"rounds": 1}, "audit": {"canaries": 2, "candidates": 2}, "training": training}
    folder = start(small.experiment(tmp_path, llama_folder, **options)).folder
    [(_, found)] = study("paired").score([folder])
    assert (len(found["members"]), len(found["others"])) == (sum(small.SIZES.values()), small.HELDOUT)
    assert all(one.keys() == ATTACKS.keys() for part in found.values() for one in part.values())
    assert min(one["loss difference"] for one in found["members"].values()) > 0


@pytest.fixture
def two_arms(tmp_path):
    """Rows of finished runs: one arm with two seeds, another with one."""
    folders = []
    for arm, ends in (("one", {0: 1.0, 1: 2.0}), ("other", {1: 1.5})):
        for seed, end in ends.items():
            rounds = [{"round": 0, "heldout_loss": 3.0 + seed}, {"round": 1, "heldout_loss": end}]
            folders.append(write_run(tmp_path / f"{arm}-{seed}", method=arm, seed=seed, rows=rounds))
    return report.table(read_all(folders))


def test_a_figure_is_shown_round_by_round_as_the_mean_over_seeds(study, two_arms):
    assert study("runs").by_round(two_arms, "heldout_loss").splitlines() == [
        "| Held-out loss by round | 0 | 1 |",
        "| --- | --: | --: |",
        "| one | 3.500 ± 0.707 | 1.500 ± 0.707 |",
        "| other | 4.000 | 1.500 |",
    ]


def test_a_figure_is_shown_seed_by_seed_with_its_difference_from_the_first_arm(study, two_arms):
    assert study("runs").by_seed(two_arms, "heldout_loss").splitlines() == [
        "| Held-out loss by seed | 0 | 1 |",
        "| --- | --: | --: |",
        "| before training | 3.000 | 4.000 |",
        "| one | 1.000 | 2.000 |",
        "| other | – | 1.500 (−0.500) |",
    ]


def cells(table):
    return [line.strip("| ").split(" | ") for line in table.splitlines()][2:]


def test_figures_of_rounding(study):
    """Others move, by less than what the margins are for."""
    single, half = cells(study("privacy_figures").rounding(sizes=(2, 4), seeds=1))
    assert [single[0], half[0]] == ["float32", "bfloat16"]
    assert 0 <= float(single[1]) < 1e-5 and 0 <= float(half[1]) < 2**-5
    assert float(single[2]) == pytest.approx(1, abs=1e-5) and float(half[2]) == pytest.approx(1, abs=2**-5)


def test_figures_of_canaries(study):
    assert cells(study("privacy_figures").canaries(counts=(8,))) == [["8", "0.78", "0.39"]]


def test_figures_of_centres(study):
    """The more records a cluster has, and the larger ε is, the more noise leaves of its centre."""
    figures = study("privacy_figures").centres((2.0, 8.0), (5, 500), clusters=3, dimension=16, seeds=1)
    (_, noise, few, many), (_, less, better, best) = ([float(one) for one in line] for line in cells(figures))
    assert noise > less > 0 and few < 0.6 < 0.9 < many <= 1 and better < 0.9 and many <= best + 0.01


def test_figures_of_sums(study):
    """At one ε: two turns of a site, five rounds apart; the first step of a tree of five is in three nodes."""
    found = {line[1]: [float(one) for one in line[2:]] for line in cells(study("privacy_figures").sums([(10, 2, 10)]))}
    fresh, tree = found["fresh in each round"], found["trees of 5 rounds"]
    assert fresh[2] == pytest.approx(fresh[0] * 10**0.5, rel=0.01) and fresh[1] == pytest.approx(
        fresh[0] * 5.5**0.5, 0.01
    )
    assert tree[0] == pytest.approx(fresh[0] * 3**0.5, rel=0.01)
    assert tree[2] == pytest.approx(tree[0] * (2 + 2) ** 0.5, rel=0.01)  # two nodes for five rounds
    assert found["5 bands"][1] < found["2 bands"][1] < fresh[1]
    assert found["5 bands"][1] < found["trees of 5 rounds, Honaker"][1] < tree[1]


@pytest.fixture
def domain(study, data, monkeypatch):
    """The study of public records, and what pools were asked for; they are not built."""
    rows = [{"instruction": f"Do task {k}.", "input": "", "output": "x = 1\nDone.  Yes."} for k in range(90)]
    for name in ("code_codealpaca", "math_gsm8k_train"):
        (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    module, built = study("domain"), []
    monkeypatch.setattr(module, "build_pool", lambda *asked: built.append(asked))
    return module, built


@pytest.mark.parametrize("name", ["code", "math"])
@pytest.mark.parametrize("scale", ["SMALL", "FULL"])
def test_domain(domain, data, tmp_path, name, scale):
    module, _ = domain
    sizes, out = getattr(module, scale), tmp_path / "out"
    module.prepare(name, data, out, sizes)
    table = module.comparison(name, "smollm2-135m", "bfloat16", sizes)
    table["compare"]["arms"] += module.more(name, sizes)
    (out / "domain.toml").write_text(tomli_w.dumps(table))
    _, arms = load_arms([out / "domain.toml"])
    augmented = {arm.name: arm.experiment.augment for arm in arms}
    assert [name for name, one in augmented.items() if one is None] == ["local"] and arms[0].name == "FedDCA"
    given = [one for one in augmented.values() if one is not None]
    assert {one.records for one in given} == {sizes.fetched} and len(given) == 8
    assert [one.strategy for one in given if one.domain is None] == ["self-instruct"]
    # All take as many steps of as many records.
    assert (
        len({(e.training.max_steps, e.training.batch_size, e.method.rounds) for e in (a.experiment for a in arms)}) == 1
    )


def test_the_pools_of_the_domain_study_are_built_without_what_is_private(study, domain, data, tmp_path):
    module, built = domain
    out = tmp_path / "out"
    module.prepare("code", data, out, module.SMALL.but(apart=20, public=50))
    rows = {name: study("runs").read_rows(out / f"{name}.jsonl") for name in ("private", *module.FILES)}
    assert [len(own) for own in rows.values()] == [20, 50, 50, 40, 40, 40]
    questions = {name: {row["instruction"] for row in own} for name, own in rows.items()}
    assert not questions["private"] & questions["code"]
    assert {row["output"] for row in rows["private"]} == {"x = 1\nDone.  Yes."}  # code is as it was
    assert rows["medical"][0]["instruction"].startswith("What helps cough")
    assert [[pool.name, len(sources), *options] for pool, sources, *options in built] == [
        ["pool", 5, "--without-private", str(out / "private.jsonl")],
        ["domain", 1, "--without-private", str(out / "private.jsonl")],
    ]


def test_loss_stands_beside_coverage(domain, tmp_path):
    module, _ = domain
    for place, (arm, loss) in enumerate({"FedDCA": 0.5, "random": 0.75, "direct": 0.625, "local": 1.0}.items()):
        for seed in (0, 1):
            rows = [{"round": 0, "heldout_loss": 2.0}, {"round": 1, "heldout_loss": loss + seed / 4}]
            folder = write_run(tmp_path / "runs" / f"{arm}-seed{seed}", seed=seed, rows=rows)
            given = {"a": Given(3, 0, 9, {"code": 2, "math": 1}), "b": Given(3, 0, 9, {"code": 3 - seed})}
            if arm != "local":
                RunFolder(folder).write_augment([Selection(1, arm, given, coverage=0.9 - place / 8)])
    assert module.shown(tmp_path).splitlines() == [
        "| arm | seeds | given | domain coverage | held-out loss |",
        "| --- | --: | --- | --: | --: |",
        "| FedDCA | 2 | code 4, math 1 | 0.900 | 0.625 |",
        "| direct | 2 | code 4, math 1 | 0.650 | 0.750 |",
        "| local | 2 | – | – | 1.125 |",
        "| random | 2 | code 4, math 1 | 0.775 | 0.875 |",
        "",
        "Spearman's rank correlation of coverage and loss over 3 arms: -0.50",
        "",
        "| pair | difference in loss |",
        "| --- | --- |",
        "| FedDCA − direct | −0.125 (−0.125 to −0.125), p = 0.500 |",
        "| FedDCA − local | −0.500 (−0.500 to −0.500), p = 0.500 |",
        "| FedDCA − random | −0.250 (−0.250 to −0.250), p = 0.500 |",
        "| direct − local | −0.375 (−0.375 to −0.375), p = 0.500 |",
        "| direct − random | −0.125 (−0.125 to −0.125), p = 0.500 |",
        "| local − random | +0.250 (+0.250 to +0.250), p = 0.500 |",
    ]


@pytest.fixture
def extraction(study, tmp_path, monkeypatch):
    """The study of extraction, on invented records; pools are not built."""
    rows = [{"instruction": f"Do task {k}.", "input": "", "output": "Done."} for k in range(90)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    module, built = study("extraction"), []
    monkeypatch.setattr(module, "build_pool", lambda *asked: built.append(asked))
    one = module.Study(tmp_path / "tasks.jsonl", ("math=m.jsonl",), tmp_path / "out", module.SMALL, "smollm2-135m")
    return module, one, built


def test_extraction(extraction):
    module, study, built = extraction
    for scale in (module.FULL, module.SMALL):
        one = replace(study, scale=scale)
        found = [Experiment.of(one.experiment(public, 0)) for public in scale.public]
        assert [0 if made.augment is None else made.augment.records for made in found] == list(scale.public)
        assert all(made.audit.keep and made.method.rounds == scale.rounds for made in found)
    place = study.out / "records-seed0"
    counts = [len((place / f"{name}.jsonl").read_text().splitlines()) for name in ("heldout", "private", "own")]
    assert counts == [32, 32, 90] and built[0][0] == place / "pool"
    assert built[0][1] == [f"own={place / 'own.jsonl'}", "math=m.jsonl"]


def test_extraction_is_told_by_how_many_public_records_there_are(extraction):
    module, study, _ = extraction

    def audited(public, seed, rouge):
        folder = write_run(study.folder(public, seed))
        told = [
            Written(target, "template", 8, 8, rouge, 0.1, rouge - 0.1, -0.1, 0.3) for target in ("uploads", "model")
        ]
        other = Written("uploads", "record", 8, 8, 0.9, 0.1, 0.8, 0.1, 0.9)
        (folder / "private").mkdir()
        RunFolder(folder).write_audit(Audit("0.1", "now", (), (), (), (other, *told), None, ()), [])

    audited(0, 0, 0.25)
    audited(0, 1, 0.35)
    audited(128, 0, 0.2)
    write_run(study.folder(32, 0))  # not audited yet
    text = module.table(study, [0, 1])
    assert "| single uploads, 0 | 2 | 0.300 ± 0.0500 | 0.100 ± 0.0000 | +0.2000 ± 0.0500 |" in text
    assert "| the model, 128 | 1 | 0.200 | 0.100 | +0.1000 |" in text
    assert "| single uploads, 32 | – | – | – | – |" in text


def test_what_a_small_encoder_saves_a_site(study, tokenizer, tmp_path):
    module, names = study("site_encoder"), {}
    for called, hidden in {"large": 64, "small": 32}.items():
        names[called] = str(save_encoder(tmp_path / called, tokenizer, hidden=hidden))
    costs = module.compared(names, ["fever", "a rash on the skin"], 2)
    sizes = [sum(one.numel() for one in make_encoder(tokenizer, hidden=hidden).parameters()) for hidden in (64, 32)]
    assert [one.parameters for one in costs] == sizes and all(one.seconds > 0 for one in costs)
    text = module.table([replace(costs[0], seconds=3.0), replace(costs[1], seconds=1.5)], 2)
    assert f"| large | {sizes[0]:,} |" in text and text.endswith(f"{sizes[0] / sizes[1]:.1f} times | 2.0 times |\n")


@pytest.fixture
def pretext(study, tmp_path, tokenizer):
    """The study of PrE-Text in small, with invented texts of tablets, rashes and letters, and its files."""
    module = study("pretext")
    fields = {module.PRIVATE: "text", "sentiment_movie_rt": "text", "code_codealpaca": "instruction"}
    topics = dict.fromkeys(module.OTHERS, "letter") | {module.PRIVATE: "tablets", "math_gsm8k_train": "rash"}
    for k, (name, topic) in enumerate(topics.items()):
        rows = [{fields.get(name, "output"): text} for text in texts(topic, 24, 100 * k)]
        small.write_lines(tmp_path / "data" / f"{name}.jsonl", [*rows, rows[0], {"text": "too short"}])
    encoder = save_encoder(tmp_path / "encoder", tokenizer)
    few = {"sites": 4, "texts": 2, "heldout": 3, "far": 30, "near": 2, "few": 1, "words": (8, 24), "samples": 6}

    def prepare(scale="SMALL", **sizes):
        scale = getattr(module, scale).but(**few | sizes)
        module.prepare(tmp_path / "data", tmp_path / "out", scale, Encoder(str(encoder)))
        return module, scale, str(encoder)

    return prepare


@pytest.mark.parametrize("scale", ["SMALL", "FULL"])
def test_pretext(pretext, tmp_path, scale):
    module, sizes, encoder = pretext(scale)
    table = module.comparison("smollm2-135m", encoder, "float32", sizes)
    table["compare"]["arms"] += module.more(sizes, "smollm2-135m", encoder)
    (tmp_path / "out" / "pretext.toml").write_text(tomli_w.dumps(table))
    config, arms = load_arms([tmp_path / "out" / "pretext.toml"])
    found = {arm.name: arm for arm in arms}
    controls = ["PrE-Text ε=7.58, one round", "Expand-only, near ones alone"]
    assert {len(arm.rates) for arm in arms} == {1, len(config.rates)} and config.reference == "Expand-only"
    assert [name for name, arm in found.items() if arm.rate_of] == controls
    whole = [name for name, arm in found.items() if arm.experiment.model.trainable == "all"]
    assert len(whole) == 4 * len(sizes.clips)  # Hou et al. 2024, section 4.1
    assert {arm.rates for name, arm in found.items() if "DP-F" in name} == {(10.0,)}
    # The same noise for the same ε, whatever it hides, and one way to read all texts.
    assert {arm.experiment.method.delta for arm in arms if arm.experiment.method.private} == {3e-6}
    assert {arm.experiment.data.opening for arm in arms} == {"always"}
    public = {name: getattr(arm.experiment.method, "public", None) for name, arm in found.items()}
    far = [name for name, file in public.items() if str(file).endswith("far.jsonl")]
    assert far == ["Expand-only, none near", "PrE-Text ε=7.58, none near"]


def test_texts_of_the_pretext_study_are_of_one_part_alone(study, pretext, tmp_path):
    pretext()
    files = {
        name: [row["text"] for row in study("runs").read_rows(tmp_path / "out" / f"{name}.jsonl")]
        for name in ("private", "far", "near", "public", "few")
    }
    private, far, public = files["private"], files["far"], files["public"]
    assert len(private) == 4 * 2 + 3 and all("tablets" in text for text in private)
    assert len(far) == 30 and not any("tablets" in text for text in far)
    assert public[:30] == far and len(public) == 32 and all("tablets" in text for text in public[30:])
    assert files["few"] == public[:31] and files["near"] == public[30:] and not set(public) & set(private)
    assert sum("rash" in text for text in far) == 6  # one file in five
    with pytest.raises(SystemExit, match=r"finance_phrasebank.jsonl: \d+ texts are left for the sites, 27 are asked"):
        pretext(sites=12)


def test_the_cluster_that_is_put_apart_is_the_smallest_that_is_large_enough(study):
    smallest = study("pretext")._smallest
    assert smallest([0] * 5 + [1] * 3 + [2] * 2, 3) == 1
    assert smallest([0] * 5 + [1] * 3, 6) == 0


@pytest.mark.slow
def test_the_pretext_study_from_its_runs_to_its_table(pretext, llama_folder, tmp_path, monkeypatch):
    voting = {"rounds": 2, "population": 6, "text_tokens": 24, "lookahead": 0, "variation": "continue", "torn": "kept"}
    module, sizes, encoder = pretext(
        voting=voting, epochs=1, sample_tokens=20, rates=[1e-3], seeds=1, steps=1, clips=[0.1], layers="all"
    )
    out, model = tmp_path / "out", str(llama_folder)
    # The tiny model never comes to the end of a sentence.
    monkeypatch.setattr("murmura.synthesis.prompts.mended", str)
    table = module.comparison(model, encoder, "float32", sizes)
    wanted = ("public only", "PrE-Text ε=7.58", "DP-FedAvg ε=7.58, all parameters")
    table["compare"]["arms"] += module.averaging(sizes, trainable="all")
    table["compare"]["arms"] = [arm for arm in table["compare"]["arms"] if arm["name"].startswith(wanted)]
    table["compare"]["reference"] = "public only"
    (out / "pretext.toml").write_text(tomli_w.dumps(table))
    _, arms = load_arms([out / "pretext.toml"])
    jobs = [Job(arm, 0, 1e-3, out / "runs" / f"{arm.slug}-seed0", False) for arm in arms]
    for job in jobs:
        start(job.experiment)
    begun = [study_rows(job.folder)[0]["heldout_loss"] for job in jobs]
    # All begin with one model, that of DP-FedAvg too, which trains all of it.
    assert begun == pytest.approx([begun[0]] * 5, rel=1e-4)
    lines = module.near_table(out, Encoder(encoder)).splitlines()
    texts_of = [line.split(" | ")[0].strip("| ") for line in lines[2:]]
    assert texts_of == ["PrE-Text-ε=7.58-none-near", "PrE-Text-ε=7.58-one-round", "PrE-Text-ε=7.58", "public-only"]
    assert all(0 <= float(line.split(" | ")[2].strip("%")) <= 100 for line in lines[2:])


def study_rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
