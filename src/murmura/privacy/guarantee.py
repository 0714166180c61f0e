"""What a run promises of private data, and what one answer of a site costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from murmura.errors import PrivacyError
from murmura.privacy.parts import Unit
from murmura.privacy.plan import PrivacyPlan
from murmura.units import bound

if TYPE_CHECKING:
    from murmura.privacy.accounting import Epsilon


@dataclass(frozen=True)
class Guarantee:
    """An ε that a run promises.

    Args:
        unit: what is protected.
        plan: that the run follows; None where a mechanism at the site protects by itself, whatever the server does.
        accountant: of the plan's ε, or where that of the mechanism comes from.
        words: what protects, in a line.
        epsilon: of a mechanism by itself, with δ = 0.
    """

    unit: Unit
    plan: PrivacyPlan | None
    accountant: str
    words: str
    epsilon: float = 0.0

    @staticmethod
    def of(plan: PrivacyPlan, accountant: str) -> Guarantee:
        """Of a run that follows a plan."""
        return Guarantee(plan.unit, plan, accountant, plan.describe())

    @property
    def spent(self) -> Epsilon:
        """The ε that the run would end with.

        Raises:
            PrivacyError: the accountant does not support this kind of plan.
        """
        if self.plan is None:
            from murmura.privacy.accounting import Epsilon

            return Epsilon(self.epsilon, self.accountant, 0.0, "replace-one")
        return self.plan.epsilon(accountant=self.accountant)

    def told(self) -> str:
        """The same in words, and what protects."""
        spent = self.spent
        return f"ε = {bound(spent.value)} by {spent.accountant}: {self.words}"


@dataclass(frozen=True)
class Cost:
    """What an answer costs each record of a site, or all of them together.

    Args:
        plan: that is followed at the site, for so many ``steps``.
        epsilon: of a mechanism by itself, with δ = 0.
    """

    plan: PrivacyPlan | None = None
    steps: int = 0
    epsilon: float = 0.0

    def times(self, answers: int) -> Cost:
        """Of so many answers: plans compose, and so do ε with δ = 0, which add up."""
        return Cost(self.plan, answers * self.steps, answers * self.epsilon)


def require_promise(private: bool) -> None:
    """Of a method that protects nothing: whoever reads a ledger of noise adds it up to an ε, which would not be one of
    all that such a method sends.

    Args:
        private: whether it draws noise.

    Raises:
        PrivacyError: it does.
    """
    if private:
        fix = (
            "Set method.noise_multiplier = 0, or have the method promise (`protects`) what holds for all that it sends."
        )
        raise PrivacyError("noise is drawn by a method that promises nothing", where="method", fix=fix)
