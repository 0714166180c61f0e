"""What a comparison holds its folder, and the runs that are there already, to."""

import shutil

import pytest

from murmura.compare.comparison import Comparison
from murmura.compare.jobs import work
from murmura.compare.kept import require_same
from murmura.errors import CheckpointError
from murmura.runs.names import CONFIG, ENVIRONMENT
from tests.augment.public import embedded_pool, public, save_encoder
from tests.compare.conftest import ARMS, RATES
from tests.experiment import small


def test_records_of_the_users_own_in_its_folder_are_left_alone(comparison, begun, tmp_path):
    deep = comparison(rates=[], seeds=1, arms=[{**ARMS[0], "lora": {"layers": "last 1"}}])
    private = deep.folder / "private"
    own = [private / "north.jsonl", private / "states" / "south.jsonl"]
    for file in own:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    private.chmod(0o750)
    deep.carry_out(1, deep.check())
    assert [file.read_text() for file in own] == ["mine", "mine"] and private.stat().st_mode & 0o777 == 0o750


def test_a_runs_folder_is_no_place_for_a_comparison(comparison, begun, tmp_path):
    whole = comparison(rates=[], seeds=1, arms=ARMS[1:])
    whole.carry_out(1, whole.check())
    run = whole.folder / "runs" / "private-seed0"
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert any(file.name == "privacy.journal" for file in before)
    there = Comparison(whole.config, whole.arms, run)
    with pytest.raises(CheckpointError, match=r"private-seed0: a run is kept in this folder.*--out"):
        there.check()
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def test_a_finished_search_that_was_measured_more_often_is_reused(comparison, begun):
    first = comparison(seeds=1, arms=[{**ARMS[0], "method": {"name": "fedit", "rounds": 2}}])
    first.carry_out(1, first.check())
    job = first.searches[0]
    kept = job.folder / "config.toml"
    assert "every = 2" in kept.read_text()
    kept.write_text(kept.read_text().replace("every = 2", "every = 1"))
    require_same([job])
    (job.folder / "summary.json").unlink()  # and one that is to go on cannot be measured otherwise
    with pytest.raises(CheckpointError, match=r"evaluation.every = 1, and the comparison asks for 2"):
        require_same([job])


def test_runs_that_write_out_the_encoder_of_their_pool_are_kept(comparison, begun, table, tmp_path, tokenizer):
    embedded_pool(tmp_path / "pool", save_encoder(tmp_path / "encoder", tokenizer), public(12))
    centres = {"strategy": "feddca", "pool": str(tmp_path / "pool"), "records": 2, "clusters": 2}
    first = comparison(rates=[], seeds=1, arms=[{"name": "FedDCA", "augment": centres}])
    first.carry_out(1, first.check())
    begun.clear()
    first.carry_out(1, first.check())
    assert begun == []


def test_a_folder_with_another_run_is_refused_before_anything_is_run(comparison, begun):
    first = comparison(rates=[], seeds=1, arms=ARMS[:1])
    first.carry_out(1, first.check())
    other = comparison(rates=[], seeds=1, arms=[{**ARMS[0], "training": {"batch_size": 2}}])
    with pytest.raises(CheckpointError, match=r"training.batch_size = 8, and the comparison asks for 2"):
        require_same(other.runs({"FedAvg": 3e-4}))


def test_runs_are_kept_where_a_budget_is_raised_or_figures_are_sent_elsewhere_too(comparison, table):
    """Made anew in another folder, they would spend the budget again."""
    table["budget"] = {"folder": "accounts", "epsilon": 20.0}
    before = comparison(arms=ARMS[1:])
    jobs = [*before.searches, *before.runs({"private": RATES[0]})]
    for job in jobs:
        job.folder.mkdir(parents=True)
        (job.folder / CONFIG).write_text(job.experiment.dump())
        (job.folder / ENVIRONMENT).touch()
    table["budget"] |= {"epsilon": 40.0, "delta": 1e-6}
    table["tracking"] = {"to": ["tensorboard"]}
    after = comparison(arms=ARMS[1:])
    now = [*after.searches, *after.runs({"private": RATES[0]})]
    assert [job.folder for job in now] == [job.folder for job in jobs]
    require_same(now)
    table["budget"]["folder"] = "others"  # whoever begins another account forgets what was spent
    with pytest.raises(CheckpointError, match=r"budget\.folder"):
        require_same(comparison(arms=ARMS[1:]).searches)


