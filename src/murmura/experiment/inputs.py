"""The files that a run reads: noted when it begins, so that it goes on with the same, and stands beside runs with the
same. Of a federation its models are noted when it is made, so that sites and server have the same.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from murmura import models
from murmura.data.folder import is_passed_over
from murmura.errors import CheckpointError, ModelError, explaining
from murmura.experiment.config import Experiment
from murmura.experiment.resources import declared
from murmura.experiment.validate import method_of
from murmura.progress import say
from murmura.resources import Side, full_name
from murmura.retrieval.pool import MANIFEST
from murmura.runs import files
from murmura.runs.folder import RunFolder
from murmura.runs.names import INPUTS, MODEL_DIGESTS
from murmura.runs.schema import DEPLOYED, Input
from murmura.units import listing

_BASE = "model.name"


def inputs(experiment: Experiment) -> list[Input]:
    """The files of each option that names some, or a model. What is not on this disk is left out, and not fetched."""
    return _noted((*_data(experiment), *_models(experiment)))


def models_at_sites(experiment: Experiment) -> list[Input]:
    """The files of the base and of what else sites use. What is not on this machine is left out, and not fetched."""
    return _noted(_models(experiment, ("site",)))


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
    _require_same(folder, inputs(experiment))


def require_same_base(folder: RunFolder, experiment: Experiment) -> None:
    """Refuse a base other than that beside which a run has trained its adapters, once it is on this machine. In a copy
    of a run's published files none is noted, and none compared.

    Raises:
        CheckpointError: it has changed, or the note is damaged.
    """
    if (folder.path / INPUTS).is_file():
        _require_same(folder, _noted(found for found in _models(experiment) if found[0] == _BASE))


def _require_same(folder: RunFolder, now: Iterable[Input]) -> None:
    """Refuse those of these files that are not what a run has noted of them."""
    known = {(one.option, one.name): one.files for one in now}
    for one in inputs_of(folder):
        if changed := _changed(one.files, known.get((one.option, one.name), one.files)):
            what = f"{one.option} = {one.name} is not what the run has read: {listing(changed)} changed since"
            fix = "Bring it back as it was, or start another run, in another folder."
            raise CheckpointError(what, where=str(folder.path), fix=fix)


def require_same_models(federation: Path, experiment: Experiment, side: Side, *, fetch: bool = False) -> None:
    """Refuse models other than those that a federation was made with, whatever they are called here. One that its maker
    had not at hand, or that is not on this machine, is not compared.

    Args:
        federation: the folder of what its members hand round.
        side: of the run, whose models these are.
        fetch: whether a base that is not on this machine is fetched first, as it would be when it is used.

    Raises:
        ModelError: one is another, or cannot be fetched.
        CheckpointError: what is noted of them is damaged.
    """
    noted = _noted_of(federation)
    if fetch and _BASE in noted:
        models.resolve(experiment.model.name)
    for one in _noted(found for found in _models(experiment, (side,)) if found[0] in noted):
        if changed := _changed(noted[one.option], one.files):
            what = f"this is not the model that the federation was made with; what differs: {listing(changed)}"
            fix = (
                "Copy the model's folder from whoever made the federation in place of this one, or have the federation "
                "made anew with this model."
            )
            raise ModelError(what, where=f"{one.option} = {one.name} (in {models.kept(one.name)})", fix=fix)


def tell_unnoted_models(federation: Path, experiment: Experiment) -> None:
    """Say which models that sites use are not compared with those of other members, since nothing is noted of them.

    Raises:
        CheckpointError: what is noted of them is damaged.
    """
    noted = _noted_of(federation)
    if names := [f"{option} = {name}" for option, name, *_ in _models(experiment, ("site",)) if option not in noted]:
        say(
            f"nobody has compared {listing(names)} with what other members have: nothing is noted of that in "
            f"{federation / MODEL_DIGESTS}. Under the same name theirs may be another: get that file if it is missing, "
            "or have the federation made anew on a machine that has the model"
        )


def _noted_of(federation: Path) -> dict[str, Mapping[str, str]]:
    """The files of each model that a federation's maker had at hand, by its option."""
    try:
        return {one.option: one.files for one in files.rows(federation / MODEL_DIGESTS, Input) or ()}
    except CheckpointError as error:
        error.fix = "Get it from whoever made the federation."
        raise


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The names of files that are not the same, or not there, in one of two folders."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _noted(found: Iterable[tuple[str, str, Path, list[Path]]]) -> list[Input]:
    return [
        Input(option, name, {path.relative_to(root).as_posix(): _digest(path) for path in own})
        for option, name, root, own in found
    ]


def _data(experiment: Experiment) -> Iterator[tuple[str, str, Path, list[Path]]]:
    """Option, what it says, and a folder with files in it. A server whose sites are elsewhere does not read the records
    that the experiment was made with."""
    simulated = experiment.run.engine != DEPLOYED
    for option, name in experiment.sources():
        place = Path(os.path.expanduser(name))
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


def _models(
    experiment: Experiment, sides: Sequence[Side] = ("site", "server")
) -> Iterator[tuple[str, str, Path, list[Path]]]:
    """The same of the base and of all that the run declares besides for these sides of it."""
    names = {_BASE: experiment.model.name}
    if experiment.data.may_cluster and "server" in sides:  # whoever shares records out
        names["data.encoder"] = experiment.data.encoder
    for option, one in declared(experiment, method_of(experiment)).items():
        if any(one.needed_by(side) for side in sides):
            names[full_name(option)] = one.name
    for option, name in names.items():
        if (folder := models.kept(name)) is not None:
            yield option, name, folder, models.read_of(folder)


def _digest(path: Path) -> str:
    with explaining("this cannot be read", path):
        about = path.stat()
        # A copy may have the time of what it is a copy of.
        return _digest_as_of(path.resolve(), about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)


@lru_cache(maxsize=1024)  # runs of a comparison read the same model
def _digest_as_of(path: Path, *_: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
