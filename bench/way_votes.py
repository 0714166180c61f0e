"""Ways of ``pretext.py``: one of them in this process. Called as ``way_votes.py WORK OUT WAY``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from work import Kept, finish, gpu_peak, timed


@dataclass(frozen=True)
class VotingWork(Kept):
    """What ``pretext.py`` measures: one round of voting.

    Attributes:
        folder: ``texts.npy``, float32 [distinct, texts, width] unit vectors of so many sites' texts, and
            ``candidates.npy``, float32 [candidates, width]. A site beyond these has the texts of one of them.
        repeats: how often a way does its work within its process, after a first time that does not count; 0: only that.
    """

    folder: str
    sites: int
    repeats: int
    cores: int
    device: str = "cpu"
    dtype: str = "float32"

    def texts(self) -> np.ndarray:
        return np.load(Path(self.folder) / "texts.npy")

    def candidates(self) -> np.ndarray:
        return np.load(Path(self.folder) / "candidates.npy")

    def wait(self) -> None:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()


def looping(work: VotingWork) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """A product, and a vote for the best, site by site; ‖e − φ‖² is least where e·φ − ‖φ‖²/2 is largest. Distances in
    float64 are what all ways are held to, and not timed."""
    sites = [torch.from_numpy(own).to(work.device) for own in work.texts()[: work.sites]]
    candidates = torch.from_numpy(work.candidates()).to(work.device)

    def vote(texts: Sequence[torch.Tensor] = sites, where: torch.Tensor = candidates) -> torch.Tensor:
        right, half = where.T, where.square().sum(dim=1) / 2
        total = torch.zeros(len(where), dtype=torch.int64, device=work.device)
        for own in texts:
            total += torch.bincount((own @ right - half).argmax(dim=1), minlength=len(where))
        work.wait()
        return total

    def exact(_: Any) -> dict[str, torch.Tensor]:
        return {"votes": vote([own.double() for own in sites], candidates.double()).cpu().double()}

    return vote, exact


def multiplying(work: VotingWork) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """The product of all texts with all candidates alone, into memory that is there."""
    texts = torch.from_numpy(work.texts()[: work.sites].reshape(-1, work.candidates().shape[1])).to(work.device)
    candidates = torch.from_numpy(work.candidates()).to(work.device)
    products = torch.empty(len(texts), len(candidates), device=work.device)

    def multiply() -> None:
        torch.mm(texts, candidates.T, out=products)
        work.wait()

    return multiply, lambda _: {}


def voting(work: VotingWork) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """What sites do, for all of them at once."""
    from murmura.methods.pretext.voting import counted, nearest

    texts, candidates = work.texts()[: work.sites], work.candidates()
    rows, sizes = texts.reshape(-1, texts.shape[2]), [texts.shape[1]] * len(texts)

    def vote() -> np.ndarray:
        return counted(nearest(rows, candidates, work.device), sizes, len(candidates)).sum(axis=0)

    return vote, lambda votes: {"votes": torch.from_numpy(votes).double()}


class Given:
    """A sentence encoder that knows the vectors already. A record's text is its site's place among them."""

    def __init__(self, texts: np.ndarray) -> None:
        self._texts = texts

    def embed_apart(self, sites: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """No copies: many sites share one's vectors."""
        return [self._texts[int(own[0])] for own in sites]


def asking(work: VotingWork) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """As a run does: the server asks all sites of a local engine for the sum of their votes, and checks every reply."""
    from murmura.data.records import Document
    from murmura.federation.engines.local import LocalEngine
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.ledger import Ledger
    from murmura.federation.site.answer import Host
    from murmura.federation.site.cohort import Site
    from murmura.methods.pretext.config import PretextConfig
    from murmura.methods.pretext.method import Pretext
    from murmura.methods.pretext.voting import fault
    from murmura.streams import Stream

    texts, candidates = work.texts(), torch.from_numpy(work.candidates())
    distinct, limit = len(texts), texts.shape[1]
    records = [[Document(str(place))] * limit for place in range(distinct)]
    sites = [Site(f"site-{place}", records[place % distinct]) for place in range(work.sites)]
    method = Pretext(PretextConfig(public="given", population=len(candidates), texts_per_site=limit))
    resources = SimpleNamespace(encoder=lambda option: Given(texts))
    runtime: Any = SimpleNamespace(device=work.device, resources=resources)
    host = Host(sites, [method], runtime, Stream(0))
    fleet = Fleet(LocalEngine(host), [method], Ledger(), Stream(0))
    like = {"votes": torch.zeros(len(candidates), dtype=torch.int32)}

    def refused(fields: dict[str, torch.Tensor]) -> str | None:
        return fault(fields["votes"], limit, whole=True)

    def vote() -> torch.Tensor:
        votes: torch.Tensor = fleet.sum("vote", fleet.sites, like=like, refused=refused, candidates=candidates)["votes"]
        return votes

    return vote, lambda votes: {"votes": votes.double()}


WAYS = {"l": looping, "p": multiplying, "v": voting, "m": asking}


def main(work: VotingWork, out: str, way: str) -> None:
    act, found = WAYS[way](work)
    result, seconds = timed(act, 1 + work.repeats)
    # Vectors are asked for and libraries settle the first time.
    finish(out, found(result), seconds[1:] or seconds, gpu_peak(work))


if __name__ == "__main__":
    main(VotingWork.read(sys.argv[1]), sys.argv[2], sys.argv[3])
