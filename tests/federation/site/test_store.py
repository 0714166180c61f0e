"""What a site keeps: generations that can be gone back to, and a journal that cannot."""

import os
import stat
import subprocess
import sys

import pytest
import torch

from murmura.errors import CheckpointError, PrivacyError, RunError
from murmura.federation.site.store import SiteStore
from murmura.runs.names import SITE_NOTES


def again(store):
    """The same folder, as another process finds it."""
    return SiteStore(store.folder, store.site)


def files(store):
    """Names of the generations that are there."""
    return sorted(path.name for path in store.folder.glob("*.safetensors"))


def damage(path, harm):
    """Turn over the last bit of a file, or remove it."""
    if harm == "remove":
        return path.unlink()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.fixture
def store(tmp_path):
    return SiteStore(tmp_path / "a", "a")


def test_a_site_that_keeps_nothing_leaves_no_folder(store):
    store.commit(1, {})
    assert not store.folder.exists()
    assert again(store).rewind(1) == {}


def test_it_goes_back_one_generation(store):
    for round in (1, 2, 3):
        store.commit(round, {"w": {"x": torch.tensor([float(round)])}, "n": round})
    assert sorted(path.name for path in store.folder.glob("*.safetensors")) == [
        "round-0002.safetensors",
        "round-0003.safetensors",
    ]
    found = again(store).rewind(2)
    assert found["n"] == 2 and found["w"]["x"].tolist() == [2.0]


def test_what_has_not_changed_is_written_twice_and_is_found_under_later_rounds(store):
    store.commit(1, {"n": 1})
    for round in range(2, 6):
        (again(store) if round == 4 else store).commit(round, {"n": 1})
    assert files(store) == ["round-0001.safetensors", "round-0002.safetensors"]
    store.commit(6, {"n": 6})
    assert again(store).rewind(5) == {"n": 1}
    store.commit(7, {"n": 6})
    assert files(store) == ["round-0006.safetensors", "round-0007.safetensors"]


@pytest.mark.parametrize("harm", ["flip", "remove"])
@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("round", [3, 5])
def test_no_single_damaged_file_costs_what_stands_for_several_rounds(store, capsys, harm, number, round):
    store.commit(1, {"n": 1})
    for later in range(2, 6):
        store.commit(later, {"n": 2})
    path = store.folder / f"round-000{number}.safetensors"
    damage(path, harm)
    other = again(store)
    assert other.rewind(round) == {"n": 2}
    told = capsys.readouterr().err
    assert ("cannot be read" in told) == (number == 3) and (path.name in told) == (number == 3)
    if number == 3:
        other.commit(round + 1, {"n": 2})  # there are two again
        damage(store.folder / "round-0002.safetensors", "remove")
        assert again(store).rewind(round + 1) == {"n": 2}


def test_what_is_given_up_can_stand_in_for_what_is_damaged(store):
    store.commit(1, {"n": 1})
    store.commit(2, {"n": 1})
    damage(store.folder / "round-0001.safetensors", "flip")
    for _ in range(2):  # a second time too, where nothing came of the first
        assert again(store).rewind(1) == {"n": 1}


def test_what_was_damaged_twice_is_told(store):
    for round in (1, 2):
        store.commit(round, {"n": 1})
        damage(store.folder / f"round-000{round}.safetensors", "remove")
    for round in (2, 1):
        with pytest.raises(CheckpointError, match=f"what site a kept after round {round} cannot be read"):
            again(store).rewind(round)
    assert again(store).rewind(0) == {}


def test_a_generation_that_is_gone_for_good_is_not_taken_for_an_empty_one(store):
    for round in (1, 2, 3):
        store.commit(round, {"n": round})
    for one in (store, again(store)):
        with pytest.raises(CheckpointError, match="after round 1 cannot be read"):
            one.rewind(1)


def test_a_round_that_is_repeated_takes_the_place_of_what_was_given_up(store):
    store.commit(1, {"n": 1})
    store.commit(2, {"n": 2})
    other = again(store)
    assert other.rewind(1) == {"n": 1}
    other.commit(2, {"n": 22})
    assert again(store).rewind(2) == {"n": 22}


def test_a_round_is_given_up_only_when_another_is_kept(store):
    store.commit(1, {"n": 1})
    store.commit(2, {"n": 2})
    for _ in range(2):  # a run that went back and came to nothing
        assert again(store).rewind(1) == {"n": 1}
    other = again(store)
    assert other.rewind(2) == {"n": 2}
    assert other.rewind(1) == {"n": 1}
    other.commit(2, {"n": 1})  # which is what there was
    assert again(store).rewind(2) == {"n": 1}


def test_what_may_not_be_read_is_not_taken_for_damaged(store, monkeypatch):
    for round in (1, 2):
        store.commit(round, {"n": round})
    other = again(store)

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.read_bytes", refuse)
        with pytest.raises(RunError, match=r"site a kept cannot be read \(Permission denied\)") as error:
            other.rewind(2)
    assert not isinstance(error.value, CheckpointError)  # for which a run would give up its last round
    assert other.rewind(2) == {"n": 2}


