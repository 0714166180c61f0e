"""What a site has of its own when a run is finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murmura import atomic
from murmura.federation.wire.messages import Ask, Reply
from murmura.federation.wire.releases import Verbs, verb
from murmura.runs.schema import site_folder
from murmura.training.adapter import fold, save_peft

if TYPE_CHECKING:
    from murmura.federation.site.cohort import Cohort


class Keeping(Verbs):
    """Asked of sites with adapters of their own, at the end."""

    @verb(releases={}, slots=False)
    def keep(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Write the site's own adapter as a PEFT folder where its owner finds it; nothing leaves.

        ``adapter`` holds the factors that are not the site's own, where an aggregation rule leaves some.
        """
        bank = cohort.workbench.bank
        assert bank.lora is not None, "without an adapter a site has nothing of its own"
        sent = cohort.given(ask, "adapter", default=lambda site: {})
        for site, shared in zip(cohort.sites, sent, strict=True):
            if site.results is None:
                continue
            plain, spec = fold(cohort.rule.complete(shared, site.store["adapter"]), bank.lora)
            with atomic.replacing_folder(site.results / site_folder(site.name)) as draft:
                save_peft(draft, plain, spec, cohort.workbench.base, fan_in_fan_out=bank.fan_in_fan_out)
        return cohort.reply()
