"""What is measured after each round: utility, leakage of the model, leakage of single uploads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from murmura.errors import RunError
from murmura.evaluation.config import EvaluationConfig
from murmura.evaluation.heldout import evaluate
from murmura.federation.fleet import Fleet
from murmura.federation.messages import Reply
from murmura.progress import phase
from murmura.streams import Stream
from murmura.training.adapter import State
from murmura.workbench import Workbench

Figures = dict[str, float | None]


class Monitor:
    """Measures a run from outside its method.

    Args:
        workbench: the server's.
        config: what is measured and how often.
        stream: the run's randomness.
    """

    def __init__(self, workbench: Workbench, config: EvaluationConfig, stream: Stream) -> None:
        self.workbench, self.config, self.stream = workbench, config, stream
        self._uploads: dict[str, State] = {}
        self._heard = 0

    def hear(self, reply: Reply) -> None:
        """Keep a few of the round's uploads, each equally likely (reservoir sampling, so none need be held back)."""
        if self.config.uploads == 0 or "adapter" not in reply.fields:
            return
        self._heard += 1
        if len(self._uploads) < self.config.uploads:
            self._uploads[reply.site] = reply["adapter"]
            return
        place = (self.stream / "uploads" / reply.site / self._heard).python().randrange(self._heard)
        if place < self.config.uploads:
            del self._uploads[list(self._uploads)[place]]
            self._uploads[reply.site] = reply["adapter"]

    def due(self, round: int, last: int) -> bool:
        return round in (0, last) or round % self.config.every == 0

    def measure(self, adapter: State, fleet: Fleet, personal: bool) -> Figures:
        """All figures of a round; forgets the round's uploads.

        Args:
            adapter: the global one.
            personal: measure the adapters that sites keep instead.

        Raises:
            RunError: the held-out loss is not finite.
        """
        figures = self._personal_utility(fleet) if personal else self._utility(adapter)
        loss = figures["heldout_loss"]
        if loss is None or loss != loss or loss == float("inf"):
            raise RunError(
                "the held-out loss is not a finite number", where=f"round {fleet.round}", fix="Lower training.lr."
            )
        if self.config.memorisation:
            sites = list(fleet.sites)
            shared = {} if personal else {"adapter": adapter}
            figures |= self._attack(fleet, _spread(sites, self.config.sample), {}, shared, "member")
            figures["leakage"] = _minus(figures["member_rouge"], figures["nonmember_rouge"])
            if self._uploads:
                records = -(-self.config.sample // len(self._uploads))
                counts = dict.fromkeys(self._uploads, records)
                each = {site: {"adapter": upload} for site, upload in self._uploads.items()}
                figures |= self._attack(fleet, counts, each, {}, "upload_member")
                figures["upload_nonmember_rouge"] = self._upload_reference()
                figures["upload_leakage"] = _minus(figures["upload_member_rouge"], figures["upload_nonmember_rouge"])
        self._uploads, self._heard = {}, 0
        return figures

    def _utility(self, adapter: State) -> Figures:
        found = evaluate(self.workbench, [adapter])[0]
        return {
            "heldout_loss": found.loss, "heldout_rouge": found.rouge,
            "nonmember_rouge": found.rouge, "nonmember_exact": found.exact, "nonmember_prefix": found.prefix,
        }  # fmt: skip

    def _personal_utility(self, fleet: Fleet) -> Figures:
        replies = list(fleet.ask("assess", fleet.sites))
        other = [_mean([reply["nonmember"][i] for reply in replies]) for i in range(3)]
        return {
            "heldout_loss": _mean([reply["heldout_loss"] for reply in replies]),
            "heldout_rouge": _mean([reply["heldout_rouge"] for reply in replies]),
            "nonmember_rouge": other[0], "nonmember_exact": other[1], "nonmember_prefix": other[2],
        }  # fmt: skip

    def _attack(
        self, fleet: Fleet, counts: dict[str, int], each: dict[str, dict[str, Any]], shared: dict[str, Any], name: str
    ) -> Figures:
        """Ask sites to attack with so many of their records each; means over records."""
        payloads = {site: {"records": count, **each.get(site, {})} for site, count in counts.items()}
        replies = list(fleet.ask("memorise", list(counts), each=payloads, **shared))
        weights = [reply["records"] for reply in replies]
        return {f"{name}_{f}": _mean([reply[f] for reply in replies], weights) for f in ("rouge", "exact", "prefix")}

    def _upload_reference(self) -> float | None:
        """ROUGE-L of the same uploads on held-out records, so that their leakage is a difference too."""
        with phase("audit"):
            found = evaluate(self.workbench, list(self._uploads.values()))
        return _mean([f.rouge for f in found])


def _spread(sites: Sequence[str], total: int) -> dict[str, int]:
    """``total`` records over the sites as evenly as it goes; sites that get none are left out."""
    each, more = divmod(total, len(sites))
    counts = {site: each + (k < more) for k, site in enumerate(sites)}
    return {site: count for site, count in counts.items() if count}


def _mean(values: Sequence[float], weights: Sequence[float] | None = None) -> float | None:
    weights = weights or [1.0] * len(values)
    total = sum(weights)
    return sum(v * w for v, w in zip(values, weights, strict=True)) / total if total else None


def _minus(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second
