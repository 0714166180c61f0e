"""What an owner has consented to, and when."""

import json
import math
import shutil
import tomllib
from collections import Counter
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
import tomli_w

from murmura.errors import PrivacyError, RefusedError
from murmura.experiment import simulation, site_side, verbs
from murmura.experiment.consent import OwnersWord, answered, consent, consented, digest_of, missing_consent, withdraw
from murmura.experiment.run import run
from murmura.experiment.site_file import Allow, SiteFile
from murmura.experiment.site_side import open_sites
from murmura.experiment.verbs import fingerprint
from murmura.federation.site.joined import Joined
from murmura.federation.site.store import released
from murmura.federation.wire.messages import Ask
from murmura.privacy.budget import Budget
from murmura.runs.names import FEDERATION, HELDOUT_DIGESTS
from murmura.runs.record import read
from tests.experiment.deployed import founded
from tests.experiment.small import write_data

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.usefixtures("no_page")


@pytest.fixture
def file():
    return SiteFile(name="heart", records="records.jsonl", federation="..")


def test_consent_is_to_one_experiment_and_keeps_what_was_shown(tmp_path, file):
    assert consented(tmp_path, "one") is None
    consent(tmp_path, "one", "shown")
    consent(tmp_path, "two", "shown too")
    assert consented(tmp_path, "one") and consented(tmp_path, "three") is None
    assert missing_consent(tmp_path, file, "two") is None
    assert "murmura site show" in missing_consent(tmp_path, file, "three")
    lines = [json.loads(line.partition(" ")[2]) for line in (tmp_path / "consent.journal").read_text().splitlines()]
    assert [(line["experiment"], line["shown"]) for line in lines] == [("one", "shown"), ("two", "shown too")]
    assert all(line["at"].endswith("+00:00") for line in lines)


def test_another_list_of_held_out_records_is_another_experiment(make, tmp_path):
    """It says which records a site leaves out, and the site tells how many it has."""
    experiment, found = make(), []
    for listed in (None, "[]", '["0123"]'):
        if listed is not None:
            (tmp_path / "heldout.json").write_text(listed)
        found.append(digest_of(experiment, tmp_path))
    assert len(set(found)) == 3 and digest_of(make(training={"lr": 1e-4}), tmp_path) not in found


def test_what_may_change_without_the_owners_word_is_told_on_the_page(make):
    """Of all that the digest leaves out: but for what each member has for itself, or nothing leaves a site by."""
    run_of = ("name", "folder", "chosen_by", "engine", "workers", "slots", "cache_bytes")
    data_of = ("train", "heldout", "split", "heldout_split", "fields", "heldout_fields", "user", "sites")
    apart = {"budget", "model.device", *(f"run.{name}" for name in run_of), *(f"data.{name}" for name in data_of)}
    left_out = {
        f"{table}.{name}" if names is not True else table
        for table, names in verbs._OWN.items()
        for name in ([""] if names is True else names)
    }
    section = (DOCS / "sites.md").read_text().split("## Consent\n")[1].split("\n## ")[0]
    assert {option for option in left_out - apart if f"`{option}`" not in section} == set()
    assert fingerprint(make(tracking={"to": ["tensorboard"]})) == fingerprint(make())


def test_consent_that_was_taken_back_is_none_until_it_is_given_again(tmp_path, file):
    consent(tmp_path, "one", "shown")
    withdraw(tmp_path)
    assert consented(tmp_path, "one") is None and missing_consent(tmp_path, file, "one")
    consent(tmp_path, "two", "shown")
    assert consented(tmp_path, "one") is None and consented(tmp_path, "two")


def test_nobody_is_asked_in_a_simulation_or_where_the_owner_said_so_beforehand(tmp_path, file):
    beforehand = file.model_copy(update={"allow": file.allow.model_copy(update={"ask": False})})
    simulated = file.model_copy(update={"simulated": True})
    assert missing_consent(tmp_path, beforehand, "one") is missing_consent(tmp_path, simulated, "one") is None
    assert not list(tmp_path.iterdir())


def test_consent_that_was_edited_is_none(tmp_path, file):
    consent(tmp_path, "one", "shown")
    path = tmp_path / "consent.journal"
    path.write_text(path.read_text().replace('"one"', '"two"'))
    with pytest.raises(PrivacyError, match="damaged or was edited"):
        missing_consent(tmp_path, file, "two")


