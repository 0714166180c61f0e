import pytest

from murmura.errors import PrivacyError
from murmura.privacy.reported import ReportedEpsilons


def test_what_sites_said_last_outlives_the_process(tmp_path):
    file = tmp_path / "reported.journal"
    said = ReportedEpsilons(file)
    for site, epsilon in (("a", 1.0), ("b", 2.0), ("a", 3.0), ("a", 3.0)):
        said.record(site, {"epsilon": epsilon})
    assert ReportedEpsilons(file).last == said.last == {"a": {"epsilon": 3.0}, "b": {"epsilon": 2.0}}
    assert file.read_text().count("\n") == 3  # what was said before is not written again


def test_an_edited_one_is_refused(tmp_path):
    file = tmp_path / "reported.journal"
    ReportedEpsilons(file).record("a", {"epsilon": 9.0})
    file.write_text(file.read_text().replace("9.0", "1.0"))
    with pytest.raises(PrivacyError, match="that sites have reported"):
        ReportedEpsilons(file)


def test_the_worst_is_what_the_least_protected_site_said_last():
    said = ReportedEpsilons()
    for site, epsilon in (("a", 1.0), ("b", 2.0)):
        said.record(site, {"epsilon": epsilon, "refused": None})
    assert said.worst == {"epsilon": 2.0, "refused": None}
    said.record("a", {"epsilon": 0.5, "refused": None})  # nobody can have spent less than before
    assert said.worst["epsilon"] is None and "site a has lost what it had spent" in said.worst["refused"]
    said.record("a", {"epsilon": 4.0, "refused": None})  # and what is lost stays lost
    assert said.worst["epsilon"] is None