def test_a_store_can_become_empty(store):
    store.commit(1, {"n": 1})
    store.commit(2, {})
    assert again(store).rewind(2) == {}
    assert again(store).rewind(1) == {"n": 1}


def test_what_was_spent_stays_spent(store):
    store.ledger.append({"steps": 1})
    store.commit(1, {"n": 1})
    store.ledger.append({"steps": 2})
    other = again(store)
    other.rewind(1)
    other.rewind(0)
    other.ledger.append({"steps": 3})
    assert [line["steps"] for line in again(store).ledger.lines] == [1, 2, 3]


@pytest.mark.parametrize("name", ["privacy.journal", "centres.journal"])
def test_a_ledger_that_has_lost_lines_stops_the_site(store, name):
    ledger = {"privacy.journal": store.ledger, "centres.journal": store.centres}[name]
    ledger.append({"steps": 1})
    ledger.append({"steps": 2})
    store.commit(1, {})
    path = store.folder / name
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]))
    with pytest.raises(PrivacyError, match="1 lines, and had 2"):
        again(store)


def test_a_damaged_journal_stops_the_site(store):
    store.commit(1, {"n": 1})
    store.commit(2, {"n": 2})
    journal = store.folder / "store.journal"
    journal.write_bytes(journal.read_bytes().replace(b'"written": 1', b'"written": 7'))
    with pytest.raises(PrivacyError, match="journal of site a is damaged") as error:
        again(store)
    assert error.value.where.endswith(":1")


def test_what_the_owner_is_told_is_one_line(store):
    """A server may have had a hand in its words."""
    store.tell("'a\nRound 3: all is well\x1b[2J\udc80' is refused")
    store.tell("ε")
    _, first, second = (store.folder / SITE_NOTES).read_text(encoding="utf-8").splitlines()
    assert first == r"'a\nRound 3: all is well\x1b[2J\udc80' is refused" and second == "ε"


def test_a_site_knows_its_records_again(store):
    assert store.is_about("digest")
    assert not store.folder.exists()  # a run that comes to nothing leaves nothing
    store.commit(0, {})
    assert again(store).is_about("digest") and not again(store).is_about("another")


@pytest.mark.parametrize("harm", ["flip", "remove"])
def test_a_damaged_or_missing_generation_is_told_with_its_site(store, harm):
    store.commit(1, {"w": torch.zeros(8)})
    damage(store.folder / "round-0001.safetensors", harm)
    with pytest.raises(CheckpointError, match="what site a kept after round 1 cannot be read"):
        again(store).rewind(1)


def test_nobody_else_may_look(tmp_path):
    """At whatever is there, also while it is written, and also in a folder that was there with other rights."""
    (tmp_path / "a").mkdir(mode=0o755)
    held = SiteStore.held(tmp_path / "a", "a")
    seen = set()

    def look():
        assert stat.S_IMODE(held.folder.stat().st_mode) == 0o700
        seen.update((path.name.split("-")[0], stat.S_IMODE(path.stat().st_mode)) for path in held.folder.iterdir())

    with pytest.MonkeyPatch.context() as patch:
        sync = os.fsync
        patch.setattr("os.fsync", lambda descriptor: look() or sync(descriptor))
        assert held.is_about("digest")
        held.commit(1, {"n": 1})
        held.ledger.append({"steps": 1})
    look()
    held.release()
    assert {mode for _, mode in seen} == {0o600}
    assert {name for name, _ in seen} == {".lock", "store.journal", "privacy.journal", "round", ".round"}


# ---- one process at a time -------------------------------------------------------------------------------------------

HOLDING = """
import sys
from pathlib import Path
from murmura.federation.site.store import SiteStore
store = SiteStore.held(Path(sys.argv[1]), "a")
print("held", flush=True)
sys.stdin.read()
"""


def test_two_processes_never_work_on_what_a_site_keeps(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("murmura.runs.locks._PATIENCE", 0.1)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(tmp_path / "a")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError, match="another process is working with what site a keeps") as error:
            SiteStore.held(tmp_path / "a", "a")
        assert "a worker of a run that was killed" in error.value.fix
        assert "waiting 0.1 seconds for it to end" in capsys.readouterr().err
        SiteStore.held(tmp_path / "b", "b").release()
        monkeypatch.setattr("murmura.runs.locks._PATIENCE", 60)
        other.kill()  # as a server that is killed has its workers end: the wait is no longer than they take
        SiteStore.held(tmp_path / "a", "a").release()


def test_nothing_is_left_where_nothing_was_kept(tmp_path):
    held = SiteStore.held(tmp_path / "a", "a")
    held.release()
    assert not held.folder.exists()
    held = SiteStore.held(tmp_path / "a", "a")
    held.commit(1, {"n": 1})
    held.release()
    held.release()  # as often as one likes
    assert SiteStore.held(tmp_path / "a", "a").rewind(1) == {"n": 1}


def test_a_damaged_journal_does_not_stay_locked(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "store.journal").write_text("no line of a journal\n")
    for _ in range(2):
        with pytest.raises(PrivacyError, match="journal of site a is damaged"):
            SiteStore.held(tmp_path / "a", "a")
