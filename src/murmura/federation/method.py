"""What a method is: a server program and site verbs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from murmura.aggregation.rules import Mean, Rule
from murmura.federation.forecast import Forecast, SitePart, Work
from murmura.federation.traits import Traits
from murmura.federation.wire.releases import Release, SecureSum, Verbs
from murmura.resources import Resource

if TYPE_CHECKING:
    from murmura.federation.method_config import MethodConfig
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.site import Site
    from murmura.privacy.guarantee import Guarantee, Unit
    from murmura.streams import Stream
    from murmura.training.config import LocalTraining


class Method(Verbs, ABC):
    """One algorithm. Subclasses write ``lead`` for the server and verbs for the sites.

    Attributes:
        config: its options.
        rule: how the sites' adapters become the next global one.
    """

    def __init__(self, config: MethodConfig, rule: Rule | None = None) -> None:
        self.config, self.rule = config, rule or Mean()

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """What a run needs to know of it."""

    @property
    def keeps_adapters(self) -> bool:
        """True when sites keep adapters of their own, by the method or by the aggregation rule."""
        return self.traits.personal or self.rule.personal

    @property
    def uploads_are_heard(self) -> bool:
        """True when single uploads can be attacked: what sites send is an adapter of theirs, and not a part of one that
        they keep."""
        adapters = self.traits.tells_uploads or self.sends("adapter")
        return adapters and self.traits.trained_at == "sites" and not self.keeps_adapters

    @property
    def tells_sizes(self) -> bool:
        """True when sites tell how many records they have; never where an ε is promised, which would not cover it."""
        return self.sends("examples") and not self.protects

    @property
    def protects(self) -> Unit | None:
        """What the run promises an ε for, by its options alone; None where it promises none."""
        return None

    @property
    def title(self) -> str:
        """How reports call a run: the method, and its aggregation rule where that is not the mean."""
        return ", ".join(part for part in (self.traits.label, self.rule.title) if part)

    def releases(self, name: str) -> dict[str, Release]:
        """What verb ``name`` may release, in words of this method's options."""
        return {field: release.filled(config=self.config) for field, release in super().releases(name).items()}

    def secure(self, name: str) -> SecureSum | None:
        declaration, options = self.declaration(name), self.rule.config
        if not options.secure or declaration.singly or declaration.measures:
            return None
        return SecureSum(
            "masks between the sites (Bonawitz et al. 2017), which come off the sum of more than "
            f"{options.secure.threshold:.3g} of those asked"
        )

    @abstractmethod
    def lead(self, server: Server, fleet: Fleet) -> None:
        """The server's program, from the first round to the last."""

    # ---- what a plan asks before a run ---------------------------------------------------------------------------

    def resources(self) -> Mapping[str, Resource]:
        """Models that the run needs besides the resident one, by the option of ``[method]`` that names each. Verbs find
        them in ``cohort.runtime.resources``, ``lead`` in ``server.runtime.resources``."""
        return {}

    def check(self, site: str, records: Sequence[Any]) -> None:
        """Find out before a run whether a site can take part with its records.

        Raises:
            DataError: it cannot.
        """

    def remarks(self, sites: Mapping[str, Sequence[Any]]) -> list[str]:
        """What a dry run has to tell the run's owner of files that the method's options name, in sentences.

        Args:
            sites: records of each, where they are known.

        Raises:
            DataError: such a file cannot be used.
        """
        return []

    def members(self, site: Site, stream: Stream) -> Sequence[Any]:
        """The records of a site that count as members in attacks: those that it trains on just as they are.

        Args:
            site: whose records.
            stream: the run's randomness.
        """
        return site.records

    def forecast(self, part: SitePart) -> Forecast:
        """What one site's part in one round will take, in bytes, steps and tokens, before anything is done."""
        return Forecast()

    def work(self, sites: Sequence[Sequence[Any]], training: LocalTraining) -> Iterable[Work]:
        """What a whole run does besides the sites' parts: at the server, with other models, or to be tried otherwise.

        Args:
            sites: records of each.
        """
        return ()

    def guarantee(self, records: Sequence[int], training: LocalTraining) -> Guarantee | None:
        """What a run would promise of private data; where sites follow several plans, by the weakest one. None where
        ``protects`` is.

        Args:
            records: of each site.

        Raises:
            PrivacyError: the plan makes no sense.
        """
        return None

    def outcomes(self, server: Server) -> dict[str, Any]:
        """What a finished run has in its folder besides the usual, by its name in ``outcomes``: JSON or a dataclass of
        it, for a file; a function that writes into the folder that it is given, for a folder."""
        return {}
