"""DP-FedAvg: the noisy sum of clipped updates over a fixed number, then a step with momentum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from murmura.aggregation.product_space import ProductSpace
from murmura.federation.traits import Traits
from murmura.methods.dpfedavg.config import DPFedAvgConfig, EverySite
from murmura.methods.site_level.account import Account, with_noise
from murmura.methods.site_level.method import SiteLevel
from murmura.privacy.clipping import AdaptiveSiteClipping, SiteClipping
from murmura.privacy.entropy import Entropy
from murmura.privacy.guarantee import Guarantee, require_promise
from murmura.privacy.journal import Journal
from murmura.privacy.ledger import Spent
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.observation import Observation, noised
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import FixedSizeSampling, FullParticipation, PoissonSampling, Sampler
from murmura.runs.names import PENDING
from murmura.training.adapter import State
from murmura.training.config import LocalTraining

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server

_NORM, _VELOCITY = "norm", "velocity"  # in the server's store
_secret_cohorts = partial(Journal, what="journal of secret cohorts")


def plan(config: DPFedAvgConfig, sites: int) -> PrivacyPlan:
    """The plan of a run with so many sites; their number is public.

    The known bounds on what a fixed-size sample gains are for one site exchanged for another, so that is the adjacency
    there; it covers a site exchanged for an empty one.

    With adaptive clipping the noise on the updates is ``z_Δ = (z⁻² − (2σ_b)⁻²)^(−½)``, so that together with the
    count's noise σ_b a round is one Gaussian release with multiplier z (Andrew et al. 2021, Theorem 1).

    Raises:
        PrivacyError: fewer sites than take part in a round, or the count's noise is too small for z.
    """
    sampler = _sampler(config, sites)
    made = PrivacyPlan(
        unit="site",
        adjacency="replace-one" if config.sampler.kind == "fixed" else "zero-out",
        sampler=sampler,
        clipping=SiteClipping(config.clip_norm),
        noise=GaussianNoise(0.0),
        steps=config.rounds,
        delta=config.delta,
    )
    made = with_noise(made, config)
    adaptive = config.adaptive
    if adaptive is None:
        return made
    count_noise = adaptive.count_noise or sampler.expected(sites) / 20
    clipping = AdaptiveSiteClipping(config.clip_norm, adaptive.quantile, adaptive.lr, count_noise)
    return replace(made, clipping=clipping, noise=GaussianNoise(clipping.split(made.noise.std)))


def _sampler(config: DPFedAvgConfig, sites: int) -> Sampler:
    if isinstance(config.sampler, EverySite):
        return FullParticipation()
    if config.sampler.kind == "poisson":
        return PoissonSampling(config.sampler.sites_per_round / sites)
    return FixedSizeSampling(config.sampler.sites_per_round, sites)


def draw(sampler: Sampler, sites: list[str], entropy: Entropy) -> list[str]:
    """A round's cohort; who is in it is a secret of the server."""
    [chosen] = sampler.batches(len(sites), 1, entropy)
    return [sites[index] for index in chosen]


def cohort_of(server: Server, account: Account, sites: list[str], entropy: Entropy) -> list[str]:
    """A round's cohort; where it is secret, it is kept from when it is drawn until something is released with it.

    ε counts on samples that nothing has chosen among. Where a round stops since a site that was drawn does not answer,
    and is repeated with a fresh sample, only samples without that site would ever be released: of ten sites of which
    eight are gone, always the same two. So a round that is repeated has the sample that it had, unless that was
    released: then it is spent, and the repeated round counts as another one, with a sample of its own.

    Raises:
        CheckpointError: it could not be kept, so that nobody may be asked.
    """
    if not account.plan.has_secret_cohort:
        return draw(account.plan.sampler, sites, entropy)
    kept, released = server.journal(PENDING, _secret_cohorts), len(account.ledger.rounds)
    if not kept.lines or kept.lines[-1]["released"] != released:
        kept.append({"released": released, "units": draw(account.plan.sampler, sites, entropy)})
    return list(kept.lines[-1]["units"])


class DPFedAvg(SiteLevel):
    """DP-FedAvg with a fixed norm (McMahan et al. 2018) or one that follows a quantile (Andrew et al. 2021)."""

    config: DPFedAvgConfig

    @property
    def label(self) -> str:
        return f"DP-FedAvg {self.config.strength}" + (", adaptive" if self.config.adaptive else "")

    @property
    def traits(self) -> Traits:
        found = super().traits
        assert found.combines is not None
        fixed, why = ("ffa", "rolora"), "'product_space' needs one factor fixed in each round"
        if self.config.product_space:
            fix = "Set aggregation.rule = 'rolora' or 'ffa', or remove 'product_space'."
            product = "'product_space' clips and noises the product of A and B, of which magnitudes are no part"
            combines = replace(found.combines, rules=fixed, because=why, fix=fix)
            return replace(found, combines=combines, no_magnitudes=product)
        return replace(found, combines=replace(found.combines, rules=("mean", *fixed)))

    def entered(self, change: State, start: State) -> State:
        return self._space(change, start).enter(change) if self.config.product_space else change

    def left(self, change: State, start: State) -> State:
        return self._space(change, start).leave(change) if self.config.product_space else change

    def _space(self, change: State, start: State) -> ProductSpace:
        """Spanned by the factors that are not trained in this round, which are the same at all sites."""
        return ProductSpace({name: tensor for name, tensor in start.items() if name not in change})

    def guarantee(self, records: Sequence[int], training: LocalTraining) -> Guarantee | None:
        if not self.protects:
            require_promise(self.config.private)
            return None
        return Guarantee.of(plan(self.config, len(records)), self.config.accountant)

    def kept(self) -> int:
        return int(self.config.momentum > 0)

    def lead(self, server: Server, fleet: Fleet) -> None:
        followed = plan(self.config, len(fleet.sites))
        account = Account(server, followed, self.config.accountant)
        server.journal(PENDING, _secret_cohorts)  # refused now, if at all
        sampler, clipping, noise = followed.sampler, followed.clipping, followed.noise
        expected = sampler.expected(len(fleet.sites))  # m
        for round in server.rounds(self.config.rounds):
            entropy = self.entropy(server, round)
            norm = server.store.get(_NORM, self.config.clip_norm)
            cohort = cohort_of(server, account, fleet.sites, entropy)
            total, balance, seen = self.gather(server, cohort, norm, round)
            noisy = noise.add(total, norm, entropy)
            seen += Observation(1, len(cohort), len(fleet.sites), is_secret=entropy.is_secret)
            seen += noised(total.values(), noisy.values(), norm)
            mean = {name: tensor / expected for name, tensor in noisy.items()}
            self._step(server, self.left(mean, server.adapter))
            server.store[_NORM], counted = clipping.next_norm(norm, balance, expected, entropy)
            seen += counted
            account.record(round, Spent(1, sampler, norm, noise.std, followed.parameters(), observed=seen))

    def _step(self, server: Server, mean: State) -> None:
        """v ← βv + mean, W ← W + ηv, for the tensors that were trained."""
        if self.config.momentum:
            before: State = server.store.get(_VELOCITY) or {}
            mean = {n: before[n] * self.config.momentum + mean[n] if n in before else mean[n] for n in mean}
            server.store[_VELOCITY] = {**before, **mean}
        moved = {n: server.adapter[n] + self.config.server_lr * mean[n] for n in mean}
        server.adapter = {**server.adapter, **moved}
