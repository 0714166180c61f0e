"""The server's side of a run, assembled from the experiment and public records; no private record is needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from murmura.augment.lead import Augmentation, asking
from murmura.augment.strategies import Rows, choosing
from murmura.augment.writing import SelfInstruct
from murmura.errors import RunError
from murmura.experiment.config import Experiment
from murmura.experiment.context import ProcessContext
from murmura.experiment.summing import agreement, require_range
from murmura.experiment.verbs import fingerprint, verbs_of
from murmura.federation.method import Method
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.server.publication import OfSecretCohorts, Publication, WithoutNumbers
from murmura.federation.server.rounds import Server
from murmura.federation.server.transcript import TranscriptWriter
from murmura.federation.wire.messages import JOIN, VERSION, Payload, Reply
from murmura.federation.wire.well_formed import is_count
from murmura.measure.canaries import Canaries, Canary
from murmura.measure.config import EvaluationConfig
from murmura.measure.evaluation_set import EvaluationSet
from murmura.measure.monitor import Monitor
from murmura.personal.lead import Personalisation
from murmura.privacy.plan import PrivacyPlan
from murmura.progress import say
from murmura.retrieval.pool import Pool
from murmura.runs.folder import RunFolder
from murmura.runs.names import OWNER, SITE_NOTES
from murmura.streams import Stream

if TYPE_CHECKING:
    from murmura.federation.engines import Engine


@dataclass(frozen=True)
class ServerPart:
    """The server's part of a plan. No private record is in it, but for canaries that a simulation has planted.

    Args:
        context: the model, and how records meet it.
        evaluation: how the run is measured.
        evaluation_set: public records to measure with.
        privacy: the plan that the run follows; None where nothing is guaranteed.
        canaries: those among the records of simulated sites.
        pool: what sites are augmented from (``[augment]``).
        shared_out: rows of it that were shared out to simulated sites (``augmenting.shared_out``).
    """

    experiment: Experiment
    method: Method
    context: ProcessContext
    evaluation: EvaluationConfig
    evaluation_set: EvaluationSet
    privacy: PrivacyPlan | None = None
    canaries: Sequence[Canary] = ()
    pool: Pool | None = None
    shared_out: Rows | None = None


@dataclass(frozen=True)
class ServerSide:
    """What leads a run: ``side.method.lead(side.server, side.fleet)``.

    Args:
        digest: of the experiment.
        augmentation: what comes before the method in some rounds (``[augment]``).
        personalisation: what comes after it (``[personal]``).
    """

    method: Method
    server: Server
    fleet: Fleet
    monitor: Monitor
    digest: str
    augmentation: Augmentation | None = None
    personalisation: Personalisation | None = None

    @property
    def silent(self) -> tuple[str, ...]:
        """Sites that never took part; none where cohorts are secret, since who was in none of them would be told."""
        if not self.server.publication.tells_sites:
            return ()
        there = {*self.fleet.taking_part, *self.server.known}
        return tuple(site for site in self.fleet.sites if site not in there)

    def meet(self, known: Collection[str] = (), quorum: int | None = None) -> None:
        """Have every site join, before the first round and when the run is resumed.

        Args:
            known: sites that have kept a round before, so that they must still have what they kept.
            quorum: sites that are enough to begin with; None: all.

        Raises:
            RunError: too few sites answer as sites of this run.
        """
        answered = self._joined(self.fleet.sites, known)
        missing = [site for site in self.fleet.sites if site not in answered]
        if len(answered) < (len(self.fleet.sites) if quorum is None else quorum):
            what = f"sites did not join: {'; '.join(self.fleet.events)}"
            others = [site for site in missing if site not in self.fleet.barred]  # of which no reason is known here
            told = f"{SITE_NOTES} in the site's folder, and what its process prints"
            fix = f"Look at what the site's owner was told: {told}." if others else ""
            raise RunError(what, where=f"site {(others or missing)[0]}", fix=fix, passing=bool(others))
        returned: Callable[[], list[str]] | None = getattr(self.fleet.engine, "returned", None)
        if returned is not None:
            self.server.arriving = lambda round: self._readmit(returned(), round)

    def _readmit(self, sites: Sequence[str], round: int) -> None:
        """Have sites that were away join again, with what they had after the last round. One that cannot is not asked
        until it can: that it fails is not to stop the others."""
        for site in dict.fromkeys([*sites, *self.fleet.barred]):
            is_known = site in self.server.known
            self.fleet.barred.pop(site, None)
            try:
                if not self._joined([site], self.server.known):
                    continue
                if is_known:
                    self.fleet.stores.rewind(round - 1, [site])
            except RunError as error:
                self._leave([site])
                self.fleet.barred[site] = f"it could not come back ({error.what})"
                self.server.event(f"site {site} could not come back ({error.what})")
            else:
                self.server.event(f"site {site} takes part{' again' if is_known else ''}")

    def _leave(self, sites: Sequence[str]) -> None:
        """Ask these sites for nothing until they have joined."""
        self.fleet.joined = [site for site in self.fleet.joined or () if site not in sites]

    def _joined(self, sites: Sequence[str], known: Collection[str]) -> list[str]:
        """Those of the sites that join."""
        self._leave(sites)
        answered, sizes = [], dict(self.monitor.sizes)
        each: dict[str, Payload] = {site: {"resumed": site in known} for site in sites}
        if self.method.protects == "record":
            for site, told in each.items():  # as a tensor, of as many bytes whatever the number: these are published
                told["records"] = torch.tensor([self.server.sizes[site]])
        for reply in self.fleet.ask(JOIN, sites, each, refused=self._barring, experiment=self.digest):
            answered.append(reply.site)
            if "records" in reply.fields:
                sizes[reply.site] = reply["records"]
        self.fleet.joined = [*self.fleet.taking_part, *answered]
        if not self.method.keeps_adapters:  # else each site's own adapter is attacked, and all count alike
            self.monitor.sizes = sizes
        return answered

    def _barring(self, reply: Reply) -> str | None:
        """As ``_unfit``; such a site is asked for nothing, except to join again."""
        if why := _unfit(reply, self.monitor.evaluation_set.task.kind):
            self.fleet.barred[reply.site] = f"it did not join: {why}"
        return why


def _unfit(reply: Reply, kind: str) -> str | None:
    """Why a site is none of this run, by what it says of itself when it joins, in words that quote nothing of it; None
    where it is one.

    Args:
        kind: of the records that the run is about.
    """
    fields, versions = reply.fields, reply.fields.get("versions")
    is_told = isinstance(versions, Mapping) and is_count(versions.get("messages"))
    is_told = is_told and isinstance(fields.get("kind"), str)
    has_records = "records" not in fields or is_count(fields["records"], 1)
    if not (is_told and has_records):
        return "it does not say what it should of itself"
    if fields["versions"]["messages"] != VERSION:
        return "it speaks another version of the messages; install the same version of Murmura on both sides"
    if fields["kind"] != kind:
        return f"it has records of another kind than '{kind}', which the run is about"
    return None


def assemble(part: ServerPart, engine: Engine, folder: RunFolder, *, run: str) -> ServerSide:
    """The server of a run with this id, which the engine connects with its sites."""
    experiment, method, promised, evaluation_set = part.experiment, part.method, part.privacy, part.evaluation_set
    stream, runtime, settings = Stream(experiment.run.seed), part.context.runtime("server"), experiment.run
    if method.traits.trained_at == "sites":
        for public in (evaluation_set.heldout, evaluation_set.nonmembers):
            runtime.spill(runtime.tokenise_fitting(public), folder.private / OWNER, common=True)
    agreed = agreement(experiment, method, engine.sites)
    fleet = Fleet(
        engine,
        verbs_of(experiment, method),
        ledger := Ledger(),
        stream,
        settings.min_replies,
        run=run,
        seconds=settings.answer_seconds,
        publication=_publication(part, ledger, len(engine.sites)),
        agreement=agreed,
    )
    adapter = runtime.initial(stream / "adapter") if method.traits.trained_at == "sites" else None
    require_range(agreed, adapter or {})
    planted = Canaries(part.canaries, method.protects or "record", promised) if part.canaries else None
    monitor = Monitor(runtime, evaluation_set, part.evaluation, stream, canaries=planted)
    curious = TranscriptWriter(folder.transcript) if experiment.audit.keep else None
    server = Server(runtime, fleet, monitor, folder, stream, adapter, method.rule, curious=curious)
    augmentation = _augmentation(part, server, fleet, folder)
    personalisation = _personalisation(part, server, fleet, folder)
    return ServerSide(method, server, fleet, monitor, fingerprint(experiment), augmentation, personalisation)


def publication_of(method: Method, promised: PrivacyPlan | None) -> type[Publication]:
    """What anybody may see of a run that follows a privacy plan, or none."""
    if promised is not None and promised.has_secret_cohort:
        return OfSecretCohorts
    return Publication if method.protects is None else WithoutNumbers


def _publication(part: ServerPart, ledger: Ledger, sites: int) -> Publication:
    kind = publication_of(part.method, part.privacy)
    if issubclass(kind, OfSecretCohorts) and part.privacy is not None:
        return kind(ledger, part.privacy.sampler.expected(sites))
    return kind(ledger)


def _personalisation(part: ServerPart, server: Server, fleet: Fleet, folder: RunFolder) -> Personalisation | None:
    options = part.experiment.personal
    if options is None:
        return None
    made = Personalisation(bool(options.apart(promises=part.method.protects is not None)), folder)
    server.closing = lambda: made.train(server, fleet)
    return made


def _augmentation(part: ServerPart, server: Server, fleet: Fleet, folder: RunFolder) -> Augmentation | None:
    """What comes before the method in some rounds; what sites write by themselves leaves nothing to keep."""
    options, pool = part.experiment.augment, part.pool
    if options is None:
        return None
    if pool is None:
        written = SelfInstruct(options)
        server.opening = lambda round: written.before(server, fleet, round)
        server.losing = partial(written.lost, server)
        return None
    withheld = asking(pool, part.evaluation_set.subjects)
    if len(withheld):
        say(f"{len(withheld)} records of the pool ask what the run is measured with, and no site is given them")
    if part.shared_out is not None and len(part.shared_out):
        shared = len(part.shared_out)
        say(f"{shared} records of the pool were shared out to the sites, and no site is given them")
        withheld = np.union1d(withheld, part.shared_out)
    augmentation = Augmentation(choosing(options, withheld, str(server.runtime.device)), pool, folder)
    server.opening = lambda round: augmentation.before(server, fleet, round)
    server.losing = partial(augmentation.lost, server)
    return augmentation
