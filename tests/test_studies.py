"""The studies prepare their data and write experiment files that load; the runs themselves take hours."""

import json
import sys
import tomllib
from dataclasses import replace

import pytest
import tomli_w
from scipy.stats import ttest_1samp

from murmura.compare.arms import load as load_arms
from murmura.compare.jobs import Job
from murmura.experiment.run import run as start
from murmura.retrieval.encoder import Encoder
from murmura.runs import RunFolder
from murmura.runs.audit import Audit, AuditedModel, Histogram, Separation, Written
from murmura.runs.augment import Given, PublicSelection
from murmura.runs.names import AUDIT, AUGMENT
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


def test_records_are_named_unless_a_study_only_reads_runs(study, monkeypatch, capsys):
    module = study("runs")
    made = module.parser("a study")
    made.add_argument("--show", action="store_true")
    monkeypatch.setattr(sys, "argv", ["study.py", "--out", "runs/study"])
    with pytest.raises(SystemExit):
        module.parse(made, reading="show")
    assert "--data is missing" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["study.py", "--out", "runs/study", "--show"])
    assert module.parse(made, reading="show").show


def test_a_comparison_is_written_with_the_command_that_makes_it(study, tmp_path, capsys):
    study("runs").save({"compare": {"name": "a"}}, tmp_path / "a.toml")
    assert capsys.readouterr().out == f"murmura compare {tmp_path / 'a.toml'} --out {tmp_path}\n"
    assert tomllib.loads((tmp_path / "a.toml").read_text()) == {"compare": {"name": "a"}}


@pytest.mark.parametrize("scale", ["SMALL", "FULL"])
def test_medical(study, data, tmp_path, scale):
    module, out = study("medical"), tmp_path / "out"
    sizes = getattr(module, scale)
    module.prepare(data, out, sizes)
    assert len(study("runs").read_rows(out / "private.jsonl")) == 40
    written = module.comparison("smollm2-135m", "bfloat16", sizes)
    (out / "medical.toml").write_text(tomli_w.dumps(written))
    config, arms = load_arms([out / "medical.toml"])
    assert len(arms) == 13 and len(arms[0].rates) == len(config.rates) > 1
    assert [arm.rate_of for arm in arms if arm.rate_of] == ["FewFedPIT β=0.5"]
    assert {arm.experiment.method.name for arm in arms} == {"fedit", "fedmit", "fewfedpit", "dplora", "pretext"}
    assert {arm.experiment.model.dtype for arm in arms} == {"bfloat16"}
    (out / "more.toml").write_text(tomli_w.dumps(module.more("smollm2-135m", "bfloat16", sizes)))
    _, more = load_arms([out / "more.toml"])
    assert len(more[0].rates) == len(sizes.rates) > 1
    methods = {"fedit", "centralised", "local", "fewfedpit", "locit-sg", "fewfedweight"}
    assert {arm.experiment.method.name for arm in more} == methods and len({arm.name for arm in more}) == 14


