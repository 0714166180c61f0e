"""What is seen of a run while it works, after it, and where it was stopped."""

import io
import json
import math
import re
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from wsgiref.util import setup_testing_defaults

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from murmura.cli import MISTAKE, app
from murmura.errors import CheckpointError
from murmura.experiment.run import run
from murmura.federation.server import activity
from murmura.measure.monitor import Monitor
from murmura.privacy.journal import Journal
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.reported import ReportedEpsilons
from murmura.report.guarantee import interrupted
from murmura.report.in_short import PROMISED, in_short
from murmura.report.run_facts import facts
from murmura.report.sheet import sheet
from murmura.report.table import table
from murmura.runs import RunFolder, read
from murmura.runs.names import ENVIRONMENT, PRIVACY_LEDGER, REPORTED, SUMMARY
from murmura.status import Status, look
from murmura.status import serve as served
from murmura.status.listing import listing
from murmura.status.serve import application, page
from murmura.status.view import lines
from murmura.units import bound
from tests.experiment import small
from tests.report.blocks import said
from tests.report.runs import PRIVATE, metrics, write_run

SECRET = {
    "name": "dpfedavg",
    "noise_multiplier": 1.0,
    "sampler": {"kind": "poisson", "sites_per_round": 1},
    "rounds": 1,
}


@pytest.fixture
def make(tmp_path, llama_folder, monkeypatch, no_page):
    monkeypatch.setattr(activity, "_SECONDS_BETWEEN", -1.0)
    small.write_data(tmp_path)
    return partial(small.experiment, tmp_path, llama_folder)


@pytest.fixture
def seen(monkeypatch):
    """Calls something with the folder whenever a run has kept what it is doing; returns the list of what that gave."""

    def looking(with_folder):
        found, write = [], RunFolder.write_live

        def noting(self, told):
            write(self, told)
            if told is not None:
                found.append(with_folder(self.path))

        monkeypatch.setattr(RunFolder, "write_live", noting)
        return found

    return looking


def test_a_run_is_seen_from_its_first_round_to_its_end(make, seen):
    found = seen(look)
    folder = run(make(evaluation={"attacks": False})).folder
    assert {one.state for one in found} == {"running"}
    assert [one.round for one in found] == sorted(one.round for one in found)
    assert (found[0].done, found[-1].done, found[-1].round) == (None, 1, 2)  # round 2 is saved after its last ask
    trained = [one for one in found if one.round == 2 and one.verb == "train"]
    assert [(one.asked, one.left, one.waiting) for one in trained] == [
        (2, 2, ("heart", "skin")),
        (2, 1, ("skin",)),
        (2, 0, ()),
    ]
    first, second = ({one.seconds_left is None for one in found if one.round == number} for number in (1, 2))
    assert first == {True} and second == {False}
    assert all(before.bytes_up <= after.bytes_up for before, after in pairwise(found))

    after, record = look(folder), read(folder)
    assert (after.state, after.rounds, after.done, after.round) == ("finished", 2, 2, None)
    assert after.bytes_up == record.totals["bytes_up"] and after.bytes_down == record.totals["bytes_down"]
    assert after.figures["heldout_loss"] == record.last.values["heldout_loss"] and after.measured == 2
    assert not (folder / "checkpoint" / "live.json").exists()


def test_a_run_that_was_stopped_is_not_taken_for_one_that_works(make, monkeypatch):
    def fails(*_, **__):
        raise MemoryError

    with pytest.raises(MemoryError), monkeypatch.context() as patch:
        patch.setattr("murmura.federation.site.cohort.train", fails)
        run(make())
    found = look(make().run.path)
    assert (found.state, found.round, found.verb, found.done) == ("stopped", None, None, 0)
    assert "--resume" in dict(lines(found))["State"]


