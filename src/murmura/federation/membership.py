"""What every site of a run does besides the method: it joins, keeps its store after each round, and goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

import murmura
from murmura.data.records import digest
from murmura.errors import CheckpointError, DataError, RefusedError
from murmura.federation.wire.messages import VERSION, Ask, Reply
from murmura.federation.wire.releases import Count, Metric, Release, WithoutRecords, verb

if TYPE_CHECKING:
    from murmura.federation.site.cohort import Cohort
    from murmura.federation.site.site import Site


class Membership(WithoutRecords):
    """Introduces sites to the server, and has them keep what they have from a round. The number of records is public.

    Args:
        kind: of the records that the run is about.
        counts: whether sites say how many records they have: where the method tells the server anyway.
        sized: whether the server reckons with a number for each site, which then has to be the site's own: by it goes
            the ε of an answer that does not arrive.
        experiment: digest of the experiment that this side has.
    """

    def __init__(self, kind: str, *, counts: bool, sized: bool = False, experiment: str = "") -> None:
        self.kind, self.counts, self.sized, self.experiment = kind, counts, sized, experiment

    def releases(self, name: str) -> dict[str, Release]:
        return {field: one for field, one in super().releases(name).items() if field != "records" or self.counts}

    @verb(
        releases={
            "versions": Metric("version of Murmura and of its messages at the site"),
            "kind": Metric("kind of record that the site has"),
            "records": Count("number of records, where the method tells it anyway"),
        },
        slots=False,
        measures=True,
    )
    def join(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Say what the site is, and take part in the run from then on, if its experiment is the site's own.

        A site notes which records it has taken part with, and refuses to continue with others: what it keeps, and what
        its privacy has spent, is about those. A site for which the run is ``resumed`` has noted them before; one that
        never kept a round of it starts, with nothing that it kept of another run.

        Raises:
            RefusedError: the server's experiment is another one; or it reckons with another number of records.
            DataError: its records are others than when the run was begun.
            CheckpointError: what it kept is gone, or was given up for another run.
        """
        if ask["experiment"] != self.experiment:
            what = "the server's experiment is not the one that this site has"
            raise RefusedError(what, fix="A model in a folder needs a folder of the same name here as at the server.")
        known = cohort.given(ask, "records", lambda site: None)
        for site, resumed, records in zip(cohort.sites, cohort.given(ask, "resumed"), known, strict=True):
            if self.sized:
                _require_same(site, records)
            if site.kept is not None and resumed and not site.kept.is_known:
                what = f"what site {site.name} kept is gone, and with it what its privacy has spent"
                fix = "Restore it from a copy, or start over with --overwrite."
                raise CheckpointError(what, where=str(site.kept.folder), fix=fix)
            if site.kept is not None and not site.kept.is_about(digest(site.records)):
                what = "the records are not those that the run was started with"
                raise DataError(what, where=f"site {site.name}", fix="Restore them, or start another run.")
            if site.kept is not None and resumed:
                site.kept.resume(ask.run)
            elif site.kept is not None:
                site.kept.begin(ask.run)
            site.join(ask.run)
        told: dict[str, Any] = {"murmura": murmura.__version__, "messages": VERSION}
        count = len(cohort.sites)
        sizes = {"records": cohort.sizes} if self.counts else {}
        return cohort.reply(versions=[told] * count, kind=[self.kind] * count, **sizes)

    @verb(
        releases={"unkept": Metric("earlier rounds that the site could not keep, and the class of what went wrong")},
        slots=False,
        measures=True,
        late=True,
    )
    def commit(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Keep the store as it is after the round of the ask; nothing leaves, unless earlier rounds could not be kept.

        Raises:
            CheckpointError: a store could not be written; the generations before are intact.
        """
        for site in cohort.sites:
            site.commit(ask.round)
        return [Reply(site.name, {"unkept": list(site.unkept.items())} if site.unkept else {}) for site in cohort.sites]

    @verb(releases={}, slots=False, measures=True, late=True)
    def rewind(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Go back to the store as it was after the round of the ask; what was spent of privacy stays spent.

        Raises:
            CheckpointError: it is damaged or gone.
        """
        for site in cohort.sites:
            site.rewind(ask.round)
        return cohort.reply()


def _require_same(site: Site, records: Any) -> None:
    """Refuse a server that reckons with another number of records than the site has, which is in the run no more."""
    known = records.item() if isinstance(records, torch.Tensor) and records.numel() == 1 else None
    if known == site.size:
        return
    site.leave()
    raise RefusedError(
        f"the site has {site.size} records, and the server reckons with {known}, so that the ε of an answer that it "
        "does not get would be wrong",
        fix="Give `murmura site init` again, and send what it prints to whoever leads the federation, to be added anew "
        "before the server is started. If it was, do not trust this server.",
    )
