"""What Flower calls an app: a bundle without code, whose parts are in the installed package."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

from murmura.errors import RunError
from murmura.federation.engines.flower import environment

PROJECT = "pyproject.toml"
_SECONDS = 60


def project(folder: Path) -> Path:
    """Write the app as Flower's commands take it: a folder with one file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PROJECT).write_bytes(files(__package__).joinpath("app.toml").read_bytes())
    return folder


def command(arguments: list[str], home: Path) -> str:
    """What one of Flower's commands prints.

    Raises:
        RunError: it is not installed, or fails.
    """
    try:
        done = subprocess.run(
            arguments, env=environment(home), cwd=home, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except FileNotFoundError:
        raise RunError("Flower is not installed", fix="pip install 'murmura[flower]'") from None
    except subprocess.TimeoutExpired:
        what = f"'{' '.join(arguments[:2])}' has not ended within {_SECONDS} seconds"
        raise RunError(what, fix="The machine may have been too busy: start again.", passing=True) from None
    if done.returncode:
        raise _failure(arguments, done.stderr or done.stdout)
    return done.stdout


def answered(arguments: list[str], home: Path, field: str) -> Any:
    """A field of what Flower's server answers one of the commands, which end with 0 though it refuses.

    Raises:
        RunError: as of ``command``; or the server has not done it, which may pass: what it is asked is no user's.
    """
    printed = command([*arguments, "--format", "json"], home)
    try:
        told = json.loads(printed[printed.index("{") :])
        if told["success"]:
            return told[field]
        said = " ".join(str(told["error-message"]).split()).rstrip(".")
    except (ValueError, KeyError, TypeError, RecursionError):
        said = printed
    raise _failure(arguments, said, passing=True)


def _failure(arguments: list[str], said: str, *, passing: bool = False) -> RunError:
    return RunError(f"'{' '.join(arguments[:2])}' failed: {said.strip()[-400:]}", passing=passing)


def expected(home: Path) -> bytes:
    """The body of an answer of the Fleet API with this app in it, to the byte: Flower's bundle of it, which is the same
    wherever the same version makes it, in protobuf's encoding.

    Raises:
        RunError: Flower cannot make it.
    """
    shutil.rmtree(home / "bundle", ignore_errors=True)
    folder = project(home / "bundle")
    command(["flwr", "build", "--app", str(folder)], folder)
    [made] = folder.glob("*.fab")
    content = made.read_bytes()
    known = hashlib.sha256(content).hexdigest().encode()
    return _field(1, _field(1, known) + _field(2, content))


def _field(number: int, value: bytes) -> bytes:
    """A field of bytes in protobuf's wire format."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
