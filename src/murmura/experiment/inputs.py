"""The files that a run reads: noted when it begins, so that it goes on with the same, and stands beside runs with the
same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from murmura import models
from murmura.data.folder import is_passed_over
from murmura.errors import CheckpointError, explaining
from murmura.experiment.config import Experiment
from murmura.experiment.resources import declared
from murmura.experiment.validate import method_of
from murmura.resources import full_name
from murmura.retrieval.pool import MANIFEST
from murmura.runs import files
from murmura.runs.folder import RunFolder
from murmura.runs.names import INPUTS
from murmura.runs.schema import SIMULATIONS, Input
from murmura.units import listing


def inputs(experiment: Experiment) -> list[Input]:
    """The files of each option that names some, or a model. What is not on this disk is left out, and not fetched."""
    return [
        Input(option, name, {path.relative_to(root).as_posix(): _digest(path) for path in own})
        for option, name, root, own in (*_data(experiment), *_models(experiment))
    ]


def inputs_of(folder: RunFolder) -> list[Input]:
    """Those that a run has noted.

    Raises:
        CheckpointError: it has noted none, or the note is damaged.
    """
    place = folder.path / INPUTS
    if not place.is_file():
        what = "which files the run has read is not noted here, so nobody knows whether these are they"
        fix = (
            "Take the folder where the run was made, not a copy of its published files. Versions before this one noted "
            "none: start another run, in another folder."
        )
        raise CheckpointError(what, where=str(place), fix=fix)
    return [files.made(row, Input, where) for where, row in files.lines(place) if "private" not in row]


def require_same_inputs(folder: RunFolder, experiment: Experiment) -> None:
    """Refuse files other than those that a run has read, under options that say what they said.

    Raises:
        CheckpointError: one has changed; or as ``inputs_of``.
    """
    now = {(one.option, one.name): one.files for one in inputs(experiment)}
    for one in inputs_of(folder):
        before, after = one.files, now.get((one.option, one.name), one.files)
        if changed := sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)):
            what = f"{one.option} = {one.name} is not what the run has read: {listing(changed)} changed since"
            fix = "Bring it back as it was, or start another run, in another folder."
            raise CheckpointError(what, where=str(folder.path), fix=fix)


def _data(experiment: Experiment) -> Iterator[tuple[str, str, Path, list[Path]]]:
    """Option, what it says, and a folder with files in it. A server whose sites are elsewhere does not read the records
    that the experiment was made with."""
    simulated = experiment.run.engine in SIMULATIONS
    for option, name in experiment.sources():
        place = Path(name).expanduser()
        if place.exists() and (simulated or option not in ("data.train", "data.heldout")):
            root = place if place.is_dir() else place.parent
            yield option, name, root, _within(option, place, experiment.data.sites.ignore)


def _within(option: str, place: Path, ignored: Sequence[str]) -> list[Path]:
    if not place.is_dir():
        return [place]
    if option == "augment.pool":  # it has digests of all else, and an index may be made in it later
        return [place / MANIFEST]
    passed = ignored if option == "data.train" else ()
    return [path for path in place.iterdir() if path.is_file() and not is_passed_over(path, passed)]


def _models(experiment: Experiment) -> Iterator[tuple[str, str, Path, list[Path]]]:
    """The same of the base and of all that the run declares besides."""
    names = {"model.name": experiment.model.name}
    if experiment.data.may_cluster:
        names["data.encoder"] = experiment.data.encoder
    names |= {full_name(option): one.name for option, one in declared(experiment, method_of(experiment)).items()}
    for option, name in names.items():
        if (folder := models.kept(name)) is not None:
            yield option, name, folder, models.read_of(folder)


def _digest(path: Path) -> str:
    with explaining("this cannot be read", path):
        about = path.stat()
        return _digest_as_of(path.resolve(), about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=1024)  # runs of a comparison read the same model
def _digest_as_of(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
