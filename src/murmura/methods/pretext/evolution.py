"""The server's part of a round of voting: population, votes, survivors (Hou et al. 2024, Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from murmura.errors import DataError
from murmura.methods.pretext import population
from murmura.methods.pretext.config import PretextConfig
from murmura.methods.pretext.guarantee import noise_added, noise_in_shares, plan
from murmura.methods.pretext.selection import select
from murmura.methods.pretext.variations import variation_of
from murmura.methods.pretext.voting import fault
from murmura.methods.site_level.account import Account
from murmura.privacy.entropy import Entropy, OSEntropy, SeededEntropy
from murmura.retrieval.search import Vectors

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.synthesis.variation import Variation

CANDIDATES, VOTES, DRAWN = "candidates", "votes", "drawn"
"""In the server's store, a list for each round: the candidates' texts, their noisy votes, and the places of those that
survived, as often as they were drawn."""


class Evolution:
    """The population of a run, round after round.

    Args:
        config: the method's options.
        server: in whose store it lies.
        fleet: who votes.
        shares: among how many sites the noise is divided, each of which adds one; 0: the server adds all of it.

    Attributes:
        kept: what of each round is kept in the store.
    """

    kept: ClassVar[tuple[str, ...]] = (CANDIDATES, VOTES, DRAWN)

    def __init__(self, config: PretextConfig, server: Server, fleet: Fleet, shares: int = 0) -> None:
        self.config, self.server, self.fleet, self.shares = config, server, fleet, shares
        self.plan = plan(config, self.shares or 1)
        self.account = Account(server, self.plan, config.accountant)
        for name in self.kept:
            server.store.setdefault(name, [])

    @cached_property
    def variation(self) -> Variation:
        """What varies texts; its model is loaded when it is first used."""
        return variation_of(self.config, self.server.runtime)

    def round(self, round: int) -> None:
        """One round: the population stands for election, and who survives is kept."""
        candidates = self._population(round)
        where = self._places(candidates, round)
        votes, sigma = self.votes(where, round)
        if self.config.tells_distance:
            self._tell_distance(where)
        self._keep(candidates, votes, sigma, round)

    def note_privacy(self) -> None:
        """Note what is guaranteed, in the round too in which nobody votes."""
        self.account.note(self.plan.clipping.norm)

    def _population(self, round: int) -> list[str]:
        """S_t: variations of the survivors of the round before; S_1: public texts."""
        store, stream = self.server.store, self.server.stream / "population" / round
        if round == 1:
            return starting(self.config, self.server)
        survivors = [store[CANDIDATES][-1][place] for place in store[DRAWN][-1]]
        return self.variation.vary(survivors, [stream / place for place in range(len(survivors))])

    def _places(self, candidates: Sequence[str], round: int) -> Vectors:
        """φ_t: where each candidate stands."""
        ahead, stream = self.config.lookahead, self.server.stream / "lookahead" / round
        variations = [[text] for text in candidates]
        if ahead:
            streams = [stream / place / number for place in range(len(candidates)) for number in range(ahead)]
            varied = self.variation.vary([text for text in candidates for _ in range(ahead)], streams)
            variations = [varied[first : first + ahead] for first in range(0, len(varied), ahead)]
        return population.places(self.server.runtime.resources.encoder("encoder"), variations)

    def votes(self, where: Vectors, round: int) -> tuple[np.ndarray, float]:
        """The noisy sum of all sites' votes, float64 [n], and σ of its noise (Hou et al. 2024, Algorithm 2). What it
        costs is in the ledger when this returns; with noise in shares before the masks come off, since ε then holds
        against this server too."""
        whole = self.config.votes == "nearest"
        like = {"votes": torch.zeros(len(where), dtype=torch.int32 if whole else torch.float32)}
        limit = float(self.plan.clipping.norm)
        sums = self.fleet.sum(
            "vote",
            self.fleet.sites,
            like=like,
            candidates=torch.from_numpy(where),
            refused=lambda reply: fault(reply["votes"], limit, whole=whole),
            settled=(lambda replies: self._enter_shares(round, replies)) if self.shares else None,
        )
        sigma = self.plan.noise.std * limit
        if self.shares:
            return sums["votes"].double().numpy(), sigma * math.sqrt(len(sums.sites) / self.shares)
        exact = (sums["votes"] if sums.sites else like["votes"]).double()
        noisy, spent = noise_added(self.plan, exact, len(sums.sites), len(self.fleet.sites), self._entropy(round))
        self.account.record(round, spent)
        return noisy.numpy(), sigma

    def _enter_shares(self, round: int, replies: int) -> None:
        self.account.record(round, noise_in_shares(self.plan, self.shares, replies, len(self.fleet.sites)))

    def _entropy(self, round: int) -> Entropy:
        """Where noise comes from: the operating system, or the run's seed where there is none."""
        return OSEntropy() if self.config.private else SeededEntropy(self.server.stream / "sites" / round)

    def _tell_distance(self, where: Vectors) -> None:
        """Note how far private texts are from the candidates; no noise covers it."""
        like = {"distance": 0.0, "texts": 0}
        sums = self.fleet.sum("report_distance", self.fleet.sites, like=like, candidates=torch.from_numpy(where))
        if "distance" in sums.heard and sums["texts"]:
            self.server.note("population_distance", float(sums["distance"]) / sums["texts"])

    def _keep(self, candidates: list[str], votes: np.ndarray, sigma: float, round: int) -> None:
        """Choose the survivors, note them, and keep all that the next round and the report need."""
        c, server = self.config, self.server
        survivors = select(votes, c.threshold * sigma, c.selection, c.kept, server.stream / "survivors" / round)
        if not survivors.above:
            server.event(
                "no candidate has votes above the threshold, so the votes say nothing: survivors are drawn alike; "
                "lower method.threshold, or let more sites vote"
            )
        for name, value in ((CANDIDATES, candidates), (VOTES, votes.tolist()), (DRAWN, survivors.drawn)):
            server.store[name] = [*server.store[name], value]
        server.note("most_votes", float(votes.max()))
        server.note("vote_noise", sigma)
        server.note("survivors", len(distinct(candidates, survivors.drawn)))
        server.note("seeds", len(set(union(c, server))))


