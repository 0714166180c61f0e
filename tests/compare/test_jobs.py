"""The runs of a comparison: what each is, what they share, and how they are carried out."""

import re
import shutil
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from murmura.compare import jobs
from murmura.compare.kept import require_same
from murmura.errors import INTERRUPTED, MAY_PASS, MISTAKE, CheckpointError, RunError
from murmura.experiment.config import Experiment
from murmura.progress import clock
from murmura.runs.folder import RunFolder
from murmura.runs.locks import acquire_run, is_running
from murmura.runs.names import ANCHOR, CONFIG, NOT_FOR_PUBLICATION, SUMMARY
from murmura.runs.record import read
from tests.augment.public import embedded_pool, public, save_encoder
from tests.compare.conftest import ARMS, RATES


def test_runs_share_what_frozen_layers_compute_and_nothing_of_it_is_left(
    comparison, table, deep_folder, begun, monkeypatch, tmp_path
):
    table["model"]["name"] = str(deep_folder)
    found, plain, place = [], jobs._run, tmp_path / "out" / ".murmura-states"

    def watched(job, at_once, under_way):
        done = plain(job, at_once, under_way)
        found.append({file.name for file in place.rglob("*.safetensors")})
        assert all(one.stat().st_mode & 0o077 == 0 for one in (place, place / "states"))  # nobody else may look in
        return done

    monkeypatch.setattr(jobs, "_run", watched)
    high = {"lora": {"layers": "last 1"}}
    deep = comparison(rates=[], seeds=1, arms=[arm | high for arm in ARMS])
    outcome = deep.carry_out(1, deep.check())
    assert found[0] and found[1] == found[0]
    assert any("the time of a run also depends on its arm's place in the file" in told for told in outcome.remarks)
    assert not place.exists()


def test_a_run_that_failed_when_its_figures_were_there_is_not_said_to_stand_in_none(comparison):
    """As where the disk is full, or memory runs out, while its page is made."""
    one, other = comparison(rates=[], seeds=1).runs({"FedAvg": 3e-4, "private": 3e-4})
    one.folder.mkdir(parents=True)
    (one.folder / SUMMARY).touch()
    failed = [(one, jobs.Ended(1.0, "the disk is full", may_pass=True)), (other, jobs.Ended(1.0, "it broke"))]
    made = "1 run failed with all figures made, before the rest was written or removed:"
    with pytest.raises(RunError, match=rf"^{made}\n.*FedAvg-seed0:\nthe disk is full"):
        jobs.require_done(failed[:1])
    with pytest.raises(RunError, match=rf"^1 run failed, and stands in no figure; {made}\n(?s:.*)it broke"):
        jobs.require_done(failed)


def test_what_one_arm_alone_reads_is_not_shared(
    comparison, table, deep_folder, begun, monkeypatch, tmp_path, tokenizer
):
    table["model"]["name"] = str(deep_folder)
    embedded_pool(tmp_path / "pool", save_encoder(tmp_path / "encoder", tokenizer), public(12))
    sent = {"strategy": "random", "pool": str(tmp_path / "pool"), "records": 2}
    high, found, plain = {"lora": {"layers": "last 1"}}, [], jobs._run
    place = tmp_path / "out" / ".murmura-states"

    def watched(job, at_once, under_way):
        done = plain(job, at_once, under_way)
        found.append(len({file.name.split("-")[0] for file in place.rglob("*.safetensors")}))  # of what they are
        return done

    monkeypatch.setattr(jobs, "_run", watched)
    deep = comparison(rates=[], seeds=1, arms=[ARMS[0] | high, {"name": "more", "augment": sent} | high])
    outcome = deep.carry_out(1, deep.check())
    assert outcome.results[1].runs[0].augment[-1].rows == 4
    heldout = len((tmp_path / "heldout.jsonl").read_text().splitlines())
    assert found == [8 + 8 + heldout] * 2


def test_a_search_measures_once_before_training_and_once_at_its_end(comparison):
    long = comparison(arms=[{"name": "long", "method": {"name": "fedit", "rounds": 3}}])
    [searched, run] = long.searches[0], long.runs({"long": RATES[0]})[0]
    assert (searched.experiment.evaluation.every, run.experiment.evaluation.every) == (3, 1)


