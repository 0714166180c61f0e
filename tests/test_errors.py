"""What a user is told."""

import errno
import socket
from pathlib import Path

import pytest

from murmura.errors import (
    BudgetError,
    CheckpointError,
    ConfigError,
    DataError,
    ModelError,
    MurmuraError,
    RefusedError,
    RunError,
    as_os_errors,
    explaining,
    may_pass,
    nearest,
    nearest_file,
    remedy,
)


def test_where_what_and_what_to_do():
    assert str(ConfigError("no such key", where="my.toml", fix="Remove it.")) == "my.toml: no such key. Remove it."
    assert str(ConfigError("no such key")) == "no such key"
    error = ConfigError("a", where="b", fix="c")
    assert (error.what, error.where, error.fix) == ("a", "b", "c")
    assert isinstance(error, MurmuraError)


def test_behind_a_list_what_to_do_has_a_line_of_its_own():
    assert str(ConfigError("two:\n  a\n  b", where="my.toml", fix="Go.")) == "my.toml: two:\n  a\n  b\nGo."


def test_the_nearest_file_by_what_stands_before_the_ending():
    files = ["bin.jsonl", "north.csv.gz", "north.jsonl", ".hidden"]
    assert nearest_file("nope.jsonl", files) is None and nearest_file("a.jsonl", ["b.jsonl"]) is None
    assert nearest_file("nroth.jsonl", files) == "Did you mean 'north.jsonl'?"
    assert nearest_file("north.csv", files) == "Did you mean 'north.csv.gz'?"
    assert nearest_file("x", []) is None


def test_the_nearest_name_or_all_of_them():
    assert nearest("fedvag", ["fedprox", "fedavg"]) == "Did you mean 'fedavg'?"
    assert nearest("xyz", ["fedprox", "fedavg"]) == "Valid: fedavg, fedprox."
    assert nearest("FedAvg", ["fedprox", "fedavg"]) == "Did you mean 'fedavg'?"


def test_a_name_from_elsewhere_is_proposed_if_it_is_closer():
    elsewhere = {"'method.rounds'": "rounds", "'data.records'": "records"}
    assert nearest("rounds", ["run", "data"], elsewhere) == "Did you mean 'method.rounds'?"
    assert nearest("rouns", ["run", "data"], elsewhere) == "Did you mean 'method.rounds'?"
    assert nearest("rnu", ["run", "data"], elsewhere) == "Did you mean 'run'?"
    assert nearest("round", ["rounds"], elsewhere) == "Did you mean 'rounds'?"  # as close as what is valid here
    assert nearest("r", ["run", "data"], elsewhere).startswith("Did you mean 'run'") is False
    twice = {"'a.rounds'": "rounds", "'b.rounds'": "rounds"}
    assert nearest("rounds", [], twice) == "Did you mean 'a.rounds' or 'b.rounds'?"


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOSPC, "Free some space"),
        (errno.EROFS, "Fix the permissions"),
        (errno.EMFILE, "Raise the limit of open files"),
        (errno.ENOENT, "See that the folder is there"),
        (errno.EADDRINUSE, "Stop the other program that has this port"),
        (errno.EIO, "Look at the system's message"),
    ],
)
def test_what_to_do_follows_from_why_the_system_refuses(number, told):
    assert remedy(OSError(number, "...")).startswith(told)


def test_a_local_socket_whose_path_is_too_long_wants_another_folder_for_temporary_files(tmp_path):
    with pytest.raises(OSError) as told, socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / ("x" * 200)))
    assert remedy(told.value) == "Set TMPDIR to a shorter path"


def _cause(number):
    try:
        with explaining("it cannot be kept", "a"):
            raise OSError(number, "...")
    except CheckpointError as error:
        return error


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (RunError("too few sites", passing=True), True),
        (RunError("the held-out loss is not a finite number"), False),
        (CheckpointError("the disk is too full", passing=True), True),
        (_cause(errno.ENOSPC), True),
        (OSError(errno.ENOSPC, "..."), True),
        (_cause(errno.EACCES), False),
        (OSError(errno.ENOENT, "..."), False),
        (CheckpointError("this folder already holds a run"), False),
        (RefusedError("another verb"), False),
        (BudgetError("spent"), False),
        (ConfigError("no such key"), False),
    ],
)
def test_another_start_may_mend_a_full_disk_and_no_mistake(error, passes):
    assert may_pass(error) == passes


@pytest.mark.parametrize("hidden", [False, True])
def test_an_error_passes_as_what_it_comes_of_does_in_whatever_words(hidden):
    for first, passes in (
        (OSError(errno.ENOSPC, "..."), True),
        (RunError("away", passing=True), True),
        (OSError(errno.EACCES, "..."), False),
    ):
        with pytest.raises(DataError) as told:
            try:
                try:
                    raise first
                except (OSError, RunError) as error:
                    raise CheckpointError("it cannot be read") from (None if hidden else error)
            except CheckpointError as error:
                raise DataError("there is nothing") from (None if hidden else error)
        assert may_pass(told.value) == passes


def test_what_the_system_refuses_to_a_library_in_rust_is_an_error_of_the_system():
    with pytest.raises(OSError, match="No space left") as told, as_os_errors():
        raise Exception("Error while serializing: I/O error: No space left on device (os error 28)")
    assert told.value.errno == errno.ENOSPC and may_pass(told.value)
    for other in (Exception("no token"), ModelError("it cannot be loaded: No such file (os error 2)")):
        with pytest.raises(type(other)) as kept, as_os_errors():
            raise other
        assert kept.value is other


def test_what_the_system_refuses_is_told_with_the_place_and_what_to_do():
    with pytest.raises(CheckpointError) as told, explaining("it cannot be kept", Path("a"), "or give another --out"):
        raise OSError(errno.ENOSPC, "No space left")
    assert str(told.value) == "a: it cannot be kept (No space left). Free some space, or give another --out."
    with pytest.raises(ConfigError) as told, explaining("it cannot be read", None, kind=ConfigError):
        raise OSError("no device")
    assert str(told.value) == "it cannot be read (no device). Look at the system's message."
    with pytest.raises(CheckpointError, match=r"\(torn\)"), explaining("it cannot be read", "a", "", ValueError):
        raise ValueError("torn")
    with pytest.raises(ValueError), explaining("it cannot be read", "a"):
        raise ValueError("another")
