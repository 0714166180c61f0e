"""Reading the files of a run folder, with an error that names file, line and remedy."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from murmura.errors import CheckpointError

REPAIR = "Restore the file, or run the experiment again into a new folder."


def require_run(folder: Path) -> None:
    """Refuse what is not a run folder, with a hint to the runs that lie inside it."""
    if not folder.is_dir():
        raise CheckpointError(
            "there is no such run folder", where=str(folder), fix="Give a folder that `murmura run` wrote."
        )
    if (folder / "metrics.jsonl").is_file():
        return
    if (folder / "summary.json").is_file():
        raise CheckpointError("metrics.jsonl is missing from the run", where=str(folder), fix=REPAIR)
    if (folder / "config.toml").is_file():
        raise CheckpointError(
            "the run has not recorded a round yet", where=str(folder), fix="Wait for it, or `murmura run ... --resume`."
        )
    inside = sorted(path.parent.name for path in folder.glob("*/metrics.jsonl"))
    hint = f"Runs inside it: {', '.join(inside[:5])}{', ...' if len(inside) > 5 else ''}." if inside else ""
    raise CheckpointError(
        "this is not a run folder (no metrics.jsonl, no summary.json)",
        where=str(folder),
        fix=hint or "Give a folder that `murmura run` wrote.",
    )


def text(path: Path) -> str | None:
    """The file's text, or None where there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"cannot be read ({error})", where=str(path), fix=REPAIR) from None


def mapping(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None where there is no such file."""
    value = _json(path)
    if value is not None and not isinstance(value, dict):
        raise CheckpointError("not a JSON object", where=str(path), fix=REPAIR)
    return value


def rows(path: Path, key: str, numbers: tuple[str, ...]) -> tuple[Mapping[str, Any], ...] | None:
    """A JSON list of objects that all have ``key`` and whose ``numbers`` are figures, null or absent."""
    value = _json(path)
    if value is None:
        return None
    if not isinstance(value, list):
        raise CheckpointError("not a JSON list", where=str(path), fix=REPAIR)
    for position, row in enumerate(value, start=1):
        where = f"{path}, entry {position}"
        if not isinstance(row, dict) or row.get(key) is None:
            raise CheckpointError(f"an object with '{key}' is expected", where=where, fix=REPAIR)
        figures({number: row.get(number) for number in numbers}, where)
    return tuple(value)


def lines(path: Path, torn: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON-lines file with their places.

    Args:
        torn: Whether the last line may be half written, as a killed run leaves it; it is then left out.
    """
    content = (text(path) or "").splitlines()
    for number, line in enumerate(content, start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if torn and number == len(content):
                return
            raise CheckpointError(f"not valid JSON ({error.msg})", where=where, fix=REPAIR) from None
        if not isinstance(row, dict):
            raise CheckpointError("not a JSON object", where=where, fix=REPAIR)
        yield where, row


def figures(row: Any, where: str, skip: tuple[str, ...] = ()) -> dict[str, float]:
    """The measured figures of an object: null and not-a-number count as not measured and are left out.

    Raises:
        CheckpointError: ``row`` is no object, or a value is neither a figure nor null.
    """
    if not isinstance(row, Mapping):
        raise CheckpointError("an object of figures is expected", where=where, fix=REPAIR)
    found: dict[str, float] = {}
    for key, value in row.items():
        if key in skip or value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CheckpointError(f"'{key}' is not a number: {str(value)[:40]!r}", where=where, fix=REPAIR)
        if math.isfinite(value):
            found[key] = value
    return found


def _json(path: Path) -> Any:
    content = text(path)
    if content is None:
        return None
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        raise CheckpointError(
            f"not valid JSON ({error.msg})", where=f"{path}, line {error.lineno}", fix=REPAIR
        ) from None
