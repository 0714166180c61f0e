"""What DP-LoRA promises each site, and the account that each site keeps of what it has really spent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from murmura.errors import PrivacyError
from murmura.methods.dplora.config import DPLoRAConfig
from murmura.privacy.clipping import BatchClipping, ExampleClipping
from murmura.privacy.ledger import PrivacyLedger, Spent
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.reported import ReportedEpsilons, rounded, told
from murmura.privacy.samplers import FixedSizeSampling, PoissonSampling
from murmura.runs.names import REPORTED
from murmura.training.config import LocalTraining
from murmura.training.loop import steps_of

if TYPE_CHECKING:
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.site import Site

_UNCLIPPED = torch.finfo(torch.float32).max  # C = ∞: no gradient is longer


def claimed_per_step(sigma: float, delta: float) -> float:
    """The ε that Liu et al. 2023 (DP-LoRA) claim for one step, ``√(2·ln(1.25/δ))/σ``: ``σ ≥ √(2·ln(1.25/δ))/ε`` solved
    for ε.

    The bound holds only for ε < 1, composes nothing, and takes the sensitivity to be C whatever is clipped.
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / sigma


def weakest(config: DPLoRAConfig, training: LocalTraining, records: Sequence[int]) -> PrivacyPlan:
    """Of the plans of sites with so many records each, the one with the largest ε.

    Few records make for a large sampling rate, and many records for many steps unless the number of steps is given. So
    among sites that take equally many steps the smallest has the largest ε; among the others, any may have it.

    Raises:
        PrivacyError: as ``plan``, for any of them.
    """
    if config.epsilon is not None:
        return plan(config, training, min(records))  # all are calibrated to the same ε
    smallest: dict[int, int] = {}
    for count in sorted(records, reverse=True):
        smallest[steps_of(count, training)] = count
    plans = [plan(config, training, count) for count in sorted(smallest.values())]
    return max(plans, key=lambda one: one.epsilon(accountant=config.accountant).value) if plans[1:] else plans[0]


def plan(config: DPLoRAConfig, training: LocalTraining, records: int) -> PrivacyPlan:
    """The plan of a site with so many records, for the whole run.

    Noise on the weights, N(0, σ²) after one step of SGD with rate γ, does what noise on the clipped sum does that in
    units of C has the standard deviation σ·b/(γ·C); b is the expected batch, or 1 for a batch's clipped gradient.

    Raises:
        PrivacyError: the batch is larger than the data set, noise without a clipping norm, or noise on weights after
            anything but one step of SGD.
    """
    batch, norm = training.batch_size, training.clip or _UNCLIPPED
    if batch > records:
        what = f"the data set is smaller than the batch: {records} records, training.batch_size = {batch}"
        raise PrivacyError(what, fix=f"Set training.batch_size to at most {records}, or leave the site out.")
    if config.private and not training.clip:
        fix = "Set training.clip to C."
        raise PrivacyError("noise without a bound on gradients protects nobody: training.clip = 0", fix=fix)
    if config.noise_on == "weights" and (training.optimizer != "sgd" or steps_of(records, training) != 1):
        fix = "Set training.optimizer = 'sgd' and training.max_steps = 1, or method.noise_on = 'gradient'."
        raise PrivacyError("noise on weights has a known effect after one step of SGD only", fix=fix)
    groups = 2 if config.groups == "factors" else 1
    by_batch = config.clipping == "batch"
    made = PrivacyPlan(
        unit="record",
        adjacency=config.adjacency,
        sampler=PoissonSampling(batch / records) if config.sampler == "poisson" else FixedSizeSampling(batch, records),
        clipping=(BatchClipping if by_batch else ExampleClipping)(norm, groups),
        noise=GaussianNoise(0.0),
        steps=config.rounds * steps_of(records, training),
        delta=config.delta,
    )
    if config.epsilon is not None:
        return _calibrated(made, config.epsilon, config.accountant)
    sigma = config.noise_multiplier or 0.0
    if config.noise_on == "weights":
        sigma *= (1 if by_batch else batch) / (training.lr * norm)
    return made.with_noise(sigma)


_calibrated = lru_cache(maxsize=1024)(PrivacyPlan.calibrated)
"""Sites with equally many records need the same noise, in every round, so it is searched for once."""