def test_a_search_goes_by_all_rounds_of_a_run_also_where_one_comes_after_those_of_asking(comparison, table):
    table["evaluation"] = {"uploads": 0}
    texts = {"name": "pretext", "rounds": 3, "public": "public.jsonl", "noise_multiplier": 1.0}
    [searched, *_] = comparison(arms=[{"name": "texts", "method": texts}]).searches
    assert searched.experiment.method.total_rounds == 4 == searched.experiment.evaluation.every


def test_time_left_is_what_the_same_arms_took(monkeypatch):
    def job(arm, wall=1.0, finished=False):
        return SimpleNamespace(arm=SimpleNamespace(name=arm), finished=finished, is_over=finished, folder=wall)

    monkeypatch.setattr(jobs, "read", lambda wall: SimpleNamespace(totals={"wall": wall}))
    runs = [job("quick"), job("slow", wall=100.0), job("new"), job("quick"), job("slow")]
    watch = jobs._Watch(runs, before=[job("slow", wall=300.0, finished=True)], at_once=2)
    watch.done(runs[0], 10.0)
    # One quick and two slow ones, by the search for a rate, and a new one, as long as the others on average.
    assert watch.words == f"1 of 5 runs done, about {clock((10 + 2 * 300 + 155) / 2)} left"
    watch.done(runs[1], 40.0)  # the rest of a run that had been begun before
    watch.done(runs[3], None)  # it failed
    assert watch.words == f"3 of 5 runs done, about {clock((100 + 55) / 2)} left"  # a run of its own counts alone
    watch.done(runs[2], 60.0)
    assert watch.words == f"4 of 5 runs done, about {clock(100)} left"  # alone, whatever may run beside it
    nothing = jobs._Watch(runs, [], 2)
    nothing.done(runs[0], None)
    assert nothing.words == "1 of 5 runs done"


def test_a_run_that_was_begun_goes_on(comparison, monkeypatch, capsys):
    job, commands = comparison().searches[0], []
    under_way = SimpleNamespace(run=lambda command, **options: commands.append(command) or 0)
    jobs._run(job, 1, under_way)
    RunFolder(job.folder).checkpoint.mkdir(parents=True)
    RunFolder(job.folder).config.write_text(job.experiment.dump())
    jobs._run(job, 1, under_way)
    assert [command[-1] == "--resume" for command in commands] == [False, True]
    first, second = capsys.readouterr().err.splitlines()
    assert f"{job.title}: begins" in first and f"{job.title}: goes on" in second


@pytest.mark.parametrize(
    ("code", "told", "from_outside"),
    [
        (0, "", False),
        (1, "lr: no number\nIt ended with exit code 1.", True),
        (MISTAKE, "lr: no number\nIt ended with exit code 2.", False),
        (MAY_PASS, "lr: no number\nIt ended with exit code 75.", False),
        (INTERRUPTED, "lr: no number\nIt ended with exit code 130.", True),
        (-9, "lr: no number\nIt was killed.*--jobs", True),
        (-15, ".*by SIGTERM", True),
    ],
)
def test_a_run_that_could_not_say_what_ended_it(comparison, code, told, from_outside):
    def ended(command, stdout, **options):
        stdout.write(b"lr: no number\n")
        return code

    found = jobs._run(comparison().searches[0], 1, SimpleNamespace(run=ended))
    assert re.match(f"(?s){told}", found.problem) and bool(found.problem) == bool(code)
    assert found.from_outside == from_outside and found.may_pass == (code == MAY_PASS)


@pytest.mark.parametrize("finishes", [True, False])
def test_a_run_that_outlives_a_comparison_is_waited_for(comparison, begun, monkeypatch, capsys, finishes):
    """The next comparison would count it as failed, and an arm would do without that rate."""
    [job, *_] = comparison(rates=[], seeds=1, arms=ARMS[:1]).runs({"FedAvg": RATES[0]})
    if finishes:
        jobs.work([job], 1, str)
        begun.clear()
        monkeypatch.setattr(jobs.Job, "is_over", property(lambda job: not is_running(job.folder)))
    job.folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(jobs, "_LOOK", 0.01)
    lock = acquire_run(job.folder)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(jobs.work, [job], 1, lambda job: "")
        for _ in range(500):
            if "waits for another process" in (said := capsys.readouterr().err):
                break
            time.sleep(0.01)
        assert job.title in said and begun == [] and not working.done()
        lock.release()
    assert working.result() == [] and begun == ([] if finishes else [job.folder.name])


