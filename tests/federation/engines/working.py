"""A method that uses all that an engine does: it answers, fails, leaks and dawdles."""

import time

from murmura.federation.method import Method
from murmura.federation.traits import Traits
from murmura.federation.wire.releases import Count, Metric, Weights, verb
from murmura.progress import phase

ANSWER = 0.2  # seconds that a slow answer takes


class Working(Method):
    traits = Traits(label="Working")

    def lead(self, server, fleet):
        """Nothing to do."""

    @verb(releases={"adapter": Weights(), "examples": Count(), "lr": Metric("rate")})
    def train(self, cohort, ask):
        for site in cohort.sites:
            site.store["seen"] = [*site.store.get("seen", []), ask.round]
        sent = [{"w": own["w"] + size} for own, size in zip(cohort.given(ask, "adapter"), cohort.sizes, strict=True)]
        return cohort.reply(adapter=sent, examples=cohort.sizes, lr=[ask["lr"]] * len(cohort.sites))

    @verb(releases={"examples": Count()})
    def break_one(self, cohort, ask):
        if any(site.name == "site-1" for site in cohort.sites):
            raise ValueError("patient 12 has the flu")
        return cohort.reply(examples=cohort.sizes)

    @verb(releases={"examples": Count()})
    def leak(self, cohort, ask):
        return cohort.reply(records=[site.records for site in cohort.sites])

    @verb(releases={"examples": Count()})
    def dawdle(self, cohort, ask):
        with phase("train"):
            time.sleep(ANSWER)
        return cohort.reply(examples=cohort.sizes)