def test_times_are_for_the_owner_where_the_run_guarantees_something(make, seen):
    def refused(folder):
        with pytest.raises(CheckpointError, match="how long it takes tells of records"):
            _ = look(folder).published
        return look(folder), get(folder, "/status.json")[0]

    found = seen(refused)
    folder = run(make({"name": "dplora", "noise_multiplier": 1.0, "rounds": 2}, evaluation={"attacks": False})).folder
    assert all(one.seconds_left is not None for one, _ in found if one.round == 2)
    started = json.loads((folder / ENVIRONMENT).read_text())["started"]  # its end is seen by whoever sees the folder
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", started) and listing([folder])[0].started == started
    assert re.fullmatch(r"\d+ \w+ \d{4}", facts(table([read(folder)]))["Started"])
    assert {code for _, code in found} == {"503 Service Unavailable"}
    assert look(folder).published.state == "finished"
    after, last = look(folder), read(folder).last
    assert (after.epsilon, after.delta, after.unit) == tuple(last.privacy[key] for key in ("epsilon", "delta", "unit"))
    assert dict(lines(after))["Guaranteed"].startswith("ε = ")


def interrupted_after_sending(make, monkeypatch, round=2):
    """The experiment of a run that was stopped in this round of 3, when sites had answered."""
    experiment = make({"name": "dplora", "noise_multiplier": 1.0, "rounds": 3}, evaluation={"attacks": False})
    plain = Monitor.measure

    def fails(self, adapter, fleet, *args, **more):
        if fleet.round == round:
            raise MemoryError
        return plain(self, adapter, fleet, *args, **more)

    with pytest.raises(MemoryError), monkeypatch.context() as patch:
        patch.setattr(Monitor, "measure", fails)
        run(experiment)
    return experiment


def test_what_a_stopped_run_has_sent_but_not_saved_is_in_its_epsilon(make, monkeypatch):
    folder = interrupted_after_sending(make, monkeypatch).run.path
    ledgers = [PrivacyLedger.of(Journal.peek(one, "ledger")) for one in folder.glob(f"private/*/{PRIVACY_LEDGER}")]
    spent = max(ledger.epsilon().value for ledger in ledgers)
    found = look(folder)
    assert (found.state, found.done, found.epsilon) == ("stopped", 1, spent)
    assert spent > read(folder).last.privacy["epsilon"] and listing([folder])[0].epsilon == spent
    assert dict(lines(found))["Guaranteed"].endswith(", by the privacy ledgers")
    assert dict(lines(replace(found, epsilon=None)))["Guaranteed"] == "no ε can be told (by the privacy ledgers)"
    shutil.rmtree(folder / "private")  # as on the server of a deployment, whose sites have their ledgers
    told = ReportedEpsilons.peek(RunFolder(folder).journal(REPORTED)).worst["epsilon"]
    found = look(folder)
    assert found.epsilon == told == spent
    assert ", by what sites have told, and what is promised where they have not" in dict(lines(found))["Guaranteed"]
    [sentence] = interrupted(table([read(folder)]))
    assert f"but ε = {bound(spent)} by what sites have told" in sentence
    [line] = [line for line in (folder / "metrics.jsonl").read_text().splitlines() if '"round": 1' in line]
    assert json.loads(line)["privacy"]["epsilon"] < spent


@pytest.mark.parametrize("ledgers", [True, False])
def test_what_was_spent_is_told_before_any_round_is_saved_that_promises_it(make, monkeypatch, ledgers):
    folder = interrupted_after_sending(make, monkeypatch, round=1).run.path
    if not ledgers:  # as on the server of a deployment, whose sites have their ledgers
        shutil.rmtree(folder / "private")
    by = "by the privacy ledgers" if ledgers else "by what sites have told, and what is promised where they have not"
    found, rows = look(folder), table([read(folder)])
    assert found.done == 0 and found.epsilon > 0
    spent = f"ε = {bound(found.epsilon)}"
    assert dict(lines(found))["Guaranteed"] == f"{spent} for one record, δ = 1e-05, {by}"
    assert spent.removeprefix("ε = ") in listing([folder])[0].cells
    sentence = f"its figures are those of round 0, but {spent} at δ = 1e-05, for one record, {by}."
    for told in (" ".join(in_short(rows).answers[PROMISED]), said(sheet(rows[0])[2])):
        assert sentence in told and "Nothing" not in told
    other = write_run(folder.parent / "other", "other", rows=[metrics(0)], finished=False)
    told = in_short(table([read(folder), read(other)])).answers[PROMISED]
    assert "Nothing for fedit." in told and not any(one.startswith("Nothing: ") for one in told)


