"""Canaries: random secrets among the sites' records, of which only the audit knows which; how far a model gives them
away (Carlini et al. 2019), and the least ε that this allows (Steinke, Nasr and Jagielski 2023).

Of a canary's candidates, records that differ in their secret alone, a fair coin decides which of the first two its site
has. So how many records a site has does not depend on the coins, as ε takes that number to be public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmura.measure.statistics import Estimate
from murmura.model_runtime import ModelRuntime
from murmura.privacy.lower_bound import audited
from murmura.privacy.parts import Unit
from murmura.privacy.plan import PrivacyPlan
from murmura.progress import phase
from murmura.training.adapter import State

_DELTA = 1e-5  # of the ε that is bounded, where no other is promised


@dataclass(frozen=True)
class Canary:
    """One canary.

    Attributes:
        site: whose record it is.
        candidates: records that differ in their secret alone.
        coin: 0 or 1, the candidate that the site has.
    """

    site: str
    candidates: tuple[Any, ...]
    coin: int

    @property
    def record(self) -> Any:
        """What the site has."""
        return self.candidates[self.coin]


class Canaries:
    """What canaries say about the models of a run; the server's part of an audit, in a simulation.

    Args:
        canaries: at least one, all with as many candidates.
        unit: what has a coin of its own: each record, or a site, whose canaries share one.
        plan: that the run follows; None where it promises nothing, or a mechanism at the sites protects by itself.
    """

    def __init__(self, canaries: Sequence[Canary], unit: Unit, plan: PrivacyPlan | None) -> None:
        self.canaries, self.unit = list(canaries), unit
        self.adjacency: str = plan.adjacency if plan else "replace-one"
        self.delta = plan.delta if plan else _DELTA
        self._base: np.ndarray | None = None

    def measure(self, runtime: ModelRuntime, adapter: State, uploads: Mapping[str, State]) -> dict[str, Any]:
        """Figures of a round.

        Args:
            runtime: the server's.
            adapter: the global one.
            uploads: what single sites have sent in this round, those that are known.

        Returns:
            ``exposure`` of the global adapter and ``upload_exposure`` of the uploads, in bits, with the ends of their
            95 % intervals; ``audit_epsilon`` with what it rests on.
        """
        heard = [place for place, canary in enumerate(self.canaries) if canary.site in uploads]
        with phase("audit"):
            if self._base is None:
                every = range(len(self.canaries))
                self._base = self._losses(runtime, [runtime.origin] * len(every), every)
            whole = self._gains(runtime, [adapter] * len(self.canaries), range(len(self.canaries)))
            own = self._gains(runtime, [uploads[self.canaries[place].site] for place in heard], heard)
        figures = self._exposure("exposure", whole, range(len(self.canaries)))
        evidence = whole[:, 1] - whole[:, 0]
        if heard:
            figures |= self._exposure("upload_exposure", own, heard)
        if self.unit == "record":  # and of whole sites a single upload is nothing that the guarantee is about
            evidence[heard] = own[:, 1] - own[:, 0]
        return figures | self._bound(evidence)

    def _losses(self, runtime: ModelRuntime, adapters: Sequence[State], places: Sequence[int]) -> np.ndarray:
        """Summed negative log-likelihoods in nats of all candidates of some canaries, float64 [n, candidates]."""
        records = [record for place in places for record in self.canaries[place].candidates]
        width = len(self.canaries[0].candidates)
        models = [adapter for adapter in adapters for _ in range(width)]
        scores = runtime.score(models, runtime.tokenise_fitting(records), description="canaries")
        return np.array([score.nll for score in scores]).reshape(len(places), width)

    def _gains(self, runtime: ModelRuntime, adapters: Sequence[State], places: Sequence[int]) -> np.ndarray:
        """How many nats likelier candidates are than to the model before training, [n, candidates]."""
        assert self._base is not None
        return self._base[list(places)] - self._losses(runtime, adapters, places)

    def _exposure(self, name: str, gains: np.ndarray, places: Sequence[int]) -> dict[str, float]:
        found = [exposure(row, self.canaries[place].coin) for row, place in zip(gains, places, strict=True)]
        low, high = _interval(found, math.log2(gains.shape[1]))
        return {name: float(np.mean(found)), f"{name}_low": low, f"{name}_high": high}

    def _bound(self, evidence: np.ndarray) -> dict[str, float]:
        coins = {
            canary.site if self.unit == "site" else place: canary.coin for place, canary in enumerate(self.canaries)
        }
        sums = dict.fromkeys(coins, 0.0)
        for place, canary in enumerate(self.canaries):
            sums[canary.site if self.unit == "site" else place] += float(evidence[place])
        found = audited(list(sums.values()), list(coins.values()), self.delta, self.adjacency)
        counts = {"audit_right": found.right, "audit_guesses": found.guesses, "audit_coins": found.canaries}
        return {"audit_epsilon": found.epsilon, "audit_most": found.most, **counts}


def exposure(gains: np.ndarray, place: int) -> float:
    """``log2 |R| − log2 rank`` of one candidate among all (Carlini et al. 2019, Definition 4); of equal ones half count
    as likelier.

    Args:
        gains: of each candidate, float [R]; the larger the likelier.
        place: which one it is.
    """
    likelier, equal = int((gains > gains[place]).sum()), int((gains == gains[place]).sum()) - 1
    return math.log2(len(gains)) - math.log2(1 + likelier + equal / 2)


def _interval(values: Sequence[float], most: float) -> tuple[float, float]:
    """The 95 % interval of a mean, within 0 and what is possible. Exposures are skewed, since few candidates are the
    likeliest: of a handful by chance Student's would miss one time in ten (``Estimate.of_shares``)."""
    low, high = Estimate.of_shares([value / most for value in values]).ends or (0.0, 1.0)
    return low * most, high * most
