"""What an owner has consented to, and when."""

import json

import pytest

from murmura.errors import PrivacyError
from murmura.experiment.consent import consent, consented, missing_consent, withdraw
from murmura.experiment.site_file import SiteFile


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