@pytest.mark.parametrize("finished", [True, False])
def test_an_epsilon_that_is_refused_is_not_taken_for_one_that_was_never_promised(tmp_path, finished):
    rows = [metrics(0), metrics(1, privacy={**PRIVATE, "epsilon": None, "refused": "a batch was larger"})]
    folder = write_run(tmp_path / "a", rows=rows, finished=finished)
    assert dict(lines(look(folder)))["Guaranteed"] == "nothing: a batch was larger"
    assert "refused" in listing([folder])[0].cells
    plain = write_run(tmp_path / "b", finished=finished)
    assert "Guaranteed" not in dict(lines(look(plain))) and "refused" not in listing([plain])[0].cells


def test_while_it_goes_on_its_epsilon_is_never_less_than_what_was_spent(make, monkeypatch, seen):
    stopped = interrupted_after_sending(make, monkeypatch)
    spent, told = look(stopped.run.path).epsilon, seen(look)
    run(stopped, resume=True)
    assert {(one.state, one.done) for one in told} == {("running", 1), ("running", 2)}
    assert all(one.epsilon is not None and one.epsilon >= spent for one in told)
    assert all(one.round is None or one.round > one.done for one in told)


def test_what_a_killed_process_was_doing_is_not_taken_for_what_the_next_one_does(tmp_path):
    """Until sites have joined: it may ask none that the other one asked, and begins after the last saved round."""
    folder = RunFolder(write_run(tmp_path / "a", rows=[metrics(0), metrics(1)], finished=False))
    folder.checkpoint.mkdir()
    folder.write_live({"round": 2, "rounds": 4, "began": 0.0, "verb": "train", "asked": 5, "left": 2, "waiting": ["b"]})
    with folder.opened(resume=True, overwrite=False):
        found = look(folder.path)
        assert (found.state, found.round, found.verb, found.waiting) == ("running", None, None, ())
        assert (found.rounds, found.done, found.seconds_left) == (4, 1, 3 * 30.0)
        assert dict(lines(found))["Round"] == "saved: 1 of 4"
        assert listing([tmp_path])[0].state == "running: round 1 of 4"


def test_what_makes_an_epsilon_worth_less_than_it_looks_stands_beside_it(make, tmp_path):
    promise = {"epsilon": 7.9, "delta": 1e-5, "unit": "record", "adjacency": "zero-out", "caveat": "It began trained."}
    folder = write_run(tmp_path / "private", rows=[{"round": 0}, {"round": 1, "privacy": promise}])
    assert dict(lines(look(folder)))["Guaranteed"].endswith("δ = 1e-05. It began trained.")
    assert "7.900, but see murmura status" in listing([folder])[0].cells


def test_a_run_with_secret_cohorts_is_shown_to_its_owner_alone(make, seen):
    def refused(folder):
        with pytest.raises(CheckpointError, match="secret cohorts"):
            _ = look(folder).published
        return get(folder, "/metrics")[0]

    codes = seen(refused)
    folder = run(make(SECRET, evaluation={"attacks": False})).folder
    assert codes and set(codes) == {"503 Service Unavailable"}
    assert look(folder).published.state == "finished"


@pytest.mark.parametrize(
    ("withheld", "why"),
    [
        ("its ε counts on secret cohorts", "secret cohorts"),
        ("how long it takes tells of records", "how long"),
        (None, "is not yet"),
    ],
)
def test_neither_is_one_that_waits_for_sites_or_gave_up_on_them(tmp_path, monkeypatch, withheld, why):
    folder = waiting(tmp_path / "private", withheld)
    for works, state in ((True, "waiting"), (False, "stopped")):
        monkeypatch.setattr("murmura.status.status.is_running", lambda folder, works=works: works)
        assert look(folder).state == state
        with pytest.raises(CheckpointError, match=why):
            _ = look(folder).published


