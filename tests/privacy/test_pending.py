import pytest

from murmura.errors import PrivacyError
from murmura.privacy.pending import PendingCohort


def draws(*samples):
    left = list(samples)
    return lambda: left.pop(0)


def test_a_sample_stays_until_something_is_released_with_it(tmp_path):
    file, draw = tmp_path / "pending.journal", draws(["a"], ["b", "c"], [])
    assert PendingCohort(file).sample(0, draw) == ["a"]
    assert PendingCohort(file).sample(0, draw) == ["a"]  # another process, after the round was stopped
    drawn = PendingCohort(file)
    assert drawn.sample(1, draw) == ["b", "c"]
    assert drawn.sample(1, draw) == ["b", "c"]
    assert drawn.sample(2, draw) == []
    assert PendingCohort(file).sample(2, draw) == []  # an empty one stays empty


def test_it_is_for_its_owner_and_cannot_be_edited(tmp_path):
    file = tmp_path / "pending.journal"
    PendingCohort(file).sample(0, draws(["a"]))
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(file.read_bytes().replace(b'"a"', b'"b"'))
    with pytest.raises(PrivacyError, match="journal of secret cohorts is damaged or was edited"):
        PendingCohort(file)