@pytest.mark.parametrize(
    "place", ["murmura.experiment.run.build_report", "murmura.runs.folder.RunFolder.drop_checkpoints"]
)
def test_a_run_that_was_stopped_after_its_summary_does_what_is_left(comparison, begun, place):
    """Its page, the anchor of its ledger, and the end of what its server knew, which a finished one keeps no longer."""
    arm = {"name": "private", "method": {"name": "dpfedavg", "noise_multiplier": 1.0}}
    [job] = comparison(rates=[], seeds=1, arms=[arm]).runs({"private": RATES[0]})
    kept = RunFolder(job.folder)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(place, Mock(side_effect=KeyboardInterrupt))
        jobs.work([job], 1, str)
    assert job.finished and not job.is_over and [*kept.checkpoint.glob("round-*")]
    epsilon = read(job.folder).last.privacy["epsilon"]
    for _ in range(2):
        assert jobs.work([job], 1, lambda job: "") == []
        assert kept.report.exists() and (kept.path / ANCHOR).exists()
        assert not [*kept.checkpoint.glob("*round-*")] and read(job.folder).last.privacy["epsilon"] == epsilon
    assert begun == [job.folder.name] * 2


def test_a_run_that_cannot_go_on_stays_finished_without_a_page(comparison, begun):
    [job] = comparison(rates=[], seeds=1, arms=ARMS[:1]).runs({"FedAvg": RATES[0]})
    jobs.work([job], 1, lambda job: "")
    assert job.is_over
    RunFolder(job.folder).report.unlink()
    assert not job.is_over
    shutil.rmtree(RunFolder(job.folder).checkpoint)
    assert job.is_over


def test_what_a_run_prints_is_for_the_owner_alone(comparison, tmp_path):
    """When it was, and how many records are bad, is in no ε."""
    job, name = comparison().searches[0], "FedAvg-rate0.002-seed10000.log"
    ended = SimpleNamespace(run=lambda command, stdout, **options: stdout.write(b"3 records are there twice\n") and 0)
    for _ in range(2):
        jobs._run(job, 1, ended)
    [log] = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and b"twice" in path.read_bytes()]
    assert log == tmp_path / "out" / "search" / "private" / name
    assert [stat.S_IMODE(path.stat().st_mode) for path in (log.parent, log)] == [0o700, 0o600]
    assert log.read_text().splitlines() == [NOT_FOR_PUBLICATION, *["3 records are there twice"] * 2]


def test_a_full_disk_is_told(comparison, tmp_path):
    (tmp_path / "out").write_text("")  # no folder can be made in a file
    with pytest.raises(CheckpointError, match=r"out/search: the runs of a comparison cannot be kept.*the same command"):
        jobs.work(comparison().searches[:1], 1, str)


def test_a_search_keeps_nothing_for_an_audit_and_makes_next_to_nothing_of_personal_models(comparison, table):
    """But its sites train on the same records: canaries are among them, and what is set apart is not."""
    table |= {"audit": {"canaries": 2, "keep": True}, "personal": {"steps": 9, "heldout": 0.25}}
    audited = comparison(arms=[{"name": "audited"}])
    [searched, run] = (one.experiment for one in (audited.searches[0], audited.runs({"audited": RATES[0]})[0]))
    assert (run.audit.keep, run.personal.steps) == (True, 9)
    assert (searched.audit.keep, searched.personal.steps) == (False, 1)
    assert (searched.audit.canaries, searched.personal.heldout) == (2, 0.25)


def test_a_search_that_kept_what_an_audit_wants_is_the_same_search(comparison, table):
    """As of comparisons that were begun before searches kept nothing."""
    table |= {"audit": {"keep": True}, "personal": {"steps": 9}}
    searched = comparison(arms=[{"name": "audited"}]).searches[0]
    searched.folder.mkdir(parents=True)
    tables = searched.tables | {"audit": {"keep": True}}
    tables["personal"]["steps"] = 9
    (searched.folder / CONFIG).write_text(Experiment.of(tables, where="").dump())
    require_same([searched])
