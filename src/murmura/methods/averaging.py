"""What methods share that train adapters at the sites and combine them.

How sites train (``local_rules.py``), how uploads are put together (``aggregation/rules.py``) and what step the server
takes with them (``aggregation/server.py``) are options of the section ``[aggregation]``. A method on ``Averaging``
works with those that its traits name (``Combines``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from murmura.aggregation.mean import PER_NUMBER, too_long
from murmura.aggregation.rules import Rule
from murmura.aggregation.server import ServerOptimizer, optimizer_of
from murmura.errors import ConfigError
from murmura.federation.forecast import Forecast, SitePart
from murmura.federation.method import Method
from murmura.federation.wire.messages import Ask, Payload, Reply
from murmura.federation.wire.releases import Count, Metric, Release, Weights, verb
from murmura.federation.wire.sums import Sum, is_state, misfit
from murmura.methods.local_rules import local_rule
from murmura.training.adapter import State, crop
from murmura.training.loop import Trained

if TYPE_CHECKING:
    from murmura.federation.method_config import MethodConfig
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.cohort import Cohort

_OPTIMIZER = "optimizer"  # in the server's store


class Averaging(Method):
    """Every round sites train the global adapter, and the server combines what they send.

    As it stands this is FedAvg. A subclass may say what sites train on (``train``, or as the first of ``verbs`` one of
    its own that replies with ``answered``), whom to ask and what else a round does (``lead``, with ``average``), what
    to note from replies (``note``), and which uploads count how much (``contributions``).

    Attributes:
        weight: the field of replies that uploads are weighed by; None: all sites count alike.
        local: how sites train.
        counted: all names that a field ``counts`` may have.
        keeps_back: whether a site may answer with nothing.
    """

    weight: str | None = "examples"
    counted: Sequence[str] = ()
    keeps_back = False

    def __init__(self, config: MethodConfig, rule: Rule | None = None) -> None:
        super().__init__(config, rule)
        self.local = local_rule(self.rule.config)
        if type(self).contributions is not Averaging.contributions and not self.traits.single_replies:
            what = f"{type(self).__name__}.contributions would be passed by: it asks for sums alone"
            raise ConfigError(what, where="method.name", fix="Say in its traits why it reads replies (single_replies).")

    @property
    def title(self) -> str:
        """The method's name, then the local rule, server's step and aggregation rule where these are not plain."""
        optimizer = self.optimizer()
        parts = [self.traits.label, self.local.title, type(optimizer).__name__ if optimizer else "", self.rule.title]
        return ", ".join(dict.fromkeys(part for part in parts if part))

    def verbs(self) -> list[str]:
        return ["train"]

    def releases(self, name: str) -> dict[str, Release]:
        declared = super().releases(name)
        if "adapter" not in declared:
            return declared
        if self.weight is None:
            declared.pop("examples", None)
        return {**declared, **self.local.releases}

    def weights(self, name: str) -> dict[str, str]:
        optimizer = self.optimizer()
        if self.weight is None or "adapter" not in self.releases(name) or (optimizer and not optimizer.weighted):
            return {}
        return {"adapter": self.weight}

    def forecast(self, part: SitePart) -> Forecast:
        optimizer, traits, own = self.optimizer(), self.traits, len(part.records)
        moments = 2 * len(optimizer.remembers) if optimizer else 0  # float64
        beside, stays = self.local.sets * part.adapter, traits.personal or traits.pooled
        carried = self.rule.config.travel != "float32"  # what rounding has left out (``Cohort.uploads``), in float32
        return Forecast(
            records=own,
            steps=part.steps(own + part.public),
            down=part.down + beside if not stays or (traits.personal and part.first) else 0,
            up=0 if stays else part.up + beside,
            server_keeps=(self.local.sets + moments) * part.adapter,
            site_keeps=(self.local.site_sets + self.keeps_adapters + carried) * part.adapter,
        )

    # ---- on the server -------------------------------------------------------------------------------------------

    def lead(self, server: Server, fleet: Fleet) -> None:
        for round in server.rounds(self.config.rounds):
            self.average(server, fleet, fleet.sample(self.config.cohort_size, round), self.verbs()[0])

    def average(
        self,
        server: Server,
        fleet: Fleet,
        cohort: Sequence[str],
        verb: str = "train",
        each: Mapping[str, Payload] | None = None,
    ) -> None:
        """One round: let sites train from the global adapter, and make what they send the next one.

        Where a sum is all that is needed, the server learns nothing else. Where adapters are personal, sites train
        their own further, and nothing is combined.

        Args:
            verb: one whose replies are those of ``answered``, or like them.
            each: further fields for single sites.
        """
        asked: dict[str, Any] = {"lr": server.lr(fleet.round), "refused": self._unfit(server, verb)}
        if self.traits.personal:
            for reply in server.ask_personal(verb, cohort, each, **asked):
                self.note(server, [reply.site], reply.fields)
            return
        asked |= self.local.sends(server)
        optimizer = self.optimizer()
        if self.rule.config.is_linear and not self.traits.single_replies and not server.listens:
            like = self.like(server, verb) if self.rule.config.secure else None
            sums = server.sum(verb, cohort, each, like=like, **asked)
            if sums.sites:
                self.note(server, sums.sites, {**sums.fields, "loss": sums.mean("loss")})
            self._step(server, optimizer, fleet.round, _mean(sums, self.weights(verb).get("adapter")))
        else:
            sums = Sum()
            replies = server.ask(verb, cohort, each, heard=partial(self.hear, server), **asked)
            noted = self._noted(server, replies, sums)
            self._step(server, optimizer, fleet.round, self.contributions(server, noted))
        self.local.settle(server, cohort, sums, len(fleet.sites))

    def _unfit(self, server: Server, verb: str) -> Callable[[Reply], str | None]:
        """Why a reply of this round cannot be averaged, so that it is left out by the name of its site; None where it
        can. An adapter is of the rank that its site was sent one of."""
        like = self.like(server, verb)

        def unfit(reply: Reply) -> str | None:
            if self.keeps_back and not reply.fields:
                return None
            rank = server.rank(reply.site) if self.rule.ranks and "adapter" in like else None
            own = like if rank is None else {**like, "adapter": crop(like["adapter"], rank)}
            if why := misfit(reply.fields, own):
                return why
            if self.weight in like and not reply[self.weight]:
                return "it counts for nothing"
            if self.rule.config.is_robust:  # which has to do with sites that send anything
                return None
            states = ((name, one) for name, one in own.items() if is_state(one))
            found = (too_long(reply[name], one, self.per_number.get(name, 0.0)) for name, one in states)
            return next(filter(None, found), None)

        return unfit

    @property
    def per_number(self) -> Mapping[str, float]:
        """How far numbers of an upload may go (in the mean square) though a tensor then is long, by field."""
        return dict.fromkeys(self.local.releases, PER_NUMBER)

    def like(self, server: Server, verb: str) -> Payload:
        """A reply to a verb of ``answered`` that any site's is like."""
        known = {
            "adapter": self.rule.upload(server.adapter, server.round),
            "examples": 0,
            "loss": 0.0,
            "counts": dict.fromkeys(self.counted, 0),
            **self.local.like(server),
        }
        return {field: known[field] for field in self.releases(verb) if field in known}

    def hear(self, server: Server, reply: Reply) -> None:
        """Note what a single reply has cost its site, before it is known whether it can be averaged."""

    def note(self, server: Server, sites: Sequence[str], told: Payload) -> None:
        """Note what sites say besides their uploads: one site's reply, or the sum of several with their mean loss."""
        server.note_loss(told.get("loss"))
        server.count({name: count for name, count in told.get("counts", {}).items() if count})

    def optimizer(self) -> ServerOptimizer | None:
        """The server's step, as before the first round; None where the combined uploads become the next adapter."""
        return optimizer_of(self.rule.config)

    def contributions(self, server: Server, replies: Iterable[Reply]) -> Iterator[tuple[State, float]]:
        """(upload, weight) of each reply, as it comes. A method that overrides this says why in its traits
        (``single_replies``): else it would be passed by wherever sums are all that is needed."""
        for reply in replies:
            yield reply["adapter"], 1.0 if self.weight is None else reply[self.weight]

    def _noted(self, server: Server, replies: Iterable[Reply], sums: Sum) -> Iterator[Reply]:
        """Replies as they come, noted; what the local rule wants of them is added up on the way."""
        for reply in replies:
            self.note(server, [reply.site], reply.fields)
            sums.add(reply.site, {name: reply[name] for name in self.local.releases})
            yield reply

    def _step(
        self,
        server: Server,
        optimizer: ServerOptimizer | None,
        round: int,
        contributions: Iterable[tuple[State, float]],
    ) -> None:
        contributions = server.from_whole(contributions)
        if optimizer is None:
            server.combine(contributions)
            return
        if _OPTIMIZER in server.store:
            optimizer.load_state_dict(server.store[_OPTIMIZER])
        moved = optimizer.step(self.rule.upload(server.adapter, round), contributions)
        server.adapter = {**server.adapter, **moved}
        server.store[_OPTIMIZER] = optimizer.state_dict()

    # ---- at the sites --------------------------------------------------------------------------------------------

    @verb(releases={"adapter": Weights(), "examples": Count(), "loss": Metric("mean training loss")})
    def train(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Train the global adapter on the site's records, and on public ones if it has any, and send it back."""
        return self.answered(cohort, ask, self.trained(cohort, ask, cohort.own_and_others()), examples=cohort.examples)

    def trained(
        self,
        cohort: Cohort,
        ask: Ask,
        shards: Sequence[Sequence[Any]],
        purpose: str = "private",
        starts: Sequence[State] | None = None,
        **options: Any,
    ) -> list[Trained]:
        """Train the global adapter on each site's shard, by the local rule.

        Args:
            shards: tokenised records.
            purpose: names the randomness.
            starts: adapters to train in its place.
            options: further ones of ``murmura.training.loop.train``.
        """
        sent = cohort.starts(ask)
        rule = self.local.options(cohort, ask, sent)
        return cohort.train(shards, sent if starts is None else starts, ask["lr"], purpose, **rule, **options)

    def answered(self, cohort: Cohort, ask: Ask, trained: Sequence[Trained], **fields: Sequence[Any]) -> list[Reply]:
        """Replies with what of the trained adapters travels, the losses, and what the local rule reports.

        Args:
            fields: further fields of each reply; ``examples`` is left out where all sites count alike.
        """
        if self.weight is None:
            fields.pop("examples", None)
        told = self.local.told(cohort, ask, cohort.starts(ask), trained)
        uploads = cohort.uploads([result.state for result in trained])
        return cohort.reply(adapter=uploads, **fields, loss=[result.loss for result in trained], **told)


def _mean(sums: Sum, weight: str | None) -> list[tuple[State, float]]:
    """The mean upload with the weight of all, as one contribution; none where nobody answered."""
    if not sums.sites:
        return []
    whole = float(len(sums.sites)) if weight is None else float(sums[weight])
    return [({name: tensor / whole for name, tensor in sums["adapter"].items()}, whole)]
