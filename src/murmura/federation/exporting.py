"""What a site has of its own when a run is finished."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from murmura import atomic
from murmura.errors import RefusedError
from murmura.federation.adapter_folder import leave_adapter
from murmura.federation.wire.messages import Ask, Reply
from murmura.federation.wire.releases import Declaration, WithoutRecords, verb
from murmura.runs.names import site_folder

if TYPE_CHECKING:
    from murmura.federation.site.cohort import Cohort

_OWN = (
    "## What is guaranteed\n\nNothing. This adapter is one site's own, trained on its private records, and is there "
    "for their owner alone."
)


class Exporting(WithoutRecords):
    """Asked of sites with adapters of their own, at the end.

    Args:
        kept: what their stores call these.
        beside: they were made beside the method, whose traffic this is then none of.
    """

    def __init__(self, kept: str = "adapter", *, beside: bool = False) -> None:
        self.kept, self._beside = kept, beside

    def declaration(self, name: str) -> Declaration:
        return replace(super().declaration(name), measures=self._beside)

    @verb(releases={}, slots=False)
    def keep(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Write the site's own adapter as a PEFT folder where its owner finds it; nothing leaves.

        ``adapter`` holds the factors that are not the site's own, where an aggregation rule leaves some.

        Raises:
            RefusedError: it holds others: the folder would be the server's, and its card say that it is the site's.
        """
        sent = cohort.given(ask, "adapter", default=lambda site: {})
        for site, shared in zip(cohort.sites, sent, strict=True):
            if shared and not cohort.rule.personal:
                raise RefusedError("the server has sent an adapter, and the one to keep is the site's own")
            if site.results is None:
                continue
            if not site.results.exists():
                site.results.parent.mkdir(parents=True, exist_ok=True)
                atomic.make_private(site.results)
            own = cohort.rule.complete(cohort.travelled(shared), site.store[self.kept])
            place = site.results / site_folder(site.name)
            atomic.clear_drafts(place)  # of a process that was killed: nobody else holds this site
            with atomic.replacing_folder(place) as draft:
                atomic.make_private(draft)  # as private as the records that the adapter was trained on
                leave_adapter(draft, own, cohort.runtime, _OWN)
            site.tell(f"Round {ask.round}: this site's own adapter is in {place}.")
        return cohort.reply()