def test_losses_round_by_round_and_of_every_two_arms(study, tmp_path):
    module = study("medical")
    losses = {"FedAvg": [(2.0, 3.0), (1.5, 2.0), (1.25, 2.75)], "local": [(2.0,), (1.0,)], "β": [(3.0,), (2.5,)]}
    for arm, of_seeds in losses.items():
        for seed, each in enumerate(of_seeds):
            counts = {"drafts.kept": seed + 1, "drafts.outranked": 2, "drafts.echo": 9} if arm == "β" else {}
            rows = [{"round": 0, "heldout_loss": 4.0}]
            rows += [{"round": k, "heldout_loss": loss, "counts": counts} for k, loss in enumerate(each, 1)]
            write_run(tmp_path / "runs" / f"{arm}-seed{seed}", seed=seed, rows=rows)
    write_run(tmp_path / "runs" / "local-seed2", seed=2, rows=[{"round": 0, "heldout_loss": 4.0}])  # no loss after it
    rows = [{"round": k, "heldout_loss": 1.0} for k in (0, 1)]
    write_run(tmp_path / "runs" / "ω-seed0", rows=rows, kind="document")  # whose loss is of something else
    p = float(ttest_1samp([1.0, 1.5], 0).pvalue)
    text = module.shown(tmp_path, ["local"])
    assert "| ω | 1 |" in text and "ω −" not in text and "− ω" not in text
    assert text.splitlines()[:5] == [
        "| arm | seeds | round 0 | round 1 | round 2 | least | drafts kept |",
        "| --- | --: | --: | --: | --: | --: | --: |",
        "| FedAvg | 3 | 4.000 | 1.583 | 2.583 | 1.583 | – |",
        "| local | 2 | 4.000 | 1.500 | – | 1.500 | – |",
        "| β | 2 | 4.000 | 2.750 | – | 2.750 | 3 of 7 |",
    ]
    last, least = text.split("At the least of each seed:")
    told = f"| β − local | +1.250 (−1.927 to +4.427), p = {p:.3f} | {2 * p:.3f} |"
    assert told in last and told in least
    assert "| FedAvg − local | +1.000, p = 0.500 | 0.500 |" in last
    assert "| FedAvg − local | +1.000" in last and "| FedAvg − local | +0.250" in least
    assert least.count(" − ") == 2 and module.shown(tmp_path).count(" − ") == 6
    assert module.shown(tmp_path, ["local", "β"]).count(" − ") == 6  # FedAvg and β from local, FedAvg from β
    attacked = {"attack": {"attack": "loss", "members": 9, "others": 9}}
    for arm, auc in (("A", 0.75), ("B", 0.5)):
        for seed in (0, 1):
            each = {"each": {"loss": [auc + seed / 8, 0.25, 1.0]}}
            rows = [{"round": 0, "heldout_loss": 2.0}]
            rows += [{"round": 1, "heldout_loss": 1.0, "attacks": {"attack": attacked["attack"] | each}}]
            write_run(tmp_path / "attacked" / "runs" / f"{arm}-seed{seed}", seed=seed, rows=rows)
    assert "AUC of" not in text
    _, aucs = module.shown(tmp_path / "attacked", ["B"]).split("AUC of loss on the last model:")
    assert "| A − B | +0.250, p = 0.500" in aucs
    certain = {arm: dict.fromkeys(range(20), loss) for arm, loss in (("one", 2.0), ("other", 1.0))}
    assert study("runs").pairs(certain).endswith(", p < 0.001 | < 0.001 |\n")
    with pytest.raises(SystemExit, match="no finished run"):
        module.shown(tmp_path / "elsewhere")
    with pytest.raises(SystemExit, match="no finished run of FedProx; there are FedAvg, local, β"):
        module.shown(tmp_path, ["FedProx"])


@pytest.mark.parametrize("scale", ["SMALL", "FULL"])
def test_dplora(study, data, tmp_path, scale):
    module, out = study("dplora"), tmp_path / "out"
    sizes = getattr(module, scale)
    study("runs").short_questions(data, out, sizes.words, 40)
    rows = study("runs").read_rows(out / "questions.jsonl")
    assert len({row["instruction"] for row in rows}) == len(rows) == 40
    table = module.comparison("smollm2-135m", "bfloat16", sizes)
    (out / "dplora.toml").write_text(tomli_w.dumps(table))
    (out / "more.toml").write_text(tomli_w.dumps(module.more(table)))
    _, arms = load_arms([out / "dplora.toml"])
    experiments = [arm.experiment for arm in arms]
    assert {e.training.optimizer for e in experiments} == {"sgd"} and {len(arm.rates) for arm in arms} == {
        len(sizes.rates)
    }
    assert [e.method.epsilon for e in experiments if e.aggregation.rule.kind == "ffa"] == sizes.epsilons
    _, arms = load_arms([out / "more.toml"])
    assert {arm.experiment.lora.rank for arm in arms} == {1, module.RANK, 16} and {arm.rates for arm in arms} == {
        (1.0,)
    }


@pytest.mark.parametrize("scale", ["SMALL", "FULL"])
@pytest.mark.parametrize("name", ["movie", "finance"])
def test_lpfl(study, data, tmp_path, name, scale):
    module, out = study("lpfl"), tmp_path / "out"
    sizes = getattr(module, scale)
    module.prepare(name, data, out, sizes)
    table = module.comparison(name, 5, "smollm2-135m", "bfloat16", sizes)
    table["compare"]["arms"] += module.more(sizes)
    (out / "lpfl.toml").write_text(tomli_w.dumps(table))
    config, arms = load_arms([out / "lpfl.toml"])
    assert [arm.name for arm in arms[:4]] == list(module.ARMS) and len(arms) == 7
    # All arms but one read each true label as often, and all are measured on the same texts.
    assert {arm.experiment.training.epochs for arm in (arms[0], *arms[2:])} == {sizes.epochs}
    assert all(arm.experiment.training.max_steps is None for arm in arms)
    assert len({arm.experiment.method.validation_records for arm in arms}) == 1
    assert {len(arm.rates) for arm in arms} == {len(config.rates)}
    assert [arm.experiment.model.trainable for arm in arms] == ["adapter"] * 5 + ["all"] * 2
    assert [arm.experiment.method.labelled_share < sizes.share for arm in arms] == [False] * 4 + [True] + [False] * 2


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


