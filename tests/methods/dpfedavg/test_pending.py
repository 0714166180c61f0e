"""Secret cohorts, from when they are drawn until something is released with them."""

from types import SimpleNamespace

import pytest

from murmura.errors import PrivacyError
from murmura.methods.dpfedavg.method import cohort_of


def asked(file, released, *samples):
    """The cohort after so many releases, by a process that would draw these places in turn."""
    left = list(samples)
    sampler = SimpleNamespace(batches=lambda population, steps, entropy: [left.pop(0)])
    plan = SimpleNamespace(has_secret_cohort=True, sampler=sampler)
    account = SimpleNamespace(plan=plan, ledger=SimpleNamespace(rounds=[1] * released))
    return cohort_of(SimpleNamespace(journal=lambda name, kind: kind(file)), account, ["a", "b", "c"], None)


def test_a_sample_stays_until_something_is_released_with_it(tmp_path):
    file = tmp_path / "pending.journal"
    assert asked(file, 0, [0]) == ["a"]
    assert asked(file, 0, [1]) == ["a"]  # another process, after the round was stopped
    assert asked(file, 1, [1, 2]) == ["b", "c"]
    assert asked(file, 1, [0]) == ["b", "c"]
    assert asked(file, 2, []) == []
    assert asked(file, 2, [0]) == []  # an empty one stays empty


def test_it_is_for_its_owner_and_cannot_be_edited(tmp_path):
    file = tmp_path / "pending.journal"
    asked(file, 0, [0])
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(file.read_bytes().replace(b'"a"', b'"b"'))
    with pytest.raises(PrivacyError, match="journal of secret cohorts is damaged or was edited"):
        asked(file, 0)
