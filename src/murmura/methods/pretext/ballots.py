"""What sites send: the votes of their texts, from vectors that never leave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murmura.errors import PrivacyError, RefusedError
from murmura.methods.pretext.config import PretextConfig
from murmura.methods.pretext.voting import cosines, counted, distances, fault, nearest, normalised
from murmura.progress import phase
from murmura.retrieval.centres import LONGEST
from murmura.retrieval.search import Vectors
from murmura.streams import Stream

if TYPE_CHECKING:
    from murmura.federation.site.cohort import Cohort
    from murmura.federation.site.site import Site


class Ballots:
    """The voting texts of the sites of one process. Their vectors are kept in its memory, where a run needs them in
    every round, and nowhere else."""

    def __init__(self, config: PretextConfig) -> None:
        self.config = config
        self._known: dict[str, Vectors] = {}

    def votes(self, cohort: Cohort, candidates: torch.Tensor) -> list[torch.Tensor]:
        """Of each site, what it sends: int32 [n] for whole votes, else float32 [n].

        Args:
            candidates: float32 [n, d], where they stand.
        """
        texts, where = self.vectors(cohort), candidates.numpy()
        if self.config.votes == "cosine":
            return list(torch.from_numpy(cosines(texts, where)))
        chosen = nearest(np.concatenate(texts), where, str(cohort.runtime.device))
        found = counted(chosen, [len(own) for own in texts], len(where))
        return list(torch.from_numpy(normalised(found) if self.config.votes == "normalised" else found))

    def distances(self, cohort: Cohort, candidates: torch.Tensor) -> list[list[float]]:
        """Of each site's texts, how far each is from the candidate nearest to it."""
        texts = self.vectors(cohort)
        found = distances(np.concatenate(texts), candidates.numpy(), str(cohort.runtime.device))
        ends = np.cumsum([len(own) for own in texts])[:-1]
        return [own[np.isfinite(own)].tolist() for own in np.split(found, ends)]

    def vectors(self, cohort: Cohort) -> list[Vectors]:
        """Of each site the vectors of its voting texts, float32 [S or fewer, d]. A site's texts share a pass with no
        other site's, so that its votes depend on nobody else's, in no bit."""
        new = [site for site in cohort.sites if site.name not in self._known]
        if new:
            encoder = cohort.runtime.resources.encoder("encoder")
            with phase("score"):
                found = encoder.embed_apart([chosen_texts(self.config, cohort, site) for site in new])
            self._known |= {site.name: own for site, own in zip(new, found, strict=True)}
        return [self._known[site.name] for site in cohort.sites]


def required(candidates: torch.Tensor) -> torch.Tensor:
    """Where candidates stand, which are means of vectors of length 1. With numbers that overflow, whether a vote fails
    would depend on the texts that vote, and a failure leaves the site without any noise.

    Raises:
        RefusedError: they are none.
    """
    where = candidates.numpy()
    if where.ndim != 2 or not len(where) or where.dtype != np.float32 or not np.isfinite(where).all():
        raise RefusedError(f"candidates are asked about that are no vectors, but {where.dtype} {list(where.shape)}")
    if np.linalg.norm(where.astype(np.float64), axis=1).max() > LONGEST:
        raise RefusedError("candidates are asked about that stand where no text can")
    return candidates


def require_allowed(config: PretextConfig, cohort: Cohort, votes: Sequence[torch.Tensor]) -> None:
    """Each site looks at what it is about to send.

    Raises:
        PrivacyError: it is more than a site may cast.
    """
    for site, own in zip(cohort.sites, votes, strict=True):
        if why := fault(own, config.limit, whole=config.votes == "nearest"):
            what = f"votes were about to leave that are too many: {why}"
            fix = "Use a release of murmura as it was published: this one does not bound them."
            raise PrivacyError(what, where=f"site {site.name}, round {cohort.round}", fix=fix)


def chosen_texts(config: PretextConfig, cohort: Cohort, site: Site) -> Sequence[str]:
    """The texts of a site that take part. Where these are not all, its owner is told."""
    most = config.texts_per_site
    if site.size > most and cohort.round == 1:
        site.tell(f"Only {most} of your {site.size} texts take part, drawn at random (method.texts_per_site).")
    return [record.text for record in taking_part(config, site, cohort.stream)]


def taking_part(config: PretextConfig, site: Site, stream: Stream) -> Sequence[Any]:
    """The records of a site that vote or are paraphrased: at most S, drawn at random once for the run."""
    if site.size <= config.texts_per_site:
        return site.records
    chosen = (stream / "voting" / site.name).python().sample(range(site.size), config.texts_per_site)
    return [site.records[place] for place in sorted(chosen)]