@pytest.mark.parametrize("scale", ["SMALL", "FULL"])
def test_leakage(study, data, tmp_path, scale):
    module, out = study("leakage"), tmp_path / "out"
    sizes = getattr(module, scale)
    study("runs").short_questions(data, out, sizes.words, 40)
    (out / "leakage.toml").write_text(tomli_w.dumps(module.comparison("smollm2-135m", "bfloat16", sizes)))
    config, arms = load_arms([out / "leakage.toml"])
    assert [arm.name for arm in arms[:3]] == ["FedAvg", "nothing learnt", "no noise"]
    of_noise = len(sizes.epsilons)
    noisy, controls = arms[3 : 3 + of_noise], arms[3 + of_noise :]
    assert len(arms[1].rates) == 1 and {len(arm.rates) for arm in (arms[0], arms[2], *noisy)} == {len(config.rates)}
    assert [arm.rate_of for arm in controls] == [arm.name for arm in noisy]
    jobs = [Job(arm, 0, rate, out / f"{arm.slug}-{rate}", False) for arm in arms[: 3 + of_noise] for rate in arm.rates]
    assert [job.experiment.training.lr for job in jobs] == [job.rate for job in jobs]  # they go with the other options
    assert [arm.experiment.method.epsilon for arm in noisy] == sizes.epsilons
    assert all(arm.experiment.audit.keep and arm.experiment.audit.canaries == sizes.canaries for arm in arms)
    # Each record is read as often: DP-LoRA takes some of a site's records in every step, canaries among them.
    held = sizes.records + sizes.canaries / module.SITES
    assert sizes.noisy_steps * sizes.noisy_batch / held == pytest.approx(sizes.epochs, rel=0.15)


def attacked_run(folder, seed, aucs, audited):
    """A finished run with the AUC of its model and of its uploads after each round, canaries, and an audit."""
    rows = [{"round": 0, "attacks": {"attack": {"attack": "error zone", "members": 3, "others": 2}}}]
    for round, (model, uploads) in enumerate(aucs, 1):
        told = {"attack": "error zone", "members": 3, "others": 2}
        each = {
            target: told | {"each": {"error zone": [value, 0, 1], "loss difference": [0.5, 0, 1]}}
            for target, value in (("attack", model), ("upload", uploads))
        }
        rows.append({"round": round, "heldout_loss": 3.0 - round, "attacks": each})
    rows[-1] |= {"exposure": 0.5, "upload_exposure": 0.75}
    write_run(folder, seed=seed, rows=rows)
    if audited:
        tried = {"error zone": aucs[-1][0], "RMIA": aucs[-1][0] + 0.0625}
        separations = tuple(
            Separation(name, auc, 0, 1, 0.5 if name == "RMIA" else None, None, None) for name, auc in tried.items()
        )
        model = AuditedModel("model", 3, 2, "RMIA", separations, Histogram((0.0, 1.0), (3,), (2,)))
        RunFolder(folder).write(AUDIT, Audit("0.1", "now", (model,), (), (), (), None, (), ()))


def test_what_attacks_found_is_told_by_rounds_uploads_canaries_and_audits(study, tmp_path):
    module, place = study("leakage"), tmp_path / "runs"
    for seed in (0, 1):
        attacked_run(place / f"FedAvg-seed{seed}", seed, [(0.6 + seed / 10, 0.7), (0.9, 0.95)], seed == 0)
        attacked_run(place / f"DP-LoRA-seed{seed}", seed, [(0.5, 0.5), (0.5, 0.5)], seed == 0)
    text = module.shown(tmp_path)
    assert "| DP-LoRA | 0.500 | 0.500 | 0.000, p = 1.000 |" in text
    # (0.3 + 0.2) / 2, with Student's 12.706 times 0.05
    assert "| +0.250 (−0.385 to +0.885), p = 0.126 |" in text
    assert "| +0.050, p = 0.500 |" in text  # uploads
    assert "| FedAvg | 0.500 | 0.750 | 0.500 |" in text  # of two candidates
    assert "| FedAvg, the model | error zone | 0.900 | – | – | 1 |" in text
    assert "| FedAvg, the model | RMIA | 0.963 | +0.062 | 50% | 1 |" in text
    assert "| FedAvg | 2.000 | 1.000 | −1.000" in text  # the loss
    assert "| DP-LoRA − FedAvg | −0.400 | −0.400 | – |" in text


