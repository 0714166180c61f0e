"""The smallest methods that average adapters."""

from types import SimpleNamespace

from murmura.aggregation.choosing import rule
from murmura.aggregation.config import AggregationConfig
from murmura.federation.traits import AveragingTraits
from murmura.federation.wire.releases import Count, Metric, Weights, verb
from murmura.methods.averaging import Averaging
from murmura.training.config import LocalTraining

SGD = LocalTraining(lr=0.05, batch_size=1, optimizer="sgd", clip=0)


class EveryOther(Averaging):
    """Trains on every other record of a site."""

    traits = AveragingTraits(label="Every other")

    @verb(releases={"adapter": Weights(), "examples": Count(), "loss": Metric("mean training loss")})
    def train(self, cohort, ask):
        shards = [items[::2] for items in cohort.own()]
        trained = self.trained(cohort, ask, shards)
        return self.answered(cohort, ask, trained, examples=[len(shard) for shard in shards])


class OneByOne(EveryOther):
    """The same, but the server has to see every reply."""

    traits = AveragingTraits(label="One by one", single_replies="a test looks at them")


class Alike(EveryOther):
    """The same, but sites count alike, and do not say how many records they have."""

    weight = None


def method(kind=EveryOther, rounds=2, **options):
    return kind(SimpleNamespace(rounds=rounds, cohort_size=None), rule(AggregationConfig(**options)))
