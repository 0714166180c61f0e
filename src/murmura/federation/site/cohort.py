"""The sites that work together in one place, as a verb sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from murmura.aggregation.rules import Mean, Rule
from murmura.aggregation.travel import unpacked, with_feedback
from murmura.errors import RefusedError, RunError
from murmura.federation.site.site import Site
from murmura.federation.wire.messages import Ask, Reply
from murmura.finite import is_finite
from murmura.model_runtime import ModelRuntime
from murmura.progress import phase
from murmura.streams import Stream
from murmura.training.adapter import State, has_ranks_of_weights, split_residual
from murmura.training.config import LocalTraining
from murmura.training.loop import NonFiniteLoss, Trained, train

_CARRIED = "carried"  # in a site's store


def received(sent: Any) -> State:
    """An adapter that the server has sent, float32. Whether it fits the model, the bank says.

    Raises:
        RefusedError: it is none, or not finite: then whether training fails would tell of the records it is done on.
    """
    if not isinstance(sent, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in sent.values()):
        raise RefusedError("the server has sent something else than an adapter")
    state = unpacked(sent)
    if not all(map(is_finite, state.values())):
        raise RefusedError("the adapter that the server has sent holds a NaN or an infinity")
    return state


class Cohort:
    """K ≥ 1 sites whose work shares one bank. A verb is written for a cohort, whatever K is.

    Attributes:
        sites: in the order of the replies.
        runtime: the resident model.
        round: of the ask.
        stream: the run's randomness.
        rule: how adapters are aggregated, and so what of them trains and travels.
    """

    def __init__(
        self, sites: Sequence[Site], runtime: ModelRuntime, ask: Ask, stream: Stream, rule: Rule | None = None
    ) -> None:
        self.sites, self.runtime, self.round, self.stream = list(sites), runtime, ask.round, stream
        self._ask = ask
        self.rule = rule or Mean()

    @property
    def sizes(self) -> list[int]:
        """Records of each site."""
        return [site.size for site in self.sites]

    @property
    def examples(self) -> list[int]:
        """How many records each site counts for in a mean; see ``Site.examples``."""
        return [site.examples for site in self.sites]

    def streams(self, purpose: str) -> list[Stream]:
        """Each site's own randomness for a purpose in this round."""
        return [self.stream / "round" / self.round / purpose / site.name for site in self.sites]

    def given(self, ask: Ask, name: str, default: Callable[[Site], Any] | None = None) -> list[Any]:
        """Field ``name`` of the ask as each site got it; a field left out is filled by ``default``."""
        values = []
        for site in self.sites:
            payload = ask.payload(site.name)
            values.append(payload[name] if name in payload or default is None else default(site))
        return values

    def starts(self, ask: Ask) -> list[State]:
        """The adapter that each site goes on from: field ``adapter`` as it got it, made whole.

        Raises:
            RefusedError: that is no adapter, or not finite; or as ``travelled``.
        """
        return [self.whole(site, self.travelled(ask.payload(site.name).get("adapter"))) for site in self.sites]

    def travelled(self, sent: Any) -> State:
        """What the server has sent of an adapter, with no more than the run's rule has it send: a factor that is the
        site's own would be lost, and the others be trained beside one that the server chose.

        Raises:
            RefusedError: it holds another factor; or as ``received``.
        """
        state = received(sent)
        if state.keys() != self.rule.download(state, None, self.round).keys():
            raise RefusedError("the server has sent a factor that this run's rule does not have it send")
        return state

    def whole(self, site: Site, sent: State | None) -> State:
        """A sent adapter with what the site keeps of its own, or what every site knows without being told.

        Some rules send one factor only (FFA-LoRA: the other is the random start; FedSA-LoRA: the other is personal).
        ``None`` stands for an adapter that is altogether the site's own.

        Raises:
            RefusedError: it has a residual, and the run's rule makes none, or one of a higher rank than the weight can
                have: by its size a site could be made to fail at its longest records.
        """
        if sent is None:
            own: State = site.store["adapter"]
            return own
        residual = split_residual(sent)[1]
        if residual and not self.rule.residual_growth([1, 1]):
            raise RefusedError("the server has sent a residual, and this run's rule makes none")
        if not has_ranks_of_weights(residual):
            raise RefusedError("the server has sent a residual of a higher rank than its weight can have")
        if sent.keys() >= {entry.name for entry in self.runtime.bank.manifest}:
            return sent
        known = site.store.get("adapter") or self.runtime.initial(self.stream / "adapter")
        return self.rule.complete(sent, known)

    def own_adapters(self, ask: Ask) -> list[State]:
        """The adapter of its own that each site trains further: to begin with, field ``start`` as it got it.

        Raises:
            RunError: a site has none, and was not sent any since the server knows that it had one.
        """
        found = []
        for site in self.sites:
            own: State | None = site.store.get("adapter") or ask.payload(site.name).get("start")
            if own is None:
                raise RunError("the adapter that the site had of its own is gone", where=f"site {site.name}")
            found.append(own)
        return found

    def uploads(self, trained: Sequence[State]) -> list[State]:
        """What of its trained adapter each site sends up; a rule with personal factors keeps the rest there."""
        if self.rule.personal:
            for site, state in zip(self.sites, trained, strict=True):
                site.store["adapter"] = state
        uploads = [self.rule.upload(state, self.round) for state in trained]
        if self.rule.config.travel == "float32":
            return uploads
        return [self._rounded(site, upload) for site, upload in zip(self.sites, uploads, strict=True)]

    def _rounded(self, site: Site, upload: State) -> State:
        """An upload as it travels in fewer bits: the change from what the site was sent."""
        sent = received(self._ask.payload(site.name).get("adapter"))
        change = {name: tensor - sent[name] for name, tensor in upload.items()}
        carried: State = site.store.get(_CARRIED, {})
        travels, site.store[_CARRIED] = with_feedback(change, carried, self.rule.config.travel)
        return travels

    def train(
        self,
        shards: Sequence[Sequence[Any]],
        starts: Sequence[State],
        lr: float,
        purpose: str,
        training: LocalTraining | None = None,
        **options: Any,
    ) -> list[Trained]:
        """Local training of all sites together; see ``murmura.training.loop.train``.

        Args:
            training: in place of the run's.
            options: the factor that does not train (``frozen``) is the rule's unless it is given.

        Raises:
            RunError: a loss or an adapter is not finite, naming round, site and step.
        """
        bench = self.runtime
        with phase("train"):
            try:
                return train(
                    bench.bank,
                    shards,
                    starts,
                    training or bench.training,
                    lr,
                    self.streams(purpose),
                    step=bench.step,
                    description=f"train {purpose}",
                    **{"frozen": self.rule.frozen(self.round), **options},
                )
            except NonFiniteLoss as error:
                when = f"step {error.step} ({purpose})"
                raise (self._unfit_to_begin if error.untrained else self.diverged)(error.slot, when) from None

    def _unfit_to_begin(self, slot: int, when: str) -> RunError:
        """What is told where the loss was no finite number before anything was trained."""
        return RunError(
            "the loss is not a finite number before anything is trained: so it is the adapter that the site was given",
            where=self._where(slot, when),
            fix="That comes of what was trained and averaged before, and not of this site or its records. Start over "
            "with a lower training.lr, or with an aggregation.rule against sites that lie.",
        )

    def _where(self, slot: int, when: str) -> str:
        return f"round {self.round}, site {self.sites[slot].name}, {when}"

    def diverged(self, slot: int, when: str) -> RunError:
        """What is told where training comes to no finite number.

        Args:
            slot: whose.
            when: in which step.
        """
        return RunError(
            "the loss or the adapter is no longer a finite number",
            where=self._where(slot, when),
            fix="Lower training.lr, or look at this site's records. The last checkpoint is intact: "
            "change the option and start with --resume.",
        )

    def own(self) -> list[list[Any]]:
        """Each site's records as local training takes them; those that do not fit are left out."""
        return [self.tokenised(site, site.records, common=True) for site in self.sites]

    def public(self) -> list[list[Any]]:
        """The same of the public records that each site keeps; nothing unless the run augments sites."""
        return [self.tokenised(site, site.public) for site in self.sites]

    def others(self) -> list[list[Any]]:
        """The same of all that each site keeps beside its own: public records, or written ones, which are private."""
        written = [self.tokenised(site, site.written) for site in self.sites]
        return [sent + made for sent, made in zip(self.public(), written, strict=True)]

    def tokenised(self, site: Site, records: Sequence[Any], *, common: bool = False) -> list[Any]:
        """Records that a site reads again and again; those that do not fit are left out.

        Args:
            common: they are its own, which other runs on these data have too.
        """
        items = self.runtime.tokenise_fitting(records)
        if site.kept is not None:
            self.runtime.spill(items, site.kept.folder, common=common)
        return items

    def own_and_others(self) -> list[list[Any]]:
        """Both together, the site's own first."""
        return [own + others for own, others in zip(self.own(), self.others(), strict=True)]

    def reply(self, **fields: Sequence[Any]) -> list[Reply]:
        """One reply a site: ``fields[name][k]`` goes into the reply of site k."""
        return [
            Reply(site.name, {name: values[k] for name, values in fields.items()}) for k, site in enumerate(self.sites)
        ]