def test_a_study_of_runs_without_attacks_uploads_or_canaries_shows_none(study, tmp_path):
    write_run(tmp_path / "runs" / "FedAvg-seed0", rows=[{"round": 0}, {"round": 1}])
    text = study("leakage").shown(tmp_path)
    assert "| FedAvg | – | – | 0.500 |" in text and text.count("FedAvg") == 2  # and a line without uploads


def test_runs_that_are_not_finished_or_were_replaced_are_in_no_table(study, tmp_path):
    for name in ("FedAvg-seed0", "FedAvg-seed10", "FedAvg-seed1.previous", "no-seed2"):
        write_run(tmp_path / "runs" / name)
    write_run(tmp_path / "runs" / "FedAvg-seed3", finished=False)
    found = study("runs").run_records(tmp_path)
    assert {arm: sorted(own) for arm, own in found.items()} == {"FedAvg": [0, 10], "no": [2]}


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
                RunFolder(folder).write(AUGMENT, [PublicSelection(1, arm, given, coverage=0.9 - place / 8)])
            if arm in ("local", "random"):
                rouge = 0.25 + place / 16 + seed / 8
                told = [
                    Written("model", prompt, 8, 8, rouge, 0.125, rouge - 0.125, -0.1, 0.3)
                    for prompt in ("record", "template")
                ]
                attack = Separation("error zone", 0.75 if arm == "local" else 0.5, 0, 1, None, None, None)
                model = AuditedModel("model", 8, 8, "RMIA", (attack,), Histogram((0.0, 1.0), (8,), (8,)))
                RunFolder(folder).write(AUDIT, Audit("0.1", "now", (model,), (), (), tuple(told), None, ()))
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
        "| pair | difference | p, corrected for all pairs |",
        "| --- | --- | --: |",
        "| FedDCA − direct | −0.125, p = 0.500 | 1.000 |",
        "| FedDCA − local | −0.500, p = 0.500 | 1.000 |",
        "| FedDCA − random | −0.250, p = 0.500 | 1.000 |",
        "| direct − local | −0.375, p = 0.500 | 1.000 |",
        "| direct − random | −0.125, p = 0.500 | 1.000 |",
        "| local − random | +0.250, p = 0.500 | 1.000 |",
        "",
        "| arm | audits | AUC of error zone | − local's | ROUGE-L, own − others | − local's |",
        "| --- | --: | --: | --: | --: | --: |",
        "| local | 2 | 0.750 | – | 0.375 (−0.419 to 1.000) | – |",
        "| random | 2 | 0.500 | −0.250, p = 0.500 | 0.250 (−0.544 to 1.000) | −0.125, p = 0.500 |",
    ]


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
    samples = [found[f"Expand-private, {much}"].experiment.method.samples for much in ("a quarter", "four times")]
    assert samples == [sizes.samples // 4, 4 * sizes.samples]
    whole = [arm.experiment.model for arm in arms if "all parameters" in arm.name]
    assert len(whole) > 3 and {(one.trainable, one.dtype) for one in whole} == {("all", "float32")}
    controls = ["PrE-Text ε=7.58, one round", "Expand-only, near ones alone"]
    assert {len(arm.rates) for arm in arms} == {1, len(config.rates)} and config.reference == "Expand-only"
    assert [name for name, arm in found.items() if arm.rate_of] == controls
    whole = [name for name, arm in found.items() if arm.experiment.model.trainable == "all"]
    assert len(whole) == 4 * len(sizes.whole_clips)  # Hou et al. 2024, section 4.1
    assert {arm.rates for name, arm in found.items() if "DP-F" in name} == {(10.0,)}
    turns = {arm.experiment.method.sites_per_round for name, arm in found.items() if "DP-FTRL" in name}
    assert turns == {max(sizes.sites // sizes.steps, 1)}  # in every round it would be DP-FedAvg
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
        voting=voting,
        epochs=1,
        sample_tokens=20,
        rates=[1e-3],
        seeds=1,
        steps=1,
        clips=[0.1],
        whole_clips=[0.1],
        layers="all",
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
