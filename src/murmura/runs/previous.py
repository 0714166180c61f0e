"""Starting over in a run folder: the run that it holds becomes the previous run, in the folder NAME.previous."""

from __future__ import annotations

import os
import shutil
from os.path import realpath
from pathlib import Path

from murmura import atomic
from murmura.errors import CheckpointError, explaining
from murmura.runs.locks import LOCK, acquire_run, alone
from murmura.runs.names import CHECKPOINTS, CONFIG, ENVIRONMENT, METRICS, PRIVATE, WRITTEN


def previous_of(folder: Path) -> Path:
    """Where the previous run of a run folder is kept: beside it."""
    named = folder if folder.name not in ("", "..") and not folder.is_symlink() else Path(realpath(folder))
    return named.with_name(f"{named.name}.previous")


def is_run(folder: Path) -> bool:
    """Whether a run was begun here: an experiment lies beside what a run keeps. Other programs' folders may have a
    ``config.toml`` and a ``checkpoint``, too; where the experiment is damaged, a run's lock tells."""
    begun = (folder / CONFIG).exists() and any((folder / name).exists() for name in (CHECKPOINTS, ENVIRONMENT))
    return begun and (_is_experiment(folder / CONFIG) or (folder / LOCK).exists())


def _is_experiment(config: Path) -> bool:
    return {"[run]", "[method]"} <= set(config.read_text(encoding="utf-8", errors="replace").splitlines())


def has_saved(folder: Path) -> bool:
    """Whether a run has saved a round here; a finished one may keep no checkpoint."""
    return (folder / METRICS).exists() or any((folder / CHECKPOINTS).glob("round-*"))


def make_way(folder: Path) -> Path | None:
    """Let a new run begin in a folder that holds one: rename the folder to ``previous_of(folder)``, in place of a run
    that is there. A run that has saved no round is removed instead, so that it does not displace one that has.

    Nothing is moved or removed while a worker of a killed server still writes. If this process is killed, each run is
    whole under one of the two names, or hidden beside them under a draft's name that the next call clears up.

    Returns:
        Where the run is now; None where it was removed.

    Raises:
        CheckpointError: a worker still writes, or something stands in the way; nothing was moved.
    """
    here, previous = folder.resolve(), previous_of(folder.resolve())
    what, fix = f"the run cannot be renamed to {previous.name}", "or choose another run.folder"
    with explaining(what, folder, fix), alone(here / PRIVATE):
        if not has_saved(here):
            remove(here, WRITTEN[::-1])  # what makes it a run goes last
            return None
        _require_elsewhere(here)
        atomic.clear_drafts(previous)
        if not os.path.lexists(previous):
            here.rename(previous)
        else:
            _replace(previous, here)
        atomic.sync(here.parent)
    return previous_of(folder)


def _require_elsewhere(folder: Path) -> None:
    if Path.cwd().is_relative_to(folder):
        what, fix = "the current directory is in it, so it cannot be renamed", "Start the run from another directory."
        raise CheckpointError(what, where=str(folder), fix=fix)


def _replace(previous: Path, folder: Path) -> None:
    """Put a run folder in place of the previous run, which is removed; of nothing else."""
    _require_run_alone(previous)
    with acquire_run(previous), alone(previous / PRIVATE):
        draft = atomic.replaced(previous)
        previous.rename(draft)
        try:
            folder.rename(previous)
        except OSError:
            draft.rename(previous)
            raise
        shutil.rmtree(draft, ignore_errors=True)


def _require_run_alone(previous: Path) -> None:
    what = "is no run"
    if is_run(previous) and not previous.is_symlink():
        ours = {*WRITTEN, LOCK, *(draft.name for draft in previous.glob(atomic.LEFT_BEHIND))}
        others = sorted(item.name for item in previous.iterdir() if item.name not in ours)
        if not others:
            return
        what = f"holds {others[0]}, which no run wrote"
    what = f"--overwrite renames the run to this folder, which {what}"
    raise CheckpointError(what, where=str(previous), fix="Move it away, or choose another run.folder.")


def remove(folder: Path, names: tuple[str, ...]) -> None:
    """Remove these files and folders where they are.

    Raises:
        OSError: one cannot be removed.
    """
    for path in (folder / name for name in names):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