class Guard:
    """One site's plan and its account in one round.

    Args:
        config: the method's options.
        training: how sites train; C and the batch are in it.
        site: its ledger is in its journal.

    Raises:
        PrivacyError: the plan makes no sense, or the site's ledger is one of another plan, or not as it was saved.
    """

    def __init__(self, config: DPLoRAConfig, training: LocalTraining, site: Site) -> None:
        self.config, self.training, self.site = config, training, site
        try:
            self.plan = plan(config, training, site.size)
            self.ledger = PrivacyLedger(self.plan, site.journal)
        except PrivacyError as error:
            raise PrivacyError(error.what, where=error.where or f"site {site.name}", fix=error.fix) from None

    def trained(self, lr: float) -> PrivacyPlan:
        """The plan that the training loop follows in a round with this learning rate.

        Noise on the weights, N(0, σ²) on every weight that is uploaded (Liu et al. 2023), goes into the step of SGD
        that is to move them: on weights that are float32 already it would come too late, since how those are rounded
        moves by a record too, and all the more the larger the weights are that the server sends.
        """
        if self.config.noise_on != "weights":
            return self.plan
        return self.plan.with_noise(self.plan.noise.std * self.training.lr / lr)

    def record(self, round: int, spent: Sequence[Spent]) -> None:
        """Enter what a round really did, before its upload leaves.

        Args:
            spent: ``Trained.spent``.

        Raises:
            CheckpointError: it could not be written, so that the upload may not leave.
        """
        self.ledger.record(round, spent)
        if bad := sum(entry.observed.not_finite for entry in spent if entry.observed):
            what = "gradients of records" if self.config.clipping == "per_example" else "gradients of batches"
            self.site.tell(
                f"Round {round}: {bad} {what} were not finite numbers, so they counted as zero, and the server was not "
                "told. Look at this site's records, or ask for a lower training.lr."
            )

    def told(self) -> dict[str, Any]:
        """What the site says of its privacy. Where the noise is made for a target, that does not tell how many records
        it has: the rate, the noise and the exact ε, which follow from that, are not said. A given noise has an ε that
        cannot be told without it."""
        return told(self.ledger, self.config.accountant, self.config.epsilon)


def asked(server: Server, config: DPLoRAConfig, sites: Sequence[str]) -> None:
    """Note who is asked to train: what leaves a site has cost it something, whether it arrives here or not."""
    reported = server.journal(REPORTED, ReportedEpsilons)
    reported.asked(server.may_answer(sites), server.round, lambda times: _promised(server, config, times))
    _note_worst(server, config)


def _promised(server: Server, config: DPLoRAConfig, times: int) -> float:
    """The ε, for any site, of answering so often: more often than there are rounds where some are done again."""
    assert server.promised is not None, "noise has a plan"
    if times <= config.rounds:
        return max(config.epsilon or 0.0, server.promised.spent.value)
    training = server.runtime.training
    plans = [(plan(config, training, size), times * steps_of(size, training)) for size in set(server.sizes.values())]
    return rounded(max(one.epsilon(steps, config.accountant).value for one, steps in plans), config.epsilon)


def note(server: Server, config: DPLoRAConfig, site: str, figures: Mapping[str, Any] | None, answers: int = 1) -> None:
    """Note what a site has said, with so many uploads. A site that no longer answers counts with what it said last."""
    server.journal(REPORTED, ReportedEpsilons).record(site, figures, answers=answers)
    _note_worst(server, config)


def _note_worst(server: Server, config: DPLoRAConfig) -> None:
    """Note what holds for every site. Of sites it has the ε alone; all words are of the run's own plan."""
    assert server.promised is not None and server.promised.plan is not None, "noise has a plan"
    spent, plan, target, given = server.promised.spent, server.promised.plan, config.epsilon, config.noise_multiplier
    worst = server.journal(REPORTED, ReportedEpsilons).worst
    batch = server.runtime.training.batch_size
    server.note_privacy(
        {
            "unit": "record",
            "adjacency": config.adjacency,
            "delta": config.delta,
            "epsilon": worst["epsilon"],
            "accountant": f"{spent.accountant} ({spent.note})" if spent.note else spent.accountant,
            "plan": plan.describe() if target is None else described(config, plan, batch),
            "refused": worst["refused"],
            "claimed_per_step": claimed_per_step(given, config.delta) if target is None and given else None,
        }
    )


def described(config: DPLoRAConfig, plan: PrivacyPlan, batch: int) -> str:
    """A plan for a target in words that are the same for sites of any size."""
    drawn = f"{batch} of a site's records a step, without replacement"
    if config.sampler == "poisson":
        drawn = f"{batch} of a site's records expected a step, Poisson sampling"
    return (
        f"{plan.unit}-level, {plan.adjacency}; {drawn}; {plan.clipping.describe()}; "
        f"Gaussian noise for ε = {config.epsilon:g} over the run; δ = {plan.delta:g}"
    )
