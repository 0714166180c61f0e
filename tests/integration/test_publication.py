"""What anybody may see of a run whose ε counts on secret cohorts."""

import json
import os
import stat

import pytest

from murmura.errors import Interrupted, RunError
from murmura.experiment.run import run
from murmura.federation.engines.local import LocalEngine
from murmura.federation.server.rounds import Server
from murmura.federation.wire.messages import Failure
from murmura.methods.dpfedavg.method import DPFedAvg
from murmura.privacy.clipping import AdaptiveSiteClipping
from murmura.privacy.observation import Observation
from murmura.runs import read
from murmura.runs.names import NOT_FOR_PUBLICATION, site_folder
from tests.experiment.small import experiment, write_data

SITES = {name: 2 + place for place, name in enumerate(("anchor", "basalt", "cedar", "dune", "ember", "fjord"))}
PLAIN = {"accountant": "rdp", "name": "dpfedavg", "rounds": 3}
POISSON, FIXED = ({"kind": kind, "sites_per_round": 2} for kind in ("poisson", "fixed"))
METHODS = {
    "poisson": PLAIN | {"noise_multiplier": 1.0, "sampler": POISSON},
    "fixed": PLAIN | {"noise_multiplier": 1.0, "sampler": FIXED},
    "adaptive": PLAIN | {"adaptive": {"count_noise": 9.0}, "sampler": POISSON},
}
FEW = [["anchor"], [], ["anchor"]]
MANY = [["basalt", "cedar"], list(SITES), ["dune", "ember", "fjord"]]
PAIRS = [["anchor", "basalt"]] * 3 + [["ember", "fjord"], ["cedar", "dune"], ["dune", "fjord"]]
OWN = {"private", "checkpoint"}  # only the owner may read them


@pytest.fixture
def ran(tmp_path, llama_folder, monkeypatch, capsys):
    """Runs an experiment with the cohorts given, its model standing still so that nothing but those differs; gives all
    that anybody may see, by file name, and what was printed."""

    def go(name, method, cohorts, adapter_moves=False, **evaluation):
        folder = tmp_path / name / "data"  # a page names the end of a path
        write_data(folder, SITES)
        left = iter(cohorts)
        monkeypatch.setattr("murmura.methods.dpfedavg.method.draw", lambda *_: next(left))
        if not adapter_moves:
            monkeypatch.setattr(DPFedAvg, "_step", lambda *_: None)
            monkeypatch.setattr(AdaptiveSiteClipping, "next_norm", lambda *_: (0.1, Observation()))
        result = run(experiment(folder, llama_folder, method, evaluation=evaluation))
        printed = capsys.readouterr()
        seen = {
            str(path.relative_to(result.folder)): path.read_text(encoding="utf-8", errors="replace")
            for path in sorted(result.folder.rglob("*"))
            if path.is_file() and not OWN.intersection(path.relative_to(result.folder).parts)
        }
        seen |= {"out": printed.out, "err": printed.err, "printed": repr(result)}
        return result, {key: text.replace(str(folder), "FOLDER") for key, text in seen.items()}

    return go


def without_start(files):
    """All but when the run was started."""
    started = json.loads(files["environment.json"])["started"]
    page = files["report.html"]
    begin, end = page.index("<dt>Started</dt>"), page.index("<dt>Trained</dt>")
    return {
        **files,
        "environment.json": files["environment.json"].replace(started, ""),
        "report.html": page[:begin] + page[end:],
    }


@pytest.mark.parametrize("sampler", METHODS)
def test_runs_with_other_cohorts_publish_the_same_to_the_byte(ran, sampler):
    cohorts = {"few": FEW, "many": MANY} if sampler != "fixed" else {"few": PAIRS[:3], "many": PAIRS[3:]}
    (_, few), (_, many) = (ran(name, METHODS[sampler], chosen) for name, chosen in cohorts.items())
    assert few.keys() == many.keys() and {"metrics.jsonl", "summary.json", "disclosure.json", "sites.json"} < few.keys()
    few, many = without_start(few), without_start(many)
    for name in few:
        assert few[name] == many[name], name


@pytest.mark.parametrize("sampler", METHODS)
def test_what_is_published_of_the_traffic_is_the_expected_size_of_a_cohort_times_one_site(ran, sampler):
    result, _ = ran("run", METHODS[sampler], MANY, adapter_moves=True)
    record = read(result.folder)
    one = 4 * record.environment.trained  # an adapter, float32
    bit = 4 if sampler == "adaptive" else 0
    for row in result.rows[1:]:
        assert row["bytes_up"] == 2 * (one + bit) and row["expected"] == ["bytes_up", "bytes_down"]
        assert 2 * one < row["bytes_down"] < 2 * (one + 200)  # and the numbers that are sent along
        assert not {"wall", "seconds", "at_sites", "peak_memory", "events", "counts", "train_loss"}.intersection(row)
    update = next(entry for entry in record.disclosure if entry.field == "update")
    assert (update.messages, update.bytes, update.expected) == (3 * 2, 3 * 2 * one, True)
    assert record.totals == {"bytes_up": 6 * (one + bit), "bytes_down": sum(row["bytes_down"] for row in result.rows)}
    page = (result.folder / "report.html").read_text(encoding="utf-8")
    assert "ε counts on nobody knowing which sites a round asked" in page and "expected</span>" in page


