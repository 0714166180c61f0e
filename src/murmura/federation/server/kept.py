"""What a curious server would keep of a run: the global model after each round, and every upload of it.

``round-0003/model.safetensors`` is written when a round is closed, so that a round without it was never finished, and
``round-0003/uploads/SITE.safetensors`` when the upload arrives. Nobody but their owner may read them. A round that is
done again takes the place of what was kept of it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from murmura import atomic
from murmura.errors import CheckpointError, RunError
from murmura.federation.wire.messages import decode, encode
from murmura.runs.schema import site_folder, site_of
from murmura.training.adapter import State

_MODEL, _UPLOADS, _ENDING = "model.safetensors", "uploads", ".safetensors"


class Keeper:
    """Writes what arrives.

    Args:
        folder: for all rounds.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._round = folder / "round-0000"

    def begin(self, round: int) -> None:
        """Forget what an earlier attempt has left of a round.

        Raises:
            CheckpointError: it cannot be removed, or nothing can be written.
        """
        self._round = self._folder / f"round-{round:04d}"
        try:
            if self._round.exists():
                shutil.rmtree(self._round)
        except OSError as error:
            raise self._unwritable(error) from error

    def hear(self, site: str, upload: State) -> None:
        """Keep an upload of this round, whole.

        Raises:
            CheckpointError: it cannot be written.
        """
        self._write(self._round / _UPLOADS / f"{site_folder(site)}{_ENDING}", upload)

    def close(self, adapter: State) -> None:
        """Keep the global model after this round.

        Raises:
            CheckpointError: it cannot be written.
        """
        self._write(self._round / _MODEL, adapter)

    def _write(self, path: Path, state: State) -> None:
        try:
            for place in (self._folder.parent, self._folder, self._round, path.parent):
                atomic.make_private(place)
            with atomic.replacing(path, private=True) as stream:
                stream.write(encode({"adapter": state}))
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"what the round has sent could not be kept ({error.strerror})", where=str(self._folder),
            fix="Free some space or fix the permissions, then use --resume; or start over without audit.keep.",
        )  # fmt: skip


@dataclass(frozen=True)
class KeptRound:
    """A round that was kept.

    Attributes:
        number: of the round.
        folder: of what was kept of it.
    """

    number: int
    folder: Path

    @property
    def sites(self) -> list[str]:
        """Those whose uploads are there, sorted."""
        return sorted(site_of(path.name.removesuffix(_ENDING)) for path in (self.folder / _UPLOADS).glob(f"*{_ENDING}"))

    def model(self) -> State:
        """The global model after it.

        Raises:
            CheckpointError: it is damaged.
        """
        return _read(self.folder / _MODEL)

    def upload(self, site: str) -> State:
        """What a site has sent in it.

        Raises:
            CheckpointError: it is damaged.
        """
        return _read(self.folder / _UPLOADS / f"{site_folder(site)}{_ENDING}")


def kept(folder: Path) -> Sequence[KeptRound]:
    """Rounds that were kept and finished, in order; none where nothing was kept."""
    named = ((re.fullmatch(r"round-(\d+)", path.name), path) for path in sorted(folder.glob("round-*")))
    return [KeptRound(int(name[1]), path) for name, path in named if name and (path / _MODEL).is_file()]


def _read(path: Path) -> State:
    try:
        state: State = decode(path.read_bytes())["adapter"]
    except (OSError, KeyError, RunError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not what was written"
        raise CheckpointError(
            f"what was kept of a round cannot be read ({why})", where=str(path), fix="Run the experiment again."
        ) from error
    return state