def test_a_run_of_a_version_that_did_not_have_an_option_yet_is_reused(comparison, begun):
    first = comparison(rates=[], seeds=1, arms=ARMS[:1])
    job = first.runs({"FedAvg": 3e-4})[0]
    first.carry_out(1, first.check())
    kept = job.folder / "config.toml"
    kept.write_text(kept.read_text().replace("dora = false\n", ""))
    require_same([job])
    kept.write_text(kept.read_text().replace("[lora]\n", "[lora]\ndora = true\n"))
    with pytest.raises(CheckpointError, match=r"lora.dora = true, and the comparison asks for false"):
        require_same([job])


@pytest.mark.parametrize("more", [{"seeds": [0, 1]}, {"seeds": [1], "arms": ARMS[:1]}], ids=["some left", "none"])
def test_finished_runs_on_records_that_have_changed_since_are_refused(comparison, begun, tmp_path, more):
    first = comparison(rates=[], seeds=[1], arms=ARMS[:1])
    first.carry_out(1, first.check())
    again = comparison(rates=[], **more)
    again.check()
    small.write_data(tmp_path, {"heart": 8, "skin": 9})
    with pytest.raises(CheckpointError, match=r"FedAvg-seed1: .*data.train.* has read: skin.jsonl changed"):
        again.check()
    assert begun == ["FedAvg-seed1"]


@pytest.mark.parametrize("arms", [ARMS, ARMS[:1]], ids=["some left", "none"])
def test_finished_runs_that_were_measured_on_other_records_are_refused(comparison, begun, tmp_path, arms):
    first = comparison(rates=[], seeds=[0], arms=ARMS[:1])
    first.carry_out(1, first.check())
    heldout = tmp_path / "heldout.jsonl"
    heldout.write_text("".join(heldout.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(CheckpointError, match=r"FedAvg-seed0: .*data.heldout.* has read: heldout.jsonl changed"):
        comparison(rates=[], seeds=[0], arms=arms).check()
    assert begun == ["FedAvg-seed0"]


def test_finished_runs_that_began_with_another_adapter_are_refused(comparison, begun, tmp_path, table):
    first = comparison(rates=[], seeds=[0], arms=ARMS[:1])
    first.carry_out(1, first.check())
    table["model"]["adapter"], runs = "before", tmp_path / "out" / "runs"
    shutil.copytree(runs / "FedAvg-seed0" / "adapter", tmp_path / "before")
    second = comparison(rates=[], seeds=[1], arms=ARMS[:1])
    second.carry_out(1, second.check())
    second.check()
    shutil.copytree(runs / "FedAvg-seed1" / "adapter", tmp_path / "before", dirs_exist_ok=True)
    with pytest.raises(CheckpointError, match=r"FedAvg-seed1: .*model.adapter.*: adapter_model.safetensors changed"):
        comparison(rates=[], seeds=[1], arms=ARMS[:1]).check()
    assert begun == ["FedAvg-seed0", "FedAvg-seed1"]


def test_a_finished_search_on_other_records_is_refused(comparison, begun, tmp_path):
    first = comparison(seeds=[0], arms=ARMS[:1])
    assert not work(first.searches, 1, str)
    small.write_lines(tmp_path / "sites" / "skin.jsonl", [small.record("skin", number) for number in range(1, 9)])
    with pytest.raises(CheckpointError, match=r"search/FedAvg-rate.*data.train.*: skin.jsonl changed"):
        comparison(seeds=[0], arms=ARMS[:1]).check()
    assert not any("seed0" in name for name in begun)


def test_finished_runs_on_two_states_of_a_file_are_refused_whichever_is_first(comparison, begun, tmp_path):
    heldout = tmp_path / "heldout.jsonl"
    as_it_was = heldout.read_text()
    first = comparison(rates=[], seeds=[5], arms=ARMS[:1])
    first.carry_out(1, first.check())
    heldout.write_text("".join(as_it_was.splitlines(keepends=True)[:-1]))
    second = comparison(rates=[], seeds=[0], arms=ARMS[:1])
    second.carry_out(1, second.check())
    for state, seed in ((as_it_was, 0), (heldout.read_text(), 5)):
        heldout.write_text(state)
        with pytest.raises(CheckpointError, match=rf"FedAvg-seed{seed}: .*data.heldout.*: heldout.jsonl changed"):
            comparison(rates=[], seeds=[0, 5], arms=ARMS[:1]).check()


def test_files_of_another_kind_are_not_written_over(comparison, begun, tmp_path):
    first = comparison(rates=[], seeds=[0], arms=ARMS[:1])
    first.folder.mkdir(parents=True)
    (first.folder / "report.html").write_text("mine")
    (first.folder / "runs" / "mine").mkdir(parents=True)  # as any project may have such a folder
    with pytest.raises(CheckpointError, match=r"report\.html.* is here already"):
        first.check()
    assert (first.folder / "report.html").read_text() == "mine" and begun == []
