"""What an owner has consented to, and when."""

import json
from collections import Counter
from functools import partial

import pytest

from murmura.errors import PrivacyError
from murmura.experiment import simulation, site_side
from murmura.experiment.consent import consent, consented, digest_of, missing_consent, withdraw
from murmura.experiment.run import run
from murmura.experiment.site_file import SiteFile
from murmura.federation.site.store import released
from murmura.runs.record import read
from tests.experiment.small import write_data

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
    monkeypatch.setattr(simulation, "share_out", partial(simulation.share_out, simulated=False))
    monkeypatch.setattr(site_side, "missing_consent", lambda *given: None)
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
