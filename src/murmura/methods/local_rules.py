"""How sites train on the way to an average: plainly, held near where they start, or with their drift taken out.

A local rule has an end at the server (what it sends along, what it makes of what comes back) and one at the site. Any
method on ``Averaging`` takes any of them, unless it says why not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from murmura.aggregation.config import AggregationConfig, Proximal
from murmura.errors import RefusedError
from murmura.federation.wire.messages import Ask, Payload
from murmura.federation.wire.releases import Release, Weights
from murmura.federation.wire.sums import Sum
from murmura.training.adapter import State, subtract, zeros_like
from murmura.training.loop import Trained

if TYPE_CHECKING:
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.cohort import Cohort
    from murmura.federation.site.site import Site

_CONTROL, _CHANGE = "control", "control_change"
_ROUND = "control_round"  # of the change that a site keeps
_UNCOUNTED = "control_uncounted"


class LocalRule:
    """Plain local training (McMahan et al. 2017).

    Attributes:
        title: what reports call it; empty for plain training.
        releases: fields that replies have for it, besides the method's own. They are only ever summed.
        sets: adapter-sized sets of tensors that it sends each way with every adapter, and keeps at the server.
        site_sets: such sets that it keeps at each site.
    """

    title: ClassVar[str] = ""
    releases: ClassVar[Mapping[str, Release]] = {}
    sets: ClassVar[int] = 0
    site_sets: ClassVar[int] = 0

    def __init__(self, config: AggregationConfig) -> None:
        self.config = config

    def sends(self, server: Server) -> Payload:
        """Fields that every site is sent with the adapter."""
        return {}

    def like(self, server: Server) -> Payload:
        """Fields of ``releases``, as any site has them."""
        return {}

    def options(self, cohort: Cohort, ask: Ask, starts: Sequence[State]) -> dict[str, Any]:
        """Options of ``Cohort.train`` for sites that were sent adapters to start from."""
        return {}

    def told(self, cohort: Cohort, ask: Ask, starts: Sequence[State], trained: Sequence[Trained]) -> dict[str, Any]:
        """The fields of ``releases``, for each site."""
        return {}

    def settle(self, server: Server, asked: Sequence[str], sums: Sum, sites: int) -> None:
        """Take in the sums of the fields of ``releases``.

        Args:
            asked: sites that were asked in this round, whether their replies are in the sums or not.
            sums: of those that count.
            sites: in the federation, asked or not.
        """


class FedProx(LocalRule):
    """A proximal term μ/2·‖w − w_t‖² in the loss (Li et al. 2020, arXiv 1812.06127, equation 2)."""

    title = "FedProx"

    def options(self, cohort: Cohort, ask: Ask, starts: Sequence[State]) -> dict[str, Any]:
        assert isinstance(self.config.local, Proximal)
        return {"prox": self.config.local.mu, "anchors": starts}


class Scaffold(LocalRule):
    """SCAFFOLD (Karimireddy et al. 2020, arXiv 1910.06378, Algorithm 1, option II).

    After every optimiser step ``w ← w − η(c − c_k)``; then ``c_k⁺ = c_k − c + (W_t − w_K)/(K·η)`` with K the steps
    really taken, and at the server ``c ← c + (1/N) Σ (c_k⁺ − c_k)`` over the sites that replied. With AdamW the term
    with η is a mean Adam direction, not a gradient, as in OpenFedLLM.

    A site cannot know whether its reply counted: it may be late, or lost on the way. Were c_k to change all the same,
    c would no longer be the mean of them, for the rest of the run. So a site keeps the change apart, and takes it into
    c_k when it is next asked, unless the server says that its replies have not counted since then.
    """

    title = "SCAFFOLD"
    releases: ClassVar[Mapping[str, Release]] = {_CHANGE: Weights("change of the site's control variate")}
    sets = 1
    site_sets = 2

    def sends(self, server: Server) -> Payload:
        """c, and of each site whose last reply did not count, since which round none has."""
        sent: dict[str, Any] = {_CONTROL: server.store.get(_CONTROL) or zeros_like(server.adapter)}
        if _UNCOUNTED in server.store:
            sent[_UNCOUNTED] = server.store[_UNCOUNTED]
        return sent

    def like(self, server: Server) -> Payload:
        return {_CHANGE: server.adapter}

    def options(self, cohort: Cohort, ask: Ask, starts: Sequence[State]) -> dict[str, Any]:
        common = cohort.given(ask, _CONTROL)
        owned = _controls(cohort, ask, common)
        return {"corrections": [subtract(c, own) for c, own in zip(common, owned, strict=True)]}

    def told(self, cohort: Cohort, ask: Ask, starts: Sequence[State], trained: Sequence[Trained]) -> dict[str, Any]:
        """The change of each site's control variate, which the site keeps beside it."""
        lr, common = ask["lr"], cohort.given(ask, _CONTROL)
        changes = []
        owned = _controls(cohort, ask, common)
        for site, own, c, start, result in zip(cohort.sites, owned, common, starts, trained, strict=True):
            scale = 1 / (max(result.steps, 1) * lr)
            change = {name: (start[name] - result.state[name]) * scale - c[name] for name in own}
            site.store |= {_CONTROL: own, _CHANGE: change, _ROUND: ask.round}
            changes.append(change)
        return {_CHANGE: changes}

    def settle(self, server: Server, asked: Sequence[str], sums: Sum, sites: int) -> None:
        before = server.store.pop(_UNCOUNTED, {})
        since = before | {site: before.get(site, server.round) for site in asked}
        if uncounted := {site: round for site, round in since.items() if site not in sums.sites}:
            server.store[_UNCOUNTED] = uncounted
        if _CHANGE not in sums.fields:
            return
        control, changes = server.store.get(_CONTROL) or zeros_like(server.adapter), sums[_CHANGE]
        # N is all sites: one that was not asked keeps its c_k, so that c stays the mean of all of them.
        server.store[_CONTROL] = {name: (c.double() + changes[name] / sites).float() for name, c in control.items()}


def _controls(cohort: Cohort, ask: Ask, like: Sequence[State]) -> list[State]:
    """c_k of each site, zero before it ever trained, with its last change if that counted."""
    uncounted = ask.shared.get(_UNCOUNTED, {})
    if late := [site.name for site in cohort.sites if site.store.get(_ROUND, 0) > ask.round]:
        raise RefusedError(f"site {late[0]} has trained in a later round already, and its control variate is of that")
    return [_control(site, uncounted.get(site.name), c) for site, c in zip(cohort.sites, like, strict=True)]


def _control(site: Site, uncounted_since: int | None, like: State) -> State:
    own: State = site.store.get(_CONTROL) or zeros_like(like)
    if _CHANGE not in site.store or (uncounted_since is not None and site.store[_ROUND] >= uncounted_since):
        return own
    return {name: own[name] + change for name, change in site.store[_CHANGE].items()}


LOCAL_RULES: dict[str, type[LocalRule]] = {"plain": LocalRule, "fedprox": FedProx, "scaffold": Scaffold}


def local_rule(config: AggregationConfig) -> LocalRule:
    """The local rule that a config names."""
    return LOCAL_RULES[config.local.kind](config)
