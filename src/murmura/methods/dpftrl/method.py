"""DP-FTRL: a step from where the noise began, along a private sum of all updates since then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from murmura.errors import PrivacyError
from murmura.methods.dpftrl.config import Banded, DPFTRLConfig, Tree
from murmura.methods.site_level.account import Account, with_noise
from murmura.methods.site_level.method import SiteLevel
from murmura.privacy.clipping import SiteClipping
from murmura.privacy.entropy import Entropy
from murmura.privacy.guarantee import Guarantee, require_promise
from murmura.privacy.ledger import Spent
from murmura.privacy.mechanisms.banded import BandedNoise
from murmura.privacy.mechanisms.noise import Noise
from murmura.privacy.mechanisms.tree import TreeNoise
from murmura.privacy.observation import Observation
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import FullParticipation, MinSeparation, OncePerTree, Sampler
from murmura.training.adapter import State
from murmura.training.config import LocalTraining

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server

_ANCHOR, _VELOCITY, _TURNS, _LAST = "anchor", "velocity", "turns", "last_turn"  # in the server's store
_NOISE = ("tree.", "banded.")  # what an aggregator keeps there


def plan(config: DPFTRLConfig, sites: int) -> PrivacyPlan:
    """The plan of a run with so many sites; their number is public.

    Raises:
        PrivacyError: a site would have to take part twice in one tree, or again while its noise is not spent.
    """
    kind = config.noise
    sampler, noise = _of_trees(config, kind, sites) if isinstance(kind, Tree) else _banded(config, kind, sites)
    made = PrivacyPlan(
        unit="site",
        adjacency="zero-out",
        sampler=sampler,
        clipping=SiteClipping(config.clip_norm),
        noise=noise,
        steps=config.rounds,
        delta=config.delta,
    )
    return with_noise(made, config)


def _of_trees(config: DPFTRLConfig, tree: Tree, sites: int) -> tuple[Sampler, Noise]:
    each = config.sites_per_round
    epoch = sites // each if each else 1  # rounds in which every site can take part at most once
    if epoch == 0 or (each and (tree.restart_every or 1) > epoch):
        raise PrivacyError(
            f"{sites} sites cannot take part at most once in {tree.restart_every or 1} rounds of {each}",
            where="method.sites_per_round",
            fix="Restart the tree sooner, ask fewer sites a round, or leave sites_per_round out: then every site may "
            "be in every round, and is accounted so.",
        )
    noise = TreeNoise(0.0, tree.restart_every or epoch, tree.honaker)
    return OncePerTree(each) if each else FullParticipation(), noise


def _banded(config: DPFTRLConfig, banded: Banded, sites: int) -> tuple[Sampler, Noise]:
    each = config.sites_per_round or sites
    epoch = sites // each
    if epoch == 0 or (banded.bands or 1) > epoch:
        what = f"with {each} of {sites} sites a round, no site can keep away for {max(banded.bands or 1, 1)} rounds"
        raise PrivacyError(what, where="method.sites_per_round", fix="Ask fewer sites a round, or take fewer bands.")
    bands = banded.bands or min(epoch, config.rounds)
    return MinSeparation(each, epoch), BandedNoise(0.0, bands)


class DPFTRL(SiteLevel):
    """FTRL with momentum over private sums of all updates: of a tree that is restarted (Kairouz et al. 2021: FTRLM,
    TreeRestart), or with banded noise, which is not (Choquette-Choo et al. 2023).

    The server's store, and with it the checkpoint, holds exact sums of updates and the noise that was added to them, in
    float64. Both must be kept as secret as the sites' data.
    """

    config: DPFTRLConfig

    @property
    def label(self) -> str:
        return f"DP-FTRL {self.config.strength}" + (", banded noise" if self.config.noise.kind == "banded" else "")

    def guarantee(self, records: Sequence[int], training: LocalTraining) -> Guarantee | None:
        if not self.protects:
            require_promise(self.config.private)
            return None
        return Guarantee.of(plan(self.config, len(records)), self.config.accountant)

    def kept(self) -> int:
        noise = self.config.noise
        if isinstance(noise, Banded):
            # θ_0 and v; in float64 the exact sum, its noise, and that of bands - 1 rounds.
            return 2 + 2 * (1 + (noise.bands or self.config.rounds))
        # θ_0 and v; in float64 the exact sum, and a node for each power of two that a tree holds.
        longest = noise.restart_every or (self.config.rounds if self.config.sites_per_round else 1)
        return 2 + 2 * (1 + min(longest, self.config.rounds).bit_length())

    def lead(self, server: Server, fleet: Fleet) -> None:
        followed = plan(self.config, len(fleet.sites))
        account = Account(server, followed, self.config.accountant)
        sampler, noise, norm = followed.sampler, followed.noise, followed.clipping.norm
        done = noise.parameters()
        span = done.get("restart_every", self.config.rounds)
        expected = sampler.expected(len(fleet.sites))  # m
        for round in server.rounds(self.config.rounds):
            entropy = self.entropy(server, round)
            if (round - 1) % span == 0:
                self._restart(server, fleet, sampler, span, entropy)
            cohort = list(server.store[_TURNS][(round - 1) % span]) if self.config.sites_per_round else fleet.sites
            total, _, seen = self.gather(server, cohort, norm, round)
            prefix, fresh = _prefix(server, total, noise, norm, entropy)
            self._step(server, prefix, expected)
            drawn = Observation(1, len(cohort), len(fleet.sites), is_secret=entropy.is_secret)
            seen += fresh + drawn + _back(server, cohort, round)
            account.record(round, Spent(1, sampler, norm, noise.std, done, observed=seen))

    def _restart(self, server: Server, fleet: Fleet, sampler: Sampler, span: int, entropy: Entropy) -> None:
        """Begin to sum up anew at the present model: θ_0 ← θ, v ← 0, and new turns: for each round of a tree, or of the
        run, who is in it. Who was in the tree before may be in this one."""
        for name in (_VELOCITY, _LAST):
            server.store.pop(name, None)
        server.store[_ANCHOR] = server.adapter
        if self.config.sites_per_round:
            turns = sampler.batches(len(fleet.sites), span, entropy)
            server.store[_TURNS] = [[fleet.sites[index] for index in turn] for turn in turns]

    def _step(self, server: Server, prefix: State, expected: float) -> None:
        """FTRL-M: v ← βv + (the private mean of all updates since the restart), θ ← θ_0 + ηv."""
        before: State = server.store.get(_VELOCITY) or {}
        velocity = {name: tensor / expected for name, tensor in prefix.items()}
        if before:
            velocity = {name: before[name] * self.config.momentum + tensor for name, tensor in velocity.items()}
        server.store[_VELOCITY] = velocity
        anchor: State = server.store[_ANCHOR]
        server.adapter = {name: tensor + self.config.server_lr * velocity[name] for name, tensor in anchor.items()}


def _prefix(server: Server, total: State, noise: Noise, norm: float, entropy: Entropy) -> tuple[State, Observation]:
    """The private sum of all updates since the restart, and the noise that this round really added; what remembers the
    rounds before lives in the server's store."""
    made = noise.prefix_sums(norm, entropy)
    kept = [name for name in server.store if name.startswith(_NOISE)]
    if kept:  # taken out of the store, so that no node is held that is part of a higher one
        made.restore({name: server.store.pop(name) for name in kept})
    prefix = made.add(total)  # a tree that is complete gives way to another
    server.store |= made.state()
    return prefix, made.seen


def _back(server: Server, cohort: Sequence[str], round: int) -> Observation:
    """After how many rounds the first of these sites is back, as far as any has taken part before: with trees, in this
    one. A round that was lost is not in the store, so to repeat it is no return; the ledger counts it on its own."""
    last: dict[str, int] = server.store.get(_LAST, {})
    server.store[_LAST] = {**last, **dict.fromkeys(cohort, round)}
    return Observation(apart=min((round - last[site] for site in cohort if site in last), default=None))
