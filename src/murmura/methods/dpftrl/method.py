"""DP-FTRL: a step from where the tree began, along a private sum of all updates since then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from murmura.errors import PrivacyError
from murmura.methods.dpftrl.config import DPFTRLConfig
from murmura.methods.site_level.account import Account
from murmura.methods.site_level.method import SiteLevel
from murmura.privacy.aggregator import TreeAggregator
from murmura.privacy.entropy import Entropy
from murmura.privacy.ledger import Spent
from murmura.privacy.observation import Observation
from murmura.privacy.parts import FullParticipation, OncePerTree, SiteClipping, TreeNoise
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.sampling import disjoint_batches
from murmura.training.adapter import State
from murmura.training.config import LocalTraining

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server

_ANCHOR, _VELOCITY, _TURNS, _TREE = "anchor", "velocity", "turns", "tree."  # in the server's store


def plan(config: DPFTRLConfig, sites: int) -> PrivacyPlan:
    """The plan of a run with so many sites; their number is public.

    Raises:
        PrivacyError: a site would have to take part twice in one tree.
    """
    each = config.sites_per_round
    epoch = sites // each if each else 1  # rounds in which every site can take part at most once
    if epoch == 0 or (each and (config.restart_every or 1) > epoch):
        raise PrivacyError(
            f"{sites} sites cannot take part at most once in {config.restart_every or 1} rounds of {each}",
            where="method.sites_per_round",
            fix="Restart the tree sooner, ask fewer sites a round, or leave sites_per_round out: then every site may "
            "be in every round, and is accounted so.",
        )
    made = PrivacyPlan(
        unit="site",
        adjacency="zero-out",
        sampler=OncePerTree(each) if each else FullParticipation(),
        clipping=SiteClipping(config.clip_norm),
        noise=TreeNoise(config.noise_multiplier or 0.0, config.restart_every or epoch, config.honaker),
        steps=config.rounds,
        delta=config.delta,
    )
    return made if config.epsilon is None else made.calibrated(config.epsilon, config.accountant)


class DPFTRL(SiteLevel):
    """FTRL with momentum over a tree that is restarted (Kairouz et al. 2021: FTRLM, TreeRestart).

    The server's store, and with it the checkpoint, holds exact sums of updates and the noise of the tree's nodes. Both
    must be kept as secret as the sites' data.
    """

    config: DPFTRLConfig

    @property
    def label(self) -> str:
        return f"DP-FTRL {self.config.noise}"

    def privacy(self, records: Sequence[int], training: LocalTraining) -> tuple[PrivacyPlan, str] | None:
        return (plan(self.config, len(records)), self.config.accountant) if self.config.private else None

    def kept(self) -> int:
        # θ_0, v and the exact sum; then a node for each power of two that a tree holds.
        longest = self.config.restart_every or (self.config.rounds if self.config.sites_per_round else 1)
        return 3 + min(longest, self.config.rounds).bit_length()

    def lead(self, server: Server, fleet: Fleet) -> None:
        followed = plan(self.config, len(fleet.sites))
        account = Account(server, followed, self.config.accountant)
        noise, norm = followed.noise, followed.clipping.norm
        assert isinstance(noise, TreeNoise), "the plan is this method's own"
        expected = followed.sampler.expected(len(fleet.sites))  # m
        for round in server.rounds(self.config.rounds):
            entropy, step = self.entropy(server, round), (round - 1) % noise.restart_every
            if step == 0:
                self._restart(server, fleet, noise.restart_every, entropy)
            cohort = server.store[_TURNS][step] if self.config.sites_per_round else fleet.sites
            total, _, seen = self.gather(server, cohort, norm, round)
            prefix, fresh = _prefix(server, total, noise, norm, entropy)
            self._step(server, prefix, expected)
            seen += fresh + Observation(1, len(cohort), len(fleet.sites), is_secret=entropy.is_secret)
            done = Spent(1, followed.sampler, norm, noise.std, restart_every=noise.restart_every, observed=seen)
            account.record(round, done)

    def _restart(self, server: Server, fleet: Fleet, rounds: int, entropy: Entropy) -> None:
        """Begin another tree at the present model: θ_0 ← θ, v ← 0, and new turns."""
        server.store.pop(_VELOCITY, None)
        server.store[_ANCHOR] = server.adapter
        if self.config.sites_per_round:
            turns = disjoint_batches(len(fleet.sites), self.config.sites_per_round, rounds, entropy)
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


def _prefix(server: Server, total: State, noise: TreeNoise, norm: float, entropy: Entropy) -> tuple[State, Observation]:
    """The private sum of all updates since the restart, and the noise of the nodes that this round completes; the tree
    lives in the server's store."""
    tree = TreeAggregator(noise, norm, entropy)
    if f"{_TREE}step" in server.store:
        tree.restore(server.store)
    prefix = tree.add(total)  # which begins another tree when this one is complete
    for name in [name for name in server.store if name.startswith(_TREE)]:
        del server.store[name]
    server.store |= tree.state()
    return prefix, tree.seen