def test_one_that_promises_nothing_is_shown_while_it_waits_for_sites(tmp_path, monkeypatch):
    monkeypatch.setattr("murmura.status.status.is_running", lambda folder: True)
    folder = waiting(tmp_path / "plain", "")
    assert look(folder).published.waiting == ("heart",)


def waiting(folder, withheld):
    """The folder of a run that waits for a site, having noted why nobody else may watch it, if not None."""
    kept = RunFolder(write_run(folder, rows=[{"round": 0}]))
    (kept.path / SUMMARY).unlink()
    kept.checkpoint.mkdir()
    if withheld is not None:
        kept.write_withheld(withheld)
    kept.write_live({"expected": ["heart"]})
    return kept.path


def test_what_is_done_in_a_finished_run_does_not_have_it_run_again(make):
    folder = run(make({"name": "dplora", "noise_multiplier": 1.0, "rounds": 1}, evaluation={"attacks": False})).folder
    with RunFolder(folder).locked():  # as an audit does
        assert look(folder).published.state == "finished" and look(folder).withheld == ""


def get(folder, path):
    """What the page's application answers: status and text."""
    environ, said = {"PATH_INFO": path, "wsgi.input": io.BytesIO()}, []
    setup_testing_defaults(environ)
    body = b"".join(application(folder)(environ, lambda code, headers: said.append((code, dict(headers)))))
    assert said[0][1]["Content-Length"] == str(len(body))
    return said[0][0], body.decode()


