"""Clipped updates of whole sites: what the sites do, and how the server sums what they send."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from murmura.aggregation.mean import StateSum
from murmura.aggregation.rules import Rule
from murmura.errors import PrivacyError, RefusedError
from murmura.federation.forecast import Forecast, SitePart
from murmura.federation.method import Method
from murmura.federation.traits import Combines, Traits
from murmura.federation.wire.messages import Ask, Reply
from murmura.federation.wire.releases import DifferentialPrivacy, Metric, Release, Weights, verb
from murmura.federation.wire.sums import Sum, misfit
from murmura.methods.local_rules import local_rule
from murmura.methods.site_level.config import SiteLevelConfig
from murmura.privacy.clipping import SiteClipping, clip
from murmura.privacy.entropy import Entropy, OSEntropy, SeededEntropy
from murmura.privacy.guarantee import Unit
from murmura.privacy.observation import SLACK, Observation, length
from murmura.training.adapter import State
from murmura.training.loop import drawn

if TYPE_CHECKING:
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.cohort import Cohort
    from murmura.training.config import LocalTraining

_CENTRAL = DifferentialPrivacy(
    "site", "server", "Gaussian noise on the sum of clipped updates ({config.strength}, δ={config.delta:g})"
)
_COUNTED = DifferentialPrivacy("site", "server", "Gaussian noise on the count")
_TRUST = (
    "The server itself, and whoever reads its memory, sees the update clipped but without noise: it is trusted (a "
    "secure sum would show it the sum alone)."
)
_TRUSTED_SUM = "The server itself, and whoever reads its memory, sees the sum without noise: with that it is trusted."


class SiteLevel(Method):
    """Protects whole sites: each clips its update, and only a noisy sum is used (McMahan et al. 2018, Algorithm 1).

    The clipped update and the bit beside it are all that may leave a site, whatever it does before: so it may train by
    any local rule that sends nothing else.

    Attributes:
        local: how sites train.
    """

    config: SiteLevelConfig

    def __init__(self, config: SiteLevelConfig, rule: Rule | None = None) -> None:
        super().__init__(config, rule)
        self.local = local_rule(self.rule.config)

    @property
    def protects(self) -> Unit | None:
        return "site" if self.config.private else None

    @property
    def title(self) -> str:
        return ", ".join(part for part in (self.label, self.local.title, self.rule.title) if part)

    @property
    @abstractmethod
    def label(self) -> str:
        """Its name with the options that matter."""

    @property
    def traits(self) -> Traits:
        own = "its step by the noisy mean is its own: set method.server_lr and method.momentum instead"
        refused = {
            "scaffold": "what it sends besides the update is not clipped, and the guarantee is for the clipped update",
            **dict.fromkeys(("fedavgm", "fedadam", "fedyogi", "fedadagrad"), own),
        }
        combines = Combines(rules=("mean",), ranks=False, refused=refused)
        return Traits(label=self.label, single_replies="", combines=combines, no_public_records="", tells_uploads=True)

    def reads(self, records: int, training: LocalTraining) -> int:
        return drawn(records, training)

    def entropy(self, server: Server, round: int) -> Entropy:
        """Where a round's sample and noise come from: the operating system, or the run's seed if the sum has no noise
        and so nothing is secret."""
        return OSEntropy() if self.config.private else SeededEntropy(server.stream / "sites" / round)

    def forecast(self, part: SitePart) -> Forecast:
        own = len(part.records)
        steps, kept = part.steps(own + part.public), self.kept() * part.adapter
        return Forecast(records=own, steps=steps, down=part.down, up=part.up, server_keeps=kept)

    @abstractmethod
    def kept(self) -> int:
        """Adapter-sized sets of float32 tensors that the server keeps besides the global adapter; in float64 a set is
        two."""

    def releases(self, name: str) -> dict[str, Release]:
        declared = super().releases(name)
        if name == "train_clipped" and not self.config.unclipped_is_sent:
            del declared["unclipped"]
        if name == "train_clipped" and not self.config.private:
            note = "clipped, but no noise is added to the sum"
            return {field: replace(one, protection=None, note=note) for field, one in declared.items()}
        trust = _TRUSTED_SUM if self.rule.config.secure else _TRUST
        return {field: replace(one, note=f"{trust} {one.note}".strip()) for field, one in declared.items()}

    @verb(
        releases={
            "update": Weights(
                "change of the adapter in this round, clipped",
                _CENTRAL,
                "ε is in the table of rounds; it does not cover figures that measure the run.",
            ),
            "unclipped": Metric("½ if the update was within the norm, else −½", _COUNTED),
        }
    )
    def train_clipped(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Train the global adapter, and send the change, clipped to ``norm``; no loss and no count leaves.

        The bit b is sent as b − ½, so that one site moves the sum by only ½ (Andrew et al. 2021).
        """
        self._require_norm(ask["norm"])
        starts = cohort.starts(ask)
        options = self.local.options(cohort, ask, starts)
        # To stop would tell the server of one site.
        shards, finite = cohort.own_and_others(), not self.config.private
        trained = cohort.train(shards, starts, ask["lr"], "private", finite=finite, **options)
        uploads = cohort.uploads([result.state for result in trained])
        replies = []
        for site, start, upload in zip(cohort.sites, starts, uploads, strict=True):
            change = {name: tensor - start[name] for name, tensor in upload.items()}
            entered = self.entered(change, start)
            update, unclipped = clip(entered, ask["norm"])
            left = length(update.values())
            if not left and length(entered.values()) != 0:
                site.tell(
                    f"Round {cohort.round}: the update was not a finite number, or far too long, so it counted as "
                    "zero, and the server was not told. Look at this site's records, or ask for a lower training.lr."
                )
            if not left <= ask["norm"] * (1 + SLACK):
                what = "an update was about to leave unclipped"
                fix = "Use a release of murmura as it was published: this one does not clip."
                raise PrivacyError(what, where=f"site {site.name}, round {cohort.round}", fix=fix)
            replies.append(Reply(site.name, {"update": update} | self._bit(unclipped)))
        return replies

    def _require_norm(self, norm: float) -> None:
        """Refuse to clip updates to another norm than the run's; one that adapts the server says."""
        known = self.config.unclipped_is_sent or norm == self.config.clip_norm
        if not known or not 0 < norm < math.inf:
            raise RefusedError(f"updates are to be clipped to {norm:g}, and in this run to {self.config.clip_norm:g}")

    def _bit(self, unclipped: bool) -> dict[str, torch.Tensor]:
        """Whether an update was within the norm, if that is sent: as a tensor, so that it takes as many bytes either
        way."""
        return {"unclipped": torch.tensor(0.5 if unclipped else -0.5)} if self.config.unclipped_is_sent else {}

    def gather(
        self, server: Server, cohort: Sequence[str], norm: float, round: int
    ) -> tuple[State, float, Observation]:
        """The exact sum of the cohort's clipped updates, float64; Σ(bᵢ − ½), bᵢ being 1 where an update was within the
        norm; and what was seen of the clipping: all of them are secret.

        Sites count alike, however many records they have. An empty cohort, or one that does not answer, sums to zero:
        noise is released all the same, since it is a secret too that the sample was empty.

        Raises:
            RunError: too few sites answer, or updates are not those of the adapter.
        """
        like = self.rule.upload(server.adapter, round)
        sums = self._summed(server, cohort, like, norm=norm, lr=server.lr(round))
        if sums.sites:
            total = StateSum(like=like).add(sums["update"]).tensors
        else:
            total = {name: torch.zeros_like(tensor) for name, tensor in like.items()}
        # In the model's order: a checkpoint has another one, in which the same source would give other noise.
        order = [entry.name for entry in server.runtime.bank.manifest if entry.name in total]
        exact = {name: total[name].double() for name in order}
        # Of single updates this says little; each site looks at its own before it is sent.
        longest = length(exact.values()) / (norm * max(len(sums.sites), 1))
        seen = Observation(after=longest, clipped=((SiteClipping.kind, 1),))
        return exact, float(sums.fields.get("unclipped", 0.0)), seen

    def _summed(self, server: Server, cohort: Sequence[str], like: State, **asked: Any) -> Sum:
        """The sum of the cohort's replies. Single ones are only looked at where single uploads are to be attacked."""
        reply_like = {"update": like} | self._bit(True)

        def unfit(reply: Reply) -> str | None:
            return misfit(reply.fields, reply_like) or self._unclipped(reply, asked["norm"])

        if not server.listens:
            return server.sum("train_clipped", cohort, like=reply_like, refused=unfit, **asked)
        sums = Sum()
        for reply in server.ask("train_clipped", cohort, refused=unfit, **asked):
            sums.add(reply.site, reply.fields)
            change = self.left(reply["update"], server.adapter)
            server.observe_upload(reply.site, {name: like[name] + change[name] for name in like})
        return sums

    def _unclipped(self, reply: Reply, norm: float) -> str | None:
        """Why no site that clips has sent this, in words; None where one may have. Under a secure sum nobody looks."""
        if not length(reply["update"].values()) <= norm * (1 + SLACK):
            return "'update' is longer than the norm to which it is clipped"
        bit = reply.fields.get("unclipped")
        return None if bit is None or abs(float(bit)) == 0.5 else "'unclipped' is neither ½ nor −½"

    def entered(self, change: State, start: State) -> State:
        """A change of the adapter in the coordinates in which it is clipped, summed and noised: here, unchanged."""
        return change

    def left(self, change: State, start: State) -> State:
        """The way back from ``entered``."""
        return change