def test_what_really_happened_is_kept_for_the_owner(ran):
    result, _ = ran("run", METHODS["poisson"], MANY)
    path = result.folder / "private" / "@run" / "figures.jsonl"
    head, *rows, last = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    assert head == {"private": NOT_FOR_PUBLICATION} and "Do not publish" in NOT_FOR_PUBLICATION
    sent = [row["bytes_up"] for row in rows[1:]]
    assert [amount / sent[0] for amount in sent] == [1, 3, 1.5]  # of 2, 6 and 3 sites
    assert all(row["wall"] > 0 and row["peak_memory"] > 0 for row in rows)
    assert [row["messages"] for row in last["disclosure"] if row["field"] == "update"] == [11]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700
    assert site_folder("@run") != "@run"


def test_a_cohort_that_everybody_is_in_is_no_secret(ran):
    result, _ = ran(
        "run", METHODS["poisson"] | {"sampler": POISSON | {"sites_per_round": len(SITES)}}, [list(SITES)] * 3
    )
    assert all(row["bytes_up"] >= 0 and "expected" not in row and "wall" not in row for row in result.rows)
    kept = {path.name for path in (result.folder / "private" / "@run").iterdir()}
    # How many records sites have is published in no private run, nor how long it took, which tells that.
    assert kept == {"anchor.jsonl", "records.jsonl", "figures.jsonl", "inputs.jsonl"}


def test_why_a_run_stops_is_for_the_owner_alone(ran, tmp_path, monkeypatch, capsys):
    def answer(self, ask, sites):
        for site in sites:
            yield Failure(site, "the disk of the cardiologist is full")

    whole = LocalEngine.ask
    monkeypatch.setattr(
        LocalEngine,
        "ask",
        lambda self, ask, sites: (whole if ask.verb in ("join", "commit") else answer)(self, ask, sites),
    )
    with pytest.raises(RunError) as stopped:
        ran("run", METHODS["poisson"], MANY)
    said = str(stopped.value) + "".join(capsys.readouterr())
    assert "--resume" in said and "log.txt" in said and "round 1" in said
    assert not any(word in said for word in (*SITES, "of 2", "disk"))
    log = (tmp_path / "run" / "data" / "run" / "private" / "@run" / "log.txt").read_text(encoding="utf-8")
    assert log.startswith(NOT_FOR_PUBLICATION) and "only 0 of 2 sites answered" in log and "basalt" in log


@pytest.mark.slow
def test_what_workers_say_of_a_cohort_is_for_the_owner_too(tmp_path, llama_folder, capfd, forked_workers, monkeypatch):
    """Their last words come after the run has stopped. Here sites refuse, since no ε of theirs covers the method."""
    monkeypatch.setattr("murmura.experiment.run.require_answers", lambda *_: None)  # a real server cannot foresee it
    write_data(tmp_path, SITES)
    options = {"engine": "processes", "workers": 2}
    budget = {"folder": str(tmp_path / "accounts"), "epsilon": 5.0}
    all_but_one = METHODS["poisson"] | {"sampler": POISSON | {"sites_per_round": 5}}
    with pytest.raises(RunError):
        run(experiment(tmp_path, llama_folder, all_but_one, run=options, budget=budget))
    said = "".join(capfd.readouterr())
    assert "before training" in said and not any(site in said for site in SITES)
    lines = (tmp_path / "run" / "private" / "@run" / "log.txt").read_text(encoding="utf-8").splitlines()
    assert lines[-1].startswith("round 1: only 0 of ") and any(": site " in line for line in lines[:-1])


def test_single_uploads_of_secret_cohorts_are_not_attacked(ran):
    result, _ = ran("run", METHODS["poisson"], MANY, attacks=True)
    assert result.rows[-1]["attack_auc"] is not None and "upload_auc" not in result.rows[-1]
    assert result.rows[-1]["attacks"]["attack"]["members"] is None


def test_what_was_published_is_as_it_was_after_a_resume(ran, tmp_path, llama_folder, monkeypatch):
    result, files = ran("run", METHODS["poisson"], MANY)
    close = Server._close

    def stop(server):
        if server.round == 3:
            raise KeyboardInterrupt
        close(server)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Server, "_close", stop)
        ran("again", METHODS["poisson"], MANY)
    monkeypatch.setattr("murmura.methods.dpfedavg.method.draw", lambda *_: ["cedar"])
    whole = run(experiment(tmp_path / "again" / "data", llama_folder, METHODS["poisson"]), resume=True)
    assert whole.rows[:-1] == result.rows[:-1]
    last, repeated = ({**one.rows[-1], "epsilon": 0, "privacy": 0} for one in (result, whole))
    assert last == repeated and whole.rows[-1]["epsilon"] > result.rows[-1]["epsilon"]
    told, again = (
        json.loads(text) for text in (files["disclosure.json"], (whole.folder / "disclosure.json").read_text())
    )
    expected, once_more = ([(row["field"], row["messages"]) for row in one if row["expected"]] for one in (told, again))
    assert expected == [("update", 3 * 2)] and once_more == [("update", 4 * 2)]