@pytest.mark.parametrize("secure", [False, True])
def test_the_journals_of_all_sites_have_just_what_the_report_says_has_left(make, tmp_path, monkeypatch, secure):
    write_data(tmp_path, {"heart": 4, "skin": 3, "lung": 3})
    sections = {"aggregation": {"secure": True}, "evaluation": {"attacks": False, "uploads": 0}} if secure else {}
    share_out = simulation.share_out

    def owned(experiment, records, folders, *given):
        share_out(experiment, records, folders, *given, simulated=False)
        (next(iter(folders.values())).parent / FEDERATION / HELDOUT_DIGESTS).write_text("[]")

    monkeypatch.setattr(simulation, "share_out", owned)
    monkeypatch.setattr(site_side, "missing_consent", lambda *given: None)
    monkeypatch.setattr(OwnersWord, "objection", lambda *given: None)
    folder = run(make(**sections)).folder
    counted = Counter()
    for name in ("heart", "skin", "lung"):
        for line in released(folder / "private" / name):
            for field in line["fields"]:
                counted[line["verb"], field["field"]] += field["bytes"]
    told = {(row.verb, row.field): row.bytes for row in read(folder).disclosure}
    if secure:  # the report tells the parts of the masked vector
        assert counted["train", "masked"] == sum(told.pop(key) for key in list(told) if key[0] == "train")
        del counted["train", "masked"]
    assert counted == told and len(told) >= 5


ALWAYS = Allow(ask=False)


def runs_of(folder, allow, experiment="one", promised=None, account=None):
    """The site as a process of its own has it when it starts."""
    return Joined(folder / "runs.journal", OwnersWord(folder, allow, experiment, promised), account)


def test_a_consent_is_for_one_run_and_for_that_one_again(tmp_path):
    consent(tmp_path, "one", "shown")
    consent(tmp_path, "one", "shown")  # before any run, twice is once
    assert answered(tmp_path, "one") is None
    for _ in range(2):
        runs_of(tmp_path, Allow()).enter("first")
    assert answered(tmp_path, "one") == "first"
    with pytest.raises(RefusedError, match=r"which was run 'first', .* `murmura site consent`, given again"):
        runs_of(tmp_path, Allow()).enter("second")
    consent(tmp_path, "one", "shown")
    assert answered(tmp_path, "one") is None
    for again in ("second", "first"):
        runs_of(tmp_path, Allow()).enter(again)
    with pytest.raises(RefusedError):
        runs_of(tmp_path, Allow()).enter("third")


def test_a_consent_to_another_experiment_is_for_no_further_run_of_this_one(tmp_path):
    consent(tmp_path, "one", "shown")
    runs_of(tmp_path, Allow()).enter("first")
    consent(tmp_path, "two", "shown")
    with pytest.raises(RefusedError):
        runs_of(tmp_path, Allow()).enter("second")
    runs_of(tmp_path, Allow(), "two").enter("second")


def test_a_further_run_needs_a_consent_that_was_not_taken_back_meanwhile(tmp_path):
    consent(tmp_path, "one", "shown")
    runs = runs_of(tmp_path, Allow())
    withdraw(tmp_path)
    with pytest.raises(RefusedError, match="has not consented to this experiment"):
        runs.enter("first")


def promise(epsilon, delta=1e-5, unit="site", adjacency="zero-out"):
    return {"unit": unit, "adjacency": adjacency, "epsilon": epsilon, "delta": delta}


def test_who_is_not_asked_has_all_runs_together_held_to_their_limit(tmp_path):
    allow = Allow(ask=False, epsilon=8.0, delta=3e-5)
    runs_of(tmp_path, allow, "one", promise(4.0)).enter("first")
    runs_of(tmp_path, allow, "two", promise(3.5)).enter("second")
    with pytest.raises(RefusedError, match=r"this run and the 2 before it promise ε = 8\.500 at δ = 3e-05 together"):
        runs_of(tmp_path, allow, "one", promise(1.0)).require("third")
    runs_of(tmp_path, allow, "one", promise(4.0)).require("first")  # again
    runs_of(tmp_path, allow, "one", promise(0.5)).enter("third")
    with pytest.raises(RefusedError, match="at δ = 4e-05"):
        runs_of(tmp_path, allow, "one", promise(0.0)).require("fourth")


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (None, "what run 'first' promises is not known"),
        (promise(math.nan), "what run 'first' promises is not known"),
        (promise(1.0, unit="record"), "protect records and whole sites"),
        (promise(1.0, adjacency="replace-one"), "have different adjacencies"),
    ],
)
def test_what_runs_promise_together_has_to_be_known(tmp_path, before, message):
    runs_of(tmp_path, ALWAYS, "one", before).enter("first")
    with pytest.raises(RefusedError, match=message):
        runs_of(tmp_path, Allow(ask=False, epsilon=8.0), "one", promise(1.0)).enter("second")


