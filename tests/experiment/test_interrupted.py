"""What a private run says of its cost when it stops, and what a finished one leaves."""

import os
import re
import shutil
import stat
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from murmura import report
from murmura.errors import CheckpointError, Interrupted, PrivacyError, RunError
from murmura.experiment.cost import cost_of
from murmura.experiment.run import run
from murmura.federation.server.rounds import Server
from murmura.federation.server.sending import Sending
from murmura.federation.site.answer import Host
from murmura.privacy import run_ledgers
from murmura.privacy.standing import standing
from murmura.runs import read, read_all
from murmura.runs.folder import RunFolder
from murmura.units import bound
from tests.experiment import small

METHODS = {
    "sites": {"name": "dpfedavg", "noise_multiplier": 1.0},
    "records": {"name": "dplora", "noise_multiplier": 1.0},
    "tree": {"name": "dpftrl", "noise": {"restart_every": 2}},
}


@pytest.fixture(scope="module", params=METHODS)
def method(request):
    return METHODS[request.param] | {"rounds": 3}


@contextmanager
def stopping(place, error):
    """Lets a run stop in round 2, before or after its privacy is spent."""
    of, name = {"before": (Sending, "fields"), "after": (Server, "_close")}[place]
    whole = getattr(of, name)

    def where(self, *arguments, **options):
        if self._fleet.round == 2:
            raise error
        return whole(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of, name, where)
        yield


@pytest.fixture(scope="module")
def interrupted(method, tmp_path_factory, llama_folder):
    """Runs that Ctrl-C has stopped before and after its privacy was spent: their folders, and what was said."""
    found = {}
    for place in ("before", "after"):
        small.write_data(folder := tmp_path_factory.mktemp(place))
        experiment = small.experiment(folder, llama_folder, method)
        with stopping(place, KeyboardInterrupt()), pytest.raises(Interrupted) as stopped:
            run(experiment)
        found[place] = experiment.run.path, stopped.value.cost
    return found


def spent(folder):
    found = run_ledgers.read(folder)
    return max(ledger.epsilon().value for ledger in (*found.sites.values(), *filter(None, [found.whole])))


def test_ctrl_c_tells_what_the_round_has_cost(interrupted, method):
    folder, cost = interrupted["after"]
    assert "counts: ε = " in cost and "counts again" in cost
    if method["name"] != "dplora":  # for records the ε of a target is rounded up
        assert f"ε = {bound(spent(folder))} by" in cost
    before = read(folder).last.values["epsilon"]
    assert spent(folder) > before


def test_why_no_epsilon_can_be_told_any_more_is_told(interrupted, method, tmp_path):
    copy = shutil.copytree(interrupted["after"][0], tmp_path / "copy")
    for ledger in copy.rglob("privacy.journal"):
        ledger.write_bytes(b"no journal\n")
    said = r"counts: no ε can be told any more by .* The reason: .*privacy\.journal.*[^.]\.$"
    assert re.search(said, standing(copy, 1, method).cost)


def test_ctrl_c_before_anything_was_sent_costs_nothing(interrupted):
    _, cost = interrupted["before"]
    assert "has spent no privacy: ε = " in cost and "as when the run was last saved" in cost


def test_an_error_that_advises_to_resume_tells_it_too(make, method):
    error = RunError("too few sites", fix="Start again with --resume.")
    said = r"--resume\..* What was sent in the interrupted round counts: ε = "
    with stopping("after", error), pytest.raises(RunError, match=said):
        run(make(method=method))


def test_a_run_that_promises_nothing_says_nothing_of_privacy(make):
    with stopping("after", KeyboardInterrupt()), pytest.raises(Interrupted) as stopped:
        run(make(method={"rounds": 3}))
    assert stopped.value.cost == ""


@pytest.mark.usefixtures("no_page")
def test_a_run_that_is_resumed_before_its_first_checkpoint_is_the_same_to_its_sites(make, monkeypatch):
    """They have been measured in round 0, and know it by its id."""
    asked, answer = set(), Host.answer
    monkeypatch.setattr(Host, "answer", lambda host, ask, names: asked.add(ask.run) or answer(host, ask, names))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Server, "_close", lambda *given, **options: (_ for _ in ()).throw(KeyboardInterrupt()))
        run(make(method={"rounds": 1}))
    run(make(method={"rounds": 1}), resume=True)
    assert len(asked) == 1
    run(make(method={"rounds": 1}), overwrite=True)
    assert len(asked) == 2


def test_a_report_of_an_abandoned_run_reads_its_ledgers(interrupted):
    folder, _ = interrupted["after"]
    sentence = "stopped after it had sent more than it saved: its figures are those of round 1, but ε = "
    assert sentence in report.markdown(report.table(read_all([folder])))
    assert sentence in report.write(read_all([folder]), folder / "report.html").read_text(encoding="utf-8")


def test_a_report_of_a_run_that_stopped_with_its_round_saved_says_nothing_of_it(interrupted):
    folder, _ = interrupted["before"]
    assert "sent more than it saved" not in report.markdown(report.table(read_all([folder])))


@pytest.mark.usefixtures("no_page")
def test_a_finished_private_run_keeps_its_ledger_and_no_checkpoint(make, method):
    folder = run(make(method=method)).folder
    left = {path.name for path in (folder / "checkpoint").iterdir()}
    assert left == {"id", "reported.journal" if method["name"] == "dplora" else "privacy.journal"}
    assert stat.S_IMODE(os.stat(folder / "checkpoint").st_mode) == 0o700
    assert spent(folder) >= read(folder).last.values["epsilon"] - 1e-9
    with pytest.raises(CheckpointError, match="finished"):
        run(make(method=method), resume=True)


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("method", ["sites"], indirect=True)
def test_a_ledger_that_lost_its_end_after_the_run_was_finished_is_refused(make, method):
    folder = run(make(method=method)).folder
    ledger, anchor = folder / "checkpoint" / "privacy.journal", folder / "private" / "@run" / "anchor.jsonl"
    assert stat.S_IMODE(os.stat(anchor).st_mode) == 0o600 and "Do not publish" in anchor.read_text(encoding="utf-8")
    whole = ledger.read_bytes()
    ledger.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    with pytest.raises(PrivacyError, match="has 3 lines, and had 4 when the run was last saved"):
        run_ledgers.read(folder)
    ledger.write_bytes(whole)
    for damaged in ("{}\n", '{}\n{"anchor": {}}\n', '{}\n{"anchor": null}\n'):
        anchor.write_text(damaged, encoding="utf-8")
        with pytest.raises(PrivacyError, match=r"anchor\.jsonl: how far the privacy ledger had come is damaged"):
            run_ledgers.read(folder)


@pytest.mark.usefixtures("no_page")
def test_a_finished_run_that_promised_nothing_can_go_on(make):
    folder = run(make(method={"rounds": 1}, training={"schedule": "constant"})).folder
    assert list((folder / "checkpoint").glob("round-*"))
    assert len(run(make(method={"rounds": 2}, training={"schedule": "constant"}), resume=True).rows) == 3


def test_a_server_says_that_sites_elsewhere_have_spent_what_they_sent(make):
    """Their ledgers, by which it would tell how much, are on other machines."""
    folder = RunFolder(make().run.path)
    folder.path.mkdir()
    plan = SimpleNamespace(experiment=make(), is_remote=True, privacy=SimpleNamespace(unit="record"))
    assert "counts, by their privacy ledgers, which are with them" in cost_of(folder, plan)
    plan.is_remote = False
    assert cost_of(folder, plan) == "The interrupted round has spent no privacy."
