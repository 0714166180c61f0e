"""What a run with site-level privacy has spent, kept in the server's store and so in every checkpoint."""

from __future__ import annotations

from typing import Any

from murmura.errors import PrivacyError
from murmura.federation.server import Server
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.parts import Sampler
from murmura.privacy.plan import PrivacyPlan

_KEPT = "privacy"


class Account:
    """One ledger for the whole run: the same sums protect all sites.

    A site that was to take part and did not answer is no departure from the plan. The sum is divided by a fixed number,
    so the missing site is one whose update is zero: within C like any other, and with as much noise over it.

    Args:
        server: its store holds the ledger.
        plan: of the whole run.
        accountant: ``best``, ``pld`` or ``rdp``.

    Raises:
        PrivacyError: the ledger in the store is one of another plan.
    """

    def __init__(self, server: Server, plan: PrivacyPlan, accountant: str) -> None:
        self.server, self.plan, self.accountant = server, plan, accountant
        self.ledger = PrivacyLedger(plan)
        if _KEPT in server.store:
            self.ledger = PrivacyLedger.from_json(server.store[_KEPT])
        if self.ledger.plan != plan:
            raise PrivacyError(
                f"the run was begun under another privacy plan ({self.ledger.plan.describe()}) and would go on under "
                f"{plan.describe()}",
                fix="Resume with the same sites, rounds and options of the method, or start another run.",
            )

    def record(
        self,
        sampler: Sampler,
        clip_norm: float,
        noise_std: float,
        *,
        count_noise: float | None = None,
        restart_every: int | None = None,
    ) -> None:
        """Enter a round as it was done, and note what is guaranteed after it; see ``PrivacyLedger.record``."""
        self.ledger.record(1, sampler, clip_norm, noise_std, count_noise, restart_every)
        self.server.store[_KEPT] = self.ledger.to_json()
        if self.plan.noise.std:
            self.server.note_privacy(self.figures() | {"clip_norm": clip_norm})

    def figures(self) -> dict[str, Any]:
        """The ε of the rounds so far, or why there is none."""
        told: dict[str, Any] = {
            "unit": self.plan.unit, "adjacency": self.plan.adjacency, "delta": self.plan.delta,
            "plan": self.plan.describe(), "epsilon": None, "accountant": None, "refused": None,
            "claimed_per_step": None,
        }  # fmt: skip
        try:
            spent = self.ledger.epsilon(self.accountant)
        except PrivacyError as error:
            return told | {"refused": str(error)}
        left_out = f" ({spent.note})" if spent.note else ""
        return told | {"epsilon": spent.value, "accountant": spent.accountant + left_out}