def test_an_answer_that_was_allowed_again_is_in_the_sum_of_all_runs(tmp_path):
    allow = Allow(ask=False, epsilon=8.0, delta=3e-5)
    runs_of(tmp_path, allow, "one", promise(4.0)).enter("first")
    runs_of(tmp_path, allow, "one", promise(4.0)).enter("first", more=True)
    with pytest.raises(RefusedError, match=r"the 2 before it promise ε = 8\.500"):
        runs_of(tmp_path, allow, "one", promise(0.5)).enter("second")
    with pytest.raises(RefusedError, match=r"one answer more.* and the 2 before it promise ε = 12\.000"):
        runs_of(tmp_path, allow, "one", promise(4.0)).enter("first", more=True)
    assert len((tmp_path / "runs.journal").read_text().splitlines()) == 2
    asked = Allow(ask=True, epsilon=8.0)  # about each run, and --again is the owner's word
    consent(tmp_path, "one", "shown")
    runs_of(tmp_path, asked, "one", promise(4.0)).enter("first", more=True)


ALIKE, RENAMED, CHANGED = ("north", "digest"), ("south", "digest"), ("north", "changed")


@pytest.mark.parametrize("then", [ALIKE, RENAMED, CHANGED, ("south", "changed")])
@pytest.mark.parametrize("ask", [False, True])
def test_a_new_folder_of_a_site_forgets_no_run_where_there_is_one_for_accounts(tmp_path, then, ask):
    """`docs/deploy.md` orders a new one for a further run; a consent is given in each."""
    allow = Allow(ask=ask, epsilon=8.0, delta=3e-5)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        consent(tmp_path / name, "one", "shown")

    def begun(name, site, records):
        account = Budget(tmp_path / "accounts", site, records, None, 1e-5)
        return runs_of(tmp_path / name, allow, "one", promise(5.0), account)

    begun("old", *ALIKE).enter("first")
    begun("old", *ALIKE).require("first")
    with nullcontext() if ask or then == ("south", "changed") else pytest.raises(RefusedError, match="1 before it"):
        begun("new", *then).enter("second")


def test_who_is_not_asked_and_sets_no_limit_is_told_how_many_runs_there_are(tmp_path):
    runs = runs_of(tmp_path, ALWAYS)
    assert not runs.enter("first") and "run 'second' is number 2" in runs.enter("second")


@pytest.mark.parametrize("ask", [True, False])
def test_a_site_that_is_opened_again_answers_no_further_run_beyond_its_owners_word(make, tmp_path, ask):
    method = {"name": "dpfedavg", "rounds": 2, "epsilon": 8.0}
    federation = founded(make(method), tmp_path / "many")
    own = federation.folder / "heart"
    if not ask:
        limits = {"allow": {"ask": False, "epsilon": 8.0}}
        (own / "site.toml").write_text(tomli_w.dumps(tomllib.loads((own / "site.toml").read_text()) | limits))

    def joins(run, answers=False):
        with closing(open_sites([own])) as host:
            asks = [Ask("join", 1, {"experiment": fingerprint(federation.experiment), "resumed": False}, run=run)]
            joined = [type(one).__name__ for ask in asks for one in host.answer(ask, ["heart"])]
            if answers:
                host.sites["heart"].runs.enter(run)  # as with the first answer about records
            return joined == ["Reply"]

    assert [joins("a"), joins("b", answers=True), joins("a"), joins("b")] == [True, True, False, True]
    assert ("murmura site consent" if ask else "for all runs together") in (own / "notes.txt").read_text()


def test_a_site_that_is_opened_from_another_folder_has_the_runs_before_in_its_owners_accounts(make, tmp_path):
    federation = founded(make({"name": "dpfedavg", "rounds": 2, "epsilon": 8.0}), tmp_path / "many")
    old, new = federation.folder / "heart", federation.folder / "anew"
    limits = {"allow": {"ask": False, "epsilon": 8.0}, "budget": {"folder": "../accounts"}}
    (old / "site.toml").write_text(tomli_w.dumps(tomllib.loads((old / "site.toml").read_text()) | limits))
    shutil.copytree(old, new)
    with closing(open_sites([old])) as host:
        host.sites["heart"].runs.enter("first")
    with closing(open_sites([new])) as host, pytest.raises(RefusedError, match="this run and the 1 before it promise"):
        host.sites["heart"].runs.require("second")
