"""The files that a run reads: noted when it begins, so that it goes on with the same, and stands beside runs with the
same."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from murmura import models
from murmura.data.folder import is_passed_over
from murmura.errors import CheckpointError
from murmura.experiment.config import Experiment
from murmura.runs import files
from murmura.runs.folder import RunFolder
from murmura.runs.names import INPUTS
from murmura.units import listing


def inputs(experiment: Experiment) -> list[dict[str, Any]]:
    """Of each option that names a file, or a folder of files such as a model's: what it says, and SHA-256 of these
    files by their names, in hexadecimal. What is not on this disk is left out; nothing is fetched."""
    found = []
    for option, name in experiment.sources():
        if option == "data.encoder" and not experiment.data.may_cluster:  # it has nothing to do
            continue
        path = Path(name).expanduser()
        place = path if path.exists() else models.kept(name)
        if place is not None:
            found.append({"option": option, "name": name, "files": {one.name: _digest(one) for one in _files(place)}})
    return found


def require_same_inputs(folder: RunFolder, experiment: Experiment) -> None:
    """Refuse files other than those that a run has read, under options that say what they said.

    Raises:
        CheckpointError: one has changed, or the run has not noted what it read.
    """
    if not (folder.path / INPUTS).is_file():
        what = "which files the run has read is not noted here, so nobody knows whether these are they"
        fix = "Take the folder where the run was made, not a copy of its published files, or start another run."
        raise CheckpointError(what, where=str(folder.path / INPUTS), fix=fix)
    now = {(row["option"], row["name"]): row["files"] for row in inputs(experiment)}
    for _, row in files.lines(folder.path / INPUTS):
        if row.keys() != {"option", "name", "files"}:  # the first line says for whom the file is
            continue
        option, name, before = row.values()
        after = now.get((option, name), before)
        if changed := sorted(one for one in before.keys() | after.keys() if before.get(one) != after.get(one)):
            what = f"of {option} = {name} the run has read something else: {listing(changed)} changed since"
            fix = "Bring it back as it was, or start another run, in another folder."
            raise CheckpointError(what, where=str(folder.path), fix=fix)


def _files(place: Path) -> list[Path]:
    """A file, or those of a folder that are not merely about it."""
    if not place.is_dir():
        return [place]
    return [path for path in place.iterdir() if path.is_file() and not is_passed_over(path)]


def _digest(path: Path) -> str:
    about = path.stat()
    return _digest_as_of(path.resolve(), about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=1024)  # runs of a comparison read the same model
def _digest_as_of(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
