"""What a run with site-level privacy has spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murmura.errors import PrivacyError
from murmura.methods.site_level.config import SiteNoiseConfig
from murmura.privacy.journal import Journal
from murmura.privacy.ledger import PrivacyLedger, Spent
from murmura.privacy.plan import PrivacyPlan
from murmura.runs.names import PRIVACY

if TYPE_CHECKING:
    from murmura.federation.server.rounds import Server


def with_noise(plan: PrivacyPlan, config: SiteNoiseConfig) -> PrivacyPlan:
    """The plan with as much noise as the options say.

    Raises:
        PrivacyError: no noise gives that ε.
    """
    if config.noise_multiplier is not None:
        return plan.with_noise(config.noise_multiplier * plan.sensitivity)
    assert config.epsilon is not None, "one of both is given"
    return plan.calibrated(config.epsilon, config.accountant)


class Account:
    """One ledger for the whole run: the same sums protect all sites.

    A site that was asked and did not answer is no departure from the plan. The sum is divided by a fixed number, so the
    missing site is one whose update is zero: within C like any other, and under as much noise.

    Args:
        server: its journal holds the ledger.
        plan: of the whole run.
        accountant: ``best``, ``pld`` or ``rdp``.

    Raises:
        PrivacyError: the ledger is one of another plan; or as ``Server.journal``.
    """

    def __init__(self, server: Server, plan: PrivacyPlan, accountant: str) -> None:
        self.server, self.plan, self.accountant = server, plan, accountant
        self.ledger = PrivacyLedger(plan, server.journal(PRIVACY, Journal))

    def record(self, round: int, spent: Spent) -> None:
        """Enter a round as it was done, and note what is guaranteed after it.

        Call it before anybody is sent the model that the round made, even to measure it.

        Raises:
            CheckpointError: it could not be written, so that the model may not be sent.
        """
        self.ledger.record(round, [spent])
        self.note(spent.clip_norm)

    def note(self, clip_norm: float) -> None:
        """Note what is guaranteed so far, in a round too that releases nothing."""
        if self.plan.noise.std:
            self.server.note_privacy(self.told() | {"clip_norm": clip_norm})

    def told(self) -> dict[str, Any]:
        """The ε of the rounds so far, or why there is none."""
        known: dict[str, Any] = {
            "unit": self.plan.unit,
            "adjacency": self.plan.adjacency,
            "delta": self.plan.delta,
            "plan": self.plan.describe(),
            "epsilon": None,
            "accountant": None,
            "refused": None,
            "claimed_per_step": None,
        }
        try:
            spent = self.ledger.epsilon(self.accountant)
        except PrivacyError as error:
            return known | {"refused": str(error)}
        exclusions = f" ({spent.note})" if spent.note else ""
        return known | {"epsilon": spent.value, "accountant": spent.accountant + exclusions}
