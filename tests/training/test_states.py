"""Hidden states are kept within a bound, in memory and on disk."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from murmura.training.states import ON_DISK, StateCache

RECORDS = [np.arange(n, n + 4) for n in range(5)]
EACH = 4 * 8 * 4  # bytes of one's states


class Made:
    """Makes states, and counts how often it does."""

    def __init__(self):
        self.times = 0

    def __call__(self, ids):
        def compute():
            self.times += 1
            return torch.from_numpy(ids).float()[:, None].repeat(1, 8)

        return compute


def read(cache, made, records=RECORDS, kind="own"):
    for ids in records:
        assert torch.equal(cache.get(ids, kind, made(ids)), made(ids)())
        made.times -= 1


def test_each_is_computed_once(tmp_path):
    cache, made = StateCache(5 * EACH), Made()
    read(cache, made)
    read(cache, made)
    assert made.times == 5
    assert cache.nbytes == 5 * EACH
    read(cache, made, kind="bfloat16")
    assert made.times == 10


def test_those_used_least_recently_make_room():
    cache, made = StateCache(2 * EACH), Made()
    read(cache, made, [RECORDS[0], RECORDS[1], RECORDS[0], RECORDS[2], RECORDS[0]])
    assert made.times == 3
    read(cache, made, [RECORDS[1]])
    assert made.times == 4
    assert cache.nbytes == 2 * EACH


def shared(limit, place, own, records=RECORDS):
    """The cache of a run that shares a folder with others, all of which read these records."""
    cache = StateCache(limit, place)
    cache.spill([ids.tolist() for ids in records], own, common=True)
    return cache


def names(place):
    return sorted(file.name for file in place.glob("*"))


def test_runs_that_share_a_folder_compute_each_once(tmp_path):
    place = tmp_path / "private" / "states"
    made = Made()
    read(shared(EACH, place, tmp_path / "one"), made)
    assert made.times == 5
    read(shared(5 * EACH, place, tmp_path / "another"), made)
    assert made.times == 5
    assert place.stat().st_mode & 0o777 == place.parent.stat().st_mode & 0o777 == 0o700
    read(shared(5 * EACH, place, tmp_path / "another"), made, kind="of another model")
    assert made.times == 10
    assert not (tmp_path / "one").exists() and not (tmp_path / "another").exists()


def test_what_no_other_run_reads_is_not_shared(tmp_path):
    place, made = tmp_path / "private" / "states", Made()
    cache = shared(EACH, place, tmp_path / "own", RECORDS[:2])
    cache.spill([ids.tolist() for ids in RECORDS[2:4]], tmp_path / "own")  # as of what the site was sent
    read(cache, made)  # the last one is named nowhere, as a draft is
    assert len(names(place)) == 2 and len(names(tmp_path / "own" / "states")) == 2
    read(cache, made)
    assert made.times == 5 + 1


def test_states_that_were_made_before_it_was_known_who_reads_them_are_shared_too(tmp_path):
    place, made = tmp_path / "private" / "states", Made()
    early = StateCache(5 * EACH, place)
    read(early, made)
    early.spill([ids.tolist() for ids in RECORDS], tmp_path / "one", common=True)
    read(shared(5 * EACH, place, tmp_path / "another"), made)
    assert made.times == 5


def test_a_shared_folder_is_bounded_and_beyond_it_states_are_their_owners(tmp_path):
    place, made = tmp_path / "private" / "states", Made()
    records = [np.arange(n, n + 4) for n in range(40)]
    for run in ("one", "another"):
        cache = shared(3 * EACH, place, tmp_path / run, records)
        read(cache, made, records)
        within = sum(file.stat().st_size for file in place.iterdir())
        assert 2 * ON_DISK * EACH < within <= ON_DISK * 3 * EACH + 100 * len(names(place))  # each file has a header
        read(cache, made, records)  # and nothing is computed again
    count = len(names(place))
    assert count < 40 and made.times == 40 + 40 - count
    assert len(names(tmp_path / "one" / "states")) >= 40 - count - 3
    assert not {*names(place)} & {*names(tmp_path / "one" / "states")}


def test_what_has_an_owner_goes_to_the_owners_folder(tmp_path):
    cache, made = StateCache(EACH), Made()
    cache.spill([ids.tolist() for ids in RECORDS[:2]], tmp_path / "a")
    cache.spill([ids.tolist() for ids in RECORDS[2:4]], tmp_path / "b")
    read(cache, made)
    read(cache, made)
    assert made.times == 5 + 1  # the last one has no owner, and none has room
    for site in "ab":
        kept = tmp_path / site / "states"
        assert len(list(kept.iterdir())) == 2
        assert kept.stat().st_mode & 0o077 == kept.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [b"", b"torn"])
def test_a_damaged_file_is_computed_again(tmp_path, damage):
    cache, made = StateCache(EACH), Made()
    cache.spill(RECORDS, tmp_path)
    read(cache, made)
    for file in (tmp_path / "states").iterdir():
        file.write_bytes(damage)
    read(cache, made)
    assert made.times == 5 + 4


def test_a_disk_that_is_nearly_full_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2**30))
    cache, made = StateCache(EACH), Made()
    cache.spill(RECORDS, tmp_path)
    read(cache, made)
    read(cache, made)
    assert made.times == 10
    assert not list((tmp_path / "states").iterdir())


def test_without_room_nothing_is_kept(tmp_path):
    cache, made = StateCache(0), Made()
    cache.spill(RECORDS, tmp_path)
    read(cache, made)
    read(cache, made)
    assert made.times == 10
    assert not list(tmp_path.iterdir())
