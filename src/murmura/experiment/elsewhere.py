"""Sites whose records are not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from murmura.errors import ConfigError
from murmura.experiment.config import Experiment
from murmura.experiment.sites import Population
from murmura.federation.method import Method
from murmura.federation.site.site import Site
from murmura.runs.schema import DEPLOYED, Exclusions, SiteReport


class Elsewhere(Sequence[Any]):
    """The records of a site that are not here; how many there are is known, and nothing else."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        raise AssertionError("these records are at their site")


@dataclass(frozen=True)
class Remote:
    """What a server knows of records where sites are on machines of their own.

    Args:
        sites: how many records each takes part with, in the order of the run.
        heldout: records that the run is measured on, which fit the model and are at no site.
        nonmembers: such that members are compared with, where they are not those.
    """

    sites: Mapping[str, int]
    heldout: Sequence[Any]
    nonmembers: Sequence[Any]

    def population(self, experiment: Experiment, method: Method) -> Population:
        """The same as preparation has it.

        Raises:
            ConfigError: the run needs the records themselves.
        """
        if method.traits.pooled:
            what = f"'{experiment.method.name}' brings all records together, and these are at their sites"
            raise ConfigError(what, where="method.name", fix="Choose another method.")
        if experiment.audit.canaries:
            fix = "Leave the option out, or simulate the federation."
            raise ConfigError("canaries cannot be planted at sites elsewhere", where="audit.canaries", fix=fix)
        sites = [Site(name, Elsewhere(count)) for name, count in self.sites.items()]
        reports = [SiteReport(name, None, count, None, None) for name, count in self.sites.items()]
        unknown = Exclusions(None, None, 0, None, None, None)
        return Population(sites, reports, list(self.heldout), list(self.nonmembers), unknown, [])


def require_records(experiment: Experiment) -> None:
    """Check that an experiment can be simulated.

    Raises:
        ConfigError: its sites, or its records, are elsewhere.
    """
    if experiment.run.engine == DEPLOYED:
        fix = "Make a federation with `murmura federation new`, and start it with `murmura serve`."
        raise ConfigError("this engine reaches sites on machines of their own", where="run.engine", fix=fix)
    if experiment.data.train is None:
        fix = "Give it; or, where sites have records of their own, begin with `murmura federation new --sites`."
        raise ConfigError("there are no records to share out", where="data.train", fix=fix)
