"""Identity keys and the roster: kept, read again, and refused where they are not what they should be."""

import json
import stat

import pytest

from murmura.errors import CheckpointError
from murmura.federation.site.identity import identity, public, read_roster, write_roster
from murmura.runs.names import ROSTER, SITE_IDENTITY


def test_a_site_keeps_its_key_to_itself(tmp_path):
    folder = tmp_path / "a"
    key = public(identity(folder))
    assert public(identity(folder)) == key != public(identity(tmp_path / "b"))
    path = folder / SITE_IDENTITY
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY")


def test_the_roster_has_all_sites_and_nothing_secret(tmp_path):
    path, folders = tmp_path / ROSTER, {"a": tmp_path / "a", "b/c": tmp_path / "b"}
    write_roster(path, folders)
    roster = read_roster(path)
    assert roster == {name: public(identity(folder)) for name, folder in folders.items()}
    assert list(json.loads(path.read_text())) == ["a", "b/c"]
    write_roster(path, folders)
    assert read_roster(path) == roster


@pytest.mark.parametrize("text", ["", "[]", '{"a": "xy"}', '{"a": "00"}', "[" * 3000 + "]" * 3000], ids=len)
def test_what_is_no_roster_is_refused(tmp_path, text):
    path = tmp_path / ROSTER
    path.write_text(text)
    with pytest.raises(CheckpointError) as error:
        read_roster(path)
    assert error.value.where == str(path)


def test_a_roster_that_is_missing_is_told(tmp_path):
    with pytest.raises(CheckpointError, match=r"No such file.*Get it from the owners of the sites"):
        read_roster(tmp_path / ROSTER)


def test_what_is_no_key_is_refused(tmp_path):
    (tmp_path / SITE_IDENTITY).write_text("not a key")
    with pytest.raises(CheckpointError, match="not an Ed25519 private key"):
        identity(tmp_path)


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be used .*\."):
        identity(tmp_path / "file")
    with pytest.raises(CheckpointError, match="the roster of sites cannot be written"):
        write_roster(tmp_path / "nowhere" / ROSTER, {})