def starting(config: PretextConfig, server: Server) -> list[str]:
    """S_1: public texts, each cut to its most tokens; or public seeds, or what prompts show, of which none is there
    twice.

    Raises:
        DataError: as ``population.public_texts``, or each text is cut within its first sentence.
    """
    texts = population.public_texts(config, server.evaluation_set.subjects)
    stream, mended = server.stream / "population" / 1, config.torn == "mended"

    def fit(some: Sequence[str]) -> list[str]:
        return population.shortened(some, server.runtime.tokenizer, config.text_tokens, mended=mended)

    found = population.drawn(texts, config.population, stream, fit, again=config.seeds == "voted" and not config.tunes)
    if not found:
        what = f"of no public text the first {config.text_tokens} tokens hold a whole sentence"
        fix = "Raise method.text_tokens, or have texts cut anywhere: method.torn = 'kept'."
        raise DataError(what, where=config.public, fix=fix)
    return found


def union(config: PretextConfig, server: Server) -> list[str]:
    """D (Hou et al. 2024, Algorithm 1): the survivors of all rounds, each as often as it was drawn, or once in a round;
    a text that survived in several rounds is there in each, and weighs more. They follow from the noisy votes and the
    run's randomness alone."""
    rounds = zip(server.store[CANDIDATES], server.store[DRAWN], strict=True)
    if not config.weighs:
        return [text for candidates, drawn in rounds for text in distinct(candidates, drawn)]
    return [text for candidates, drawn in rounds for place in sorted(drawn) if (text := candidates[place]).strip()]


def distinct(candidates: Sequence[str], drawn: Sequence[int]) -> list[str]:
    """The different texts of those that survived, in the order of the population, without empty ones."""
    return [text for text in dict.fromkeys(candidates[place] for place in sorted(set(drawn))) if text.strip()]
