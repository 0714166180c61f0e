"""What a curious server would keep of a run: the global model after each round, and every upload of it.

``round-0003/model.safetensors`` is written when a round is closed, so that a round without it was never finished,
``round-0003/uploads/SITE.safetensors`` when the upload arrives, and likewise ``round-0003/centres/SITE.safetensors``
where sites send centres of their records. Nobody but their owner may read them. A round that is done again takes the
place of what was kept of it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch

from murmura import atomic
from murmura.errors import CheckpointError, RunError, explaining
from murmura.federation.wire.messages import Payload, decode, encode
from murmura.runs.names import site_folder, site_of
from murmura.training.adapter import State

_MODEL, _UPLOADS, _CENTRES, _ENDING = "model.safetensors", "uploads", "centres", ".safetensors"


class TranscriptWriter:
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
        with self._kept():
            if self._round.exists():
                shutil.rmtree(self._round)

    def observe_upload(self, site: str, upload: State) -> None:
        """Keep an upload of this round, whole.

        Raises:
            CheckpointError: it cannot be written.
        """
        self._write(self._round / _UPLOADS / f"{site_folder(site)}{_ENDING}", {"adapter": upload})

    def observe_centres(self, site: str, centres: torch.Tensor, sizes: torch.Tensor) -> None:
        """Keep the centres of a site's clusters [k, d] and how many records are in each [k].

        Raises:
            CheckpointError: they cannot be written.
        """
        self._write(self._round / _CENTRES / f"{site_folder(site)}{_ENDING}", {"centres": centres, "sizes": sizes})

    def close(self, adapter: State) -> None:
        """Keep the global model after this round.

        Raises:
            CheckpointError: it cannot be written.
        """
        self._write(self._round / _MODEL, {"adapter": adapter})

    def _write(self, path: Path, what: Payload) -> None:
        with self._kept():
            for place in (self._folder.parent, self._folder, self._round, path.parent):
                atomic.make_private(place)
            with atomic.replacing(path, private=True) as stream:
                stream.write(encode(what))

    def _kept(self) -> AbstractContextManager[None]:
        fix = "then use --resume; or start over without audit.keep"
        return explaining("what the round has sent could not be kept", self._folder, fix)


@dataclass(frozen=True)
class TranscriptRound:
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
        return self._sites(_UPLOADS)

    @property
    def centred(self) -> list[str]:
        """Those whose centres are there, sorted."""
        return self._sites(_CENTRES)

    def _sites(self, kind: str) -> list[str]:
        return sorted(site_of(path.name.removesuffix(_ENDING)) for path in (self.folder / kind).glob(f"*{_ENDING}"))

    def model(self) -> State:
        """The global model after it.

        Raises:
            CheckpointError: it is damaged.
        """
        model: State = _read(self.folder / _MODEL)["adapter"]
        return model

    def upload(self, site: str) -> State:
        """What a site has sent in it.

        Raises:
            CheckpointError: it is damaged.
        """
        upload: State = _read(self.folder / _UPLOADS / f"{site_folder(site)}{_ENDING}")["adapter"]
        return upload

    def centres(self, site: str) -> tuple[torch.Tensor, torch.Tensor]:
        """The centres [k, d] that a site has sent in it, and how many records it said are in each cluster [k].

        Raises:
            CheckpointError: they are damaged.
        """
        found = _read(self.folder / _CENTRES / f"{site_folder(site)}{_ENDING}")
        return found["centres"], found["sizes"]


def kept_rounds(folder: Path) -> Sequence[TranscriptRound]:
    """Rounds that were kept and finished, in order; none where nothing was kept."""
    named = ((re.fullmatch(r"round-(\d+)", path.name), path) for path in sorted(folder.glob("round-*")))
    return [TranscriptRound(int(name[1]), path) for name, path in named if name and (path / _MODEL).is_file()]


def _read(path: Path) -> Payload:
    try:
        return decode(path.read_bytes())
    except (OSError, RunError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not what was written"
        fix = "Run the experiment again."
        raise CheckpointError(f"what was kept of a round cannot be read ({why})", where=str(path), fix=fix) from error
