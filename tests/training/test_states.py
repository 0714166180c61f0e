"""Hidden states are kept within a bound, in memory and on disk."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from murmura.training.states import StateCache

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


def test_runs_that_share_a_folder_compute_each_once(tmp_path):
    place = tmp_path / "private" / "states"
    made = Made()
    read(StateCache(EACH, place), made)
    assert made.times == 5
    read(StateCache(5 * EACH, place), made)
    assert made.times == 5
    assert place.stat().st_mode & 0o777 == place.parent.stat().st_mode & 0o777 == 0o700
    read(StateCache(5 * EACH, place), made, kind="of another model")
    assert made.times == 10


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
