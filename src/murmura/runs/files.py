"""Reading the files of a run folder, with an error that names file, line and remedy."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from murmura.errors import CheckpointError
from murmura.runs import jsontext

T = TypeVar("T")
_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}
REPAIR = "Restore the file, or run the experiment again into a new folder."


def text(path: Path) -> str | None:
    """The file's text, or None where there is no such file.

    Raises:
        CheckpointError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"cannot be read ({error})", where=str(path), fix=REPAIR) from None


def state(path: Path) -> dict[str, Any]:
    """What a process keeps writing, a JSON object; nothing where it is not there, or a failure of power has torn it."""
    try:
        found = jsontext.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def toml(content: str, path: Path) -> dict[str, Any]:
    """The tables of a file that was read.

    Raises:
        CheckpointError: it is no TOML.
    """
    try:
        return tomllib.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"not valid TOML ({error})", where=str(path), fix=REPAIR) from None


def value(path: Path, of: type[T]) -> T | None:
    """A dataclass of ``runs.schema`` from a JSON object, or None where there is no such file.

    Raises:
        CheckpointError: the file is something else.
    """
    content = text(path)
    if content is None:
        return None
    return made(_parsed(content, str(path)), of, str(path))


def rows(path: Path, of: type[T]) -> tuple[T, ...] | None:
    """Dataclasses of ``runs.schema`` from a JSON list, or None where there is no such file.

    Raises:
        CheckpointError: the file is something else.
    """
    content = text(path)
    if content is None:
        return None
    found = _parsed(content, str(path))
    if not isinstance(found, list):
        raise CheckpointError("not a JSON list", where=str(path), fix=REPAIR)
    return tuple(made(row, of, f"{path}, entry {number}") for number, row in enumerate(found, start=1))


def lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON-lines file with their places; none where there is no such file.

    Raises:
        CheckpointError: a line is something else.
    """
    content = (text(path) or "").split("\n")  # str.splitlines would also break at U+0085, which texts may hold
    for number, line in enumerate(content, start=1):
        if not line.strip():
            continue
        row, where = _parsed(line, str(path), number), f"{path}, line {number}"
        if not isinstance(row, dict):
            raise CheckpointError("not a JSON object", where=where, fix=REPAIR)
        yield where, row


def made(found: Any, of: type[T], where: str) -> T:
    """A dataclass of ``runs.schema`` from an object that was read.

    Raises:
        CheckpointError: it is something else; the key is named.
    """
    if not isinstance(found, dict):
        raise CheckpointError("not a JSON object", where=where, fix=REPAIR)
    if of not in _ADAPTERS:  # made once for each of a few kinds: that takes longer than to read a file
        _ADAPTERS[of] = TypeAdapter(of)
    adapter: TypeAdapter[T] = _ADAPTERS[of]
    try:
        return adapter.validate_python(found)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        what = f"'{name}' is missing" if first["type"] == "missing" else f"'{name}': {first['msg']}"
        raise CheckpointError(what, where=where, fix=REPAIR) from None


def _parsed(content: str, file: str, line: int = 1) -> Any:
    """JSON that begins in this line of a file."""
    try:
        return jsontext.loads(content)
    except json.JSONDecodeError as error:
        where, what = f"{file}, line {line + error.lineno - 1}", error.msg
    except (ValueError, RecursionError) as error:
        where, what = file if line == 1 else f"{file}, line {line}", str(error)
    raise CheckpointError(f"not valid JSON ({what})", where=where, fix=REPAIR)