def test_prometheus_reads_what_is_told_of_a_run(make):
    folder = run(make({"rounds": 1})).folder
    code, text = get(folder, "/metrics")
    found = {
        sample.name + sample.labels.get("figure", ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    status = look(folder)
    assert code == "200 OK"
    assert (found["murmura_finished"], found["murmura_running"], found["murmura_round_saved"]) == (1, 0, 1)
    assert found["murmura_bytes_up"] == status.bytes_up > 0
    assert found["murmura_figureheldout_loss"] == status.figures["heldout_loss"]
    assert "murmura_epsilon" not in found  # it promises none


def test_without_its_library_prometheus_is_told_what_to_install(make, monkeypatch):
    folder = run(make({"rounds": 1})).folder
    monkeypatch.setattr(served, "find_spec", lambda name: None)
    code, text = get(folder, "/metrics")
    assert code.startswith("503") and "pip install 'murmura[watch]'" in text


def test_names_cannot_write_into_the_page():
    text = page(Status("<b>run</b>", "fedit", "waiting", waiting=("<script>alert(1)</script>",)))
    assert "<script>" not in text and "&lt;script&gt;" in text and "<b>run" not in text
    assert "waiting for sites" in text


def test_the_page_is_served_on_this_machine_and_other_paths_are_not(make):
    folder = run(make({"rounds": 1})).folder
    addresses = []
    threading.Thread(target=served.serve, args=(folder, 0, addresses.append), daemon=True).start()
    while not addresses:
        time.sleep(0.01)
    assert addresses[0].startswith("http://127.0.0.1:")
    port = int(addresses[0].rstrip("/").rpartition(":")[2])
    idle = socket.create_connection((served.HOST, port))  # a browser's, in advance: it asks nothing
    with idle, urllib.request.urlopen(addresses[0], timeout=30) as answer:
        text = answer.read().decode()
    assert 'http-equiv="refresh"' in text and "small (fedit)" in text
    with urllib.request.urlopen(f"{addresses[0]}status.json") as answer:
        assert json.load(answer)["done"] == 1
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{addresses[0]}checkpoint/sent.json")


def invoke(*words):
    return CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1"}).invoke(app, [str(word) for word in words])


def test_the_command_prints_lines_or_json(make):
    folder = run(make({"rounds": 1})).folder
    printed = invoke("status", folder)
    assert printed.exit_code == 0, printed.output
    for label, value in lines(look(folder)):
        assert label in printed.stdout and value in printed.stdout
    assert json.loads(invoke("status", folder, "--json").stdout) == json.loads(json.dumps(asdict(look(folder))))
    watched = invoke("status", folder, "--watch")  # ends, since the run has
    assert watched.exit_code == 0 and "finished" in watched.stdout


def test_a_run_that_diverged_is_told_in_json_that_any_reader_takes(tmp_path):
    def refuse(token):
        raise ValueError(f"{token} is no number of JSON")

    folder = write_run(tmp_path / "run", rows=[metrics(0), {**metrics(1), "heldout_loss": math.nan}])
    assert math.isnan(look(folder).figures["heldout_loss"])
    for text in (invoke("status", folder, "--json").stdout, get(folder, "/status.json")[1]):
        assert json.loads(text, parse_constant=refuse)["figures"]["heldout_loss"] == "NaN"


def test_epsilon_is_told_once_and_hides_no_figure_of_an_earlier_round(tmp_path):
    """Every round of such a run has one, those too in which nothing was measured."""
    told = {"epsilon": 7.5001, "privacy": {**PRIVATE, "epsilon": 7.5001}}
    rows = [metrics(0), metrics(1, **told), {"round": 2, "wall": 30.0, **told}]
    folder = write_run(tmp_path / "run", rows=rows)
    said = lines(look(folder))
    assert [value for _, value in said if "7.50" in value] == ["ε = 7.501 for one record, δ = 1e-05"]
    assert ("Held-out loss, round 1", "2.125") in said
    assert [one.figure for one in listing([tmp_path])] == ["held-out loss 2.125"]


def test_a_run_has_as_many_rounds_as_it_takes_and_not_as_ask_sites(tmp_path):
    """Sites vote in as many rounds of PrE-Text as its experiment names, and the model is trained in one more."""
    over = write_run(tmp_path / "over", rows=[metrics(number) for number in range(4)])  # the experiment names 2
    assert look(over).rounds == look(over).done == 3 == read(over).planned
    half = write_run(tmp_path / "half", rows=[metrics(number) for number in range(3)], finished=False)
    RunFolder(half).checkpoint.mkdir()
    RunFolder(half).write_live({"round": 3, "rounds": 3, "began": 0.0})
    assert look(half).rounds == 3 == read(half).planned
    assert [row.state for row in table([read(half)])] == ["unfinished: round 2 of 3"]


def test_of_one_it_is_told_as_of_one():
    told = dict(lines(Status("a", "fedit", "running", verb="train", asked=1, left=2, waiting=("b",))))
    assert told["Asked"] == "1 site for 'train', 2 to come" and told["Waited for"] == "b and 1 other"


def test_where_there_is_no_run_the_command_says_so(tmp_path):
    refused = invoke("status", tmp_path)
    assert refused.exit_code == MISTAKE and "there is no run in this folder" in refused.stderr
    both = invoke("status", tmp_path, "--json", "--watch")
    assert both.exit_code == MISTAKE and "--json and --watch exclude each other" in both.stderr


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "a"}'])
def test_a_run_whose_summary_cannot_be_read_is_not_called_finished(tmp_path, text):
    (write_run(tmp_path / "a") / SUMMARY).write_text(text)
    with pytest.raises(CheckpointError, match=r"summary\.json.*Restore the file"):
        look(tmp_path / "a")


def test_of_many_sites_the_first_few_are_named_and_the_others_counted():
    kept = []
    one = activity.Activity(kept.append)
    one.rounds = 3
    one.begin(1)
    with one.asking("train", [f"site {number}" for number in range(1000)]) as heard:
        heard("site 0")
        heard("site 999")
    asked = kept[1]
    assert (asked["asked"], asked["left"], len(asked["waiting"])) == (1000, 1000, activity.NAMED)
    assert len(kept) < 6 and "verb" not in kept[-1]  # not kept for each answer
    status = Status("a", "fedit", "running", left=998, asked=1000, verb="train", waiting=tuple(asked["waiting"]))
    assert "978 others" in dict(lines(status))["Waited for"]
